"""What is loaded now, and loading it again: on SIGHUP, and when a policy file changes.

A set that cannot be used is refused whole and the old one stays. A request keeps the set that it started with; the
tools of a set that was replaced are closed when the last one that keeps it has ended. When an MCP server lists
other tools than before, they are taken up in a new set, so that no request sees its tools change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from proxy.core.jsontext import Json
from proxy.errors import ConfigError
from proxy.metrics import Metrics
from proxy.server.logs import Log
from proxy.server.services import Loaded
from proxy.server.tasks import TaskOwner
from proxy.tools.mcp import McpServers

POLL_SECONDS = 1.0
LISTING_SECONDS = 10.0
"""How long MCP servers have to list their tools before a set is used without them; they are taken up later."""


class Snapshots:
    """`load` gives a new set or raises ConfigError; `fingerprint` is equal as long as the files are. Both block."""

    def __init__(
        self,
        first: Loaded,
        *,
        load: Callable[[], Loaded],
        fingerprint: Callable[[], Hashable],
        metrics: Metrics,
        log: Log,
        tasks: TaskOwner,
        servers: McpServers,
    ) -> None:
        self._current = first
        self._load = load
        self._fingerprint = fingerprint
        self._metrics = metrics
        self._log = log
        self._tasks = tasks
        self._servers = servers
        servers.changed = self._take_up
        self._users: dict[int, int] = {}
        self._one_at_a_time = asyncio.Lock()
        metrics.policies(first.policies.policies, digest=first.policies.digest)

    async def open(self) -> None:
        """Ask the MCP servers of the first set for their tools."""
        self._current = await self._opened(self._current)

    async def _opened(self, loaded: Loaded) -> Loaded:
        return replace(loaded, tools=await loaded.tools.opened(self._servers, wait=LISTING_SECONDS))

    def _take_up(self) -> None:
        """A server lists other tools than before."""
        old, tools = self._current, self._current.tools.renewed()
        if tools is not old.tools:
            self._current = replace(old, tools=tools)
            self._close_unused(old)

    @property
    def current(self) -> Loaded:
        return self._current

    @contextmanager
    def lease(self, loaded: Loaded | None = None) -> Iterator[Loaded]:
        """Keep a set usable (the current one unless another is given, which the caller keeps already)."""
        held = loaded or self._current
        self._users[id(held)] = self._users.get(id(held), 0) + 1
        try:
            yield held
        finally:
            self._users[id(held)] -= 1
            if not self._users[id(held)]:
                del self._users[id(held)]
                self._close_unused(held)

    def _close_unused(self, held: Loaded) -> None:
        if held is not self._current and id(held) not in self._users:
            self._tasks.start(held.tools.close(), name="close replaced tools")

    async def reload(self) -> bool:
        """Load again; whether the new set is in use."""
        async with self._one_at_a_time:
            try:
                loaded = await asyncio.to_thread(self._load)
            except ConfigError as error:
                self._metrics.policy_reload("refused")
                problems: list[Json] = [str(problem) for problem in error.problems]
                self._log.event("error", "reload refused; the old policies stay", problems=problems)
                return False
            loaded = await self._opened(loaded)
            old, self._current = self._current, loaded
            self._close_unused(old)
            self._metrics.policies(loaded.policies.policies, digest=loaded.policies.digest)
            self._metrics.policy_reload("ok")
            self._log.event("info", "policies loaded")
            return True

    async def watch(self) -> None:
        """Reload whenever the files have changed, until cancelled. A refused set is not tried again until then."""
        seen = await asyncio.to_thread(self._fingerprint)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = await asyncio.to_thread(self._fingerprint)
            if now != seen:
                seen = now
                await self.reload()

    async def close(self) -> None:
        await self._current.tools.close()
