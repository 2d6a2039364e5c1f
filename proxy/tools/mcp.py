"""MCP servers: their sessions kept open, what they list kept up to date, and calls to their tools.

Rules: each server has one task, which opens its session, owns it and closes it; whoever calls only borrows it. A
server that cannot be reached keeps nobody from starting: it is tried again with growing pauses, and at once when a
call needs it. While a known server is away its tools stay, so that a call finds it when it is back. A call that the
server certainly never began is sent again in a new session; one that it may have begun only where the tool is
idempotent; either once. Must not know how sets of tools are put together. The package `mcp` is imported here, when
the first server is configured: it costs a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.core.jsontext import Object
from proxy.tools.mcp_results import result_text
from proxy.tools.mcp_spec import Heard, ListedTool, Lost, McpServerSpec, McpSession, OpenSession, SessionLostError
from proxy.tools.spec import McpBackend, RunKind, ToolRun, ToolRunError

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def import_mcp() -> None:
    """Import what sessions need, where it may block. Raises ImportError."""
    _open_session()


def _open_session() -> OpenSession:
    from proxy.tools.mcp_session import open_session

    return open_session


def open_mcp_session(server: McpServerSpec, *, lost: Lost, heard: Heard) -> AbstractAsyncContextManager[McpSession]:
    """A session of the package `mcp`."""
    return _open_session()(server, lost=lost, heard=heard)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times, in seconds: how long opening a session and listing its tools may take, and an answer to the question
    whether a server is there; the least between the beginnings of two tries, and the shortest and the longest pause
    where no call wants the server; how often a server over HTTP, of which nobody hears when it goes, is asked; the
    least between two looks at a list."""

    opening: float = 30.0
    answer: float = 10.0
    gap: float = 0.5
    shortest: float = 1.0
    longest: float = 30.0
    heartbeat: float = 30.0
    looks: float = 0.25


class Watch(Protocol):
    """Who is told of servers. `reason` and `line` hold no secret."""

    def up(self, server: str, tools: int) -> None: ...

    def down(self, server: str, reason: str) -> None: ...

    def gone(self, server: str) -> None: ...

    def left_out(self, server: str, tool: str, reason: str) -> None: ...

    def said(self, server: str, line: str) -> None: ...


class McpServer:
    """One server. `changed` is called when it lists something else than before."""

    def __init__(
        self, spec: McpServerSpec, *, watch: Watch, changed: Callable[[], None], pace: Pace, open_session: OpenSession
    ) -> None:
        self.spec = spec
        self.tools: tuple[ListedTool, ...] = ()
        self._watch = watch
        self._changed = changed
        self._pace = pace
        self._open = open_session
        self._session: McpSession | None = None
        self._risen = False
        self._wanted = asyncio.Event()
        self._attempt = _pending()
        self._ended = False

    # -- for who calls

    async def call(self, backend: McpBackend, run: ToolRun, *, may_repeat: bool) -> str:
        """The result of a call as text. Raises ToolRunError."""
        about = _about(run)
        session = await self._ready()
        try:
            result = await session.call(backend.tool, run.arguments, about)
        except SessionLostError as first:
            if first.delivered and not may_repeat:
                raise _broke_off(first) from first
            session = await self._ready()
            try:
                result = await session.call(backend.tool, run.arguments, about)
            except SessionLostError as second:
                raise _broke_off(second) from second
        text, is_error = result_text(result)
        if is_error:
            raise ToolRunError(RunKind.TOOL, self.spec.mask(text) or "it does not say why")
        return text

    def overdue(self) -> None:
        """A call has not been answered in time. The server may be slow, or hang."""
        if self._session is not None:
            self._session.doubt()

    async def first_attempt(self) -> None:
        """Until the server has listed its tools, or was tried in vain."""
        if self._session is None and not self._ended:
            await asyncio.shield(self._attempt)

    async def _ready(self) -> McpSession:
        """The session; the one that is opened next where there is none. Raises ToolRunError."""
        found = self._session
        if found is None and not self._ended:
            self._wanted.set()
            found = await asyncio.shield(self._attempt)
        if found is None:
            raise ToolRunError(RunKind.CONNECT, "its server could not be reached")
        return found

    # -- the task that owns the session

    async def keep(self) -> None:
        """Keep a session open, until cancelled."""
        loop, failures = asyncio.get_running_loop(), 0
        try:
            while True:
                began, self._risen = loop.time(), False
                reason = await self._one_session()
                lasted = loop.time() - began
                self._watch.down(self.spec.name, self.spec.mask(reason))
                failures = 0 if self._risen and lasted >= self._pace.gap else failures + 1
                if self._risen:
                    self._drop()
                else:
                    self._give_up()
                await self._pause(failures, least=self._pace.gap - lasted)
        finally:
            self._ended = True
            self._drop()
            self._give_up()

    async def _one_session(self) -> str:
        """Open a session and keep it as long as it lasts; why it ended."""
        try:
            async with asyncio.timeout(self._pace.opening) as limit:
                async with self._open(self.spec, lost=self._drop, heard=self._heard) as session:
                    self._list(await session.tools())
                    limit.reschedule(None)
                    self._rise(session)
                    await self._follow(session)
                    self._drop()
        except Exception as error:  # noqa: BLE001 - foreign code that a server may break in any way; it is tried again
            return _reason(error)
        return "the session ended"

    async def _follow(self, session: McpSession) -> None:
        """List again when there may be something new. A server over HTTP is asked now and then, since nobody hears it
        end."""
        heartbeat = None if self.spec.is_command else self._pace.heartbeat
        while not session.is_lost:
            told = await session.news(heartbeat)
            if session.is_lost or (not told and session.is_busy):
                continue
            async with asyncio.timeout(self._pace.answer):
                self._list(await session.tools())
            await asyncio.sleep(self._pace.looks)

    async def _pause(self, failures: int, *, least: float) -> None:
        """Between two tries: `least` seconds in any case, then until a call needs the server or the time is over."""
        if least > 0:
            await asyncio.sleep(least)
        if failures:
            seconds = min(self._pace.longest, self._pace.shortest * 2 ** min(failures - 1, 20))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()

    def _list(self, tools: tuple[ListedTool, ...]) -> None:
        if tools != self.tools:
            self.tools = tools
            self._changed()

    def _rise(self, session: McpSession) -> None:
        self._session, self._risen = session, True
        self._wanted.clear()
        self._attempt.set_result(session)
        self._watch.up(self.spec.name, len(self.tools))

    def _drop(self) -> None:
        """Nobody gets the session any more; who comes now waits for the next one."""
        if self._session is not None:
            self._session = None
            self._attempt = _pending()

    def _give_up(self) -> None:
        """Who waits for a session learns that there is none; who comes later waits for another try."""
        self._wanted.clear()
        self._attempt.set_result(None)
        self._attempt = _pending()

    def _heard(self, line: str, /) -> None:
        self._watch.said(self.spec.name, self.spec.mask(line))


class McpServers:
    """The servers of a process. One that two configurations have in common is kept over a reload."""

    def __init__(
        self, start: Start, watch: Watch, *, pace: Pace | None = None, open_session: OpenSession = open_mcp_session
    ) -> None:
        self._start = start
        self._watch = watch
        self._pace = pace or Pace()
        self._open = open_session
        self._kept: dict[str, _Kept] = {}
        self.changed: Callable[[], None] = lambda: None

    def hold(self, spec: McpServerSpec) -> McpServer:
        """A server, which runs until everybody who holds it has let it go."""
        kept = self._kept.get(spec.identity)
        if kept is None:
            self._watch.down(spec.name, "")
            server = McpServer(spec, watch=self._watch, changed=self._tell, pace=self._pace, open_session=self._open)
            kept = self._kept[spec.identity] = _Kept(server, self._start(server.keep()))
        kept.holders += 1
        return kept.server

    async def let_go(self, server: McpServer) -> None:
        """Hold a server no longer; the last one ends it."""
        kept = self._kept[server.spec.identity]
        kept.holders -= 1
        if kept.holders:
            return
        del self._kept[server.spec.identity]
        kept.task.cancel()
        await asyncio.wait([kept.task])
        if not any(other.server.spec.name == server.spec.name for other in self._kept.values()):
            self._watch.gone(server.spec.name)

    def left_out(self, server: str, tool: str, reason: str) -> None:
        self._watch.left_out(server, tool, reason)

    def _tell(self) -> None:
        self.changed()


@dataclass(slots=True)
class _Kept:
    server: McpServer
    task: asyncio.Task[None]
    holders: int = 0


def _pending() -> asyncio.Future[McpSession | None]:
    return asyncio.get_running_loop().create_future()


def _about(run: ToolRun) -> Object:
    """What a server is told of a call (`_meta`): for whom it is, and how to know it again. `traceparent` has the name
    that the protocol gives it."""
    about: Object = {"sidecall.io/callId": run.call_id, "sidecall.io/idempotencyKey": run.idempotency_key}
    if run.client:
        about["sidecall.io/client"] = run.client
    if run.traceparent:
        about["traceparent"] = run.traceparent
    return about


def _broke_off(error: SessionLostError) -> ToolRunError:
    if not error.delivered:
        return ToolRunError(RunKind.CONNECT, "its server could not be reached")
    return ToolRunError(RunKind.CONNECT, "the connection to its server broke off")


def _reason(error: BaseException) -> str:
    """Why a session could not be opened, or ended, for the log."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case TimeoutError():
            return "it did not answer in time"
        case ToolRunError():
            return error.reason
        case SessionLostError():
            return "the connection broke off" if error.delivered else "it cannot be reached"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return type(error).__name__
