"""Running proxy tools: bounded in number, time and size, and never raising.

Rules: whatever happens, the model gets a result that names the tool and the kind of failure. A run takes one of
its tool's places until nothing of it runs any more, also when nobody waits for it. That one call runs once is
settled elsewhere; here every `run` is a run. A `ToolSet` is what one configuration gives at one moment and does not
change: a reload makes another, and so does an MCP server whose list changes; who swaps them closes the old one when
the last request that began with it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar, assert_never

import aiohttp

from proxy.tools.http import open_session, run_request
from proxy.tools.mcp import McpServer, McpServers
from proxy.tools.mcp_spec import LeftOut, McpSource, specs_of
from proxy.tools.python import run_function
from proxy.tools.spec import (
    HttpBackend,
    McpBackend,
    PythonBackend,
    RunKind,
    ToolOutcome,
    ToolRun,
    ToolRunError,
    ToolSpec,
    failure,
)

NO_OUTPUT = "(no output)"

Result = TypeVar("Result")


@dataclass(slots=True)
class _Workshop:
    """What the sets of one configuration have in common, until the last of them is closed."""

    places: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    session: aiohttp.ClientSession | None = None
    pool: McpServers | None = None
    servers: dict[str, McpServer] = field(default_factory=dict)
    sets: int = 0

    def place(self, spec: ToolSpec) -> asyncio.Semaphore:
        return self.places.setdefault(spec.name, asyncio.Semaphore(spec.concurrency))

    def opened(self) -> aiohttp.ClientSession:
        if self.session is None:
            self.session = open_session()
        return self.session

    def hold(self, pool: McpServers, sources: Sequence[McpSource]) -> None:
        self.pool = pool
        for source in sources:
            if source.server.identity not in self.servers:
                self.servers[source.server.identity] = pool.hold(source.server)

    async def close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()
        servers, self.servers = self.servers, {}
        if self.pool is not None:
            await asyncio.gather(*map(self.pool.let_go, servers.values()))


class ToolSet:
    """The proxy tools of one configuration: the ones that it declares, and what its MCP servers list by now."""

    def __init__(
        self, specs: Iterable[ToolSpec], sources: Iterable[McpSource] = (), *, workshop: _Workshop | None = None
    ) -> None:
        self._declared = tuple(specs)
        self._sources = tuple(sources)
        self._workshop = workshop or _Workshop()
        self._workshop.sets += 1
        self._is_open = True
        self._is_asked = workshop is not None
        self._listed = tuple(server.tools for server in self._workshop.servers.values())
        self.specs: Mapping[str, ToolSpec] = MappingProxyType(dict(self._specs()))

    @property
    def is_empty(self) -> bool:
        """Whether it has no tool, and none can come."""
        return not self.specs and not self._sources

    async def opened(self, pool: McpServers, *, wait: float) -> ToolSet:
        """With the tools that MCP servers list, as far as they answer by then. The set itself is used up."""
        if not self._sources:
            return self
        self._workshop.hold(pool, self._sources)
        attempts = [server.first_attempt() for server in self._workshop.servers.values()]
        try:
            async with asyncio.timeout(wait):
                await asyncio.gather(*attempts)
        except TimeoutError:
            pass  # they come when they come
        self._leave()
        return self._renewed()

    def renewed(self) -> ToolSet:
        """A set with what the servers list now; this one where that is the same, or where it is still being opened."""
        listed = tuple(server.tools for server in self._workshop.servers.values())
        return self._renewed() if self._is_asked and listed != self._listed else self

    def _renewed(self) -> ToolSet:
        return ToolSet(self._declared, self._sources, workshop=self._workshop)

    def _specs(self) -> Iterator[tuple[str, ToolSpec]]:
        """By name; of two tools with one name the first is taken, and declared ones come first."""
        names = {spec.name for spec in self._declared}
        yield from ((spec.name, spec) for spec in self._declared)
        for source in self._sources:
            server = self._workshop.servers.get(source.server.identity)
            for found in specs_of(source, server.tools if server is not None else ()):
                if isinstance(found, ToolSpec) and found.name in names:
                    found = LeftOut(source.server.name, found.name, "there is another tool of this name")
                if isinstance(found, LeftOut):
                    self._leave_out(found)
                else:
                    names.add(found.name)
                    yield found.name, found

    def _leave_out(self, found: LeftOut) -> None:
        if self._workshop.pool is not None:
            self._workshop.pool.left_out(found.server, found.tool, found.reason)

    async def run(self, name: str, run: ToolRun) -> ToolOutcome:
        """Run a tool. Raises CancelledError only. Waiting for a place does not count against the time limit."""
        spec = self.specs.get(name)
        if spec is None:
            return failure(name, RunKind.UNKNOWN, "there is no such tool any more")
        try:
            text, more = await self._run(spec, run)
        except ToolRunError as error:
            return failure(name, error.kind, error.reason)
        text = cut(text, spec.max_result_bytes, more=more)
        return ToolOutcome(text or NO_OUTPUT, is_error=False, kind=RunKind.OK)

    async def close(self) -> None:
        """Let go of connections and MCP servers, if this is the last set that has them. Runs that are under way fail;
        functions in threads run on, unheard."""
        self._leave()
        if not self._workshop.sets:
            await self._workshop.close()

    def _leave(self) -> None:
        if self._is_open:
            self._is_open = False
            self._workshop.sets -= 1

    async def _run(self, spec: ToolSpec, run: ToolRun) -> tuple[str, bool]:
        place = self._workshop.place(spec)
        await place.acquire()
        match spec.backend:
            case HttpBackend() as backend:
                try:
                    work = run_request(self._workshop.opened(), backend, run, most=spec.max_result_bytes)
                    return await _within(backend.timeout, work)
                finally:
                    place.release()
            case PythonBackend() as backend:
                text = await _within(backend.timeout, run_function(backend.function, run, ended=place.release))
                return text, False
            case McpBackend() as backend:
                try:
                    return await self._ask(backend, run, may_repeat=spec.idempotent), False
                finally:
                    place.release()
            case _:
                assert_never(spec.backend)

    async def _ask(self, backend: McpBackend, run: ToolRun, *, may_repeat: bool) -> str:
        server = self._workshop.servers.get(backend.server)
        if server is None:
            raise ToolRunError(RunKind.CONNECT, "its server is not in use any more")
        try:
            return await _within(backend.timeout, server.call(backend, run, may_repeat=may_repeat))
        except ToolRunError as error:
            if error.kind is RunKind.TIMEOUT:
                server.overdue()
            raise


async def _within(seconds: float, work: Coroutine[None, None, Result]) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise ToolRunError(RunKind.TIMEOUT, f"it timed out after {_spelled(seconds)}") from None


def _spelled(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def cut(text: str, most: int, *, more: bool = False) -> str:
    """A result of at most `most` bytes, with a note where something is missing; half surrogates become `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most and not more:
        return data.decode()
    return f"{data[:most].decode('utf-8', 'ignore')}\n(cut: the result was longer than {most} bytes)"
