"""MCP servers without a network: sessions that a test opens, loses and answers for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from proxy.core.jsontext import Json, Object
from proxy.tools.mcp_spec import Heard, ListedTool, Lost, McpCommand, McpServerSpec, McpUrl

Answering = Callable[[str, Object, Object], Awaitable[Mapping[str, Json]]]


def tool(name: str) -> ListedTool:
    return ListedTool(name, "", {"type": "object", "properties": {}}, False, False)


def command(name: str = "files", identity: str = "1", **env: str) -> McpServerSpec:
    variables = tuple((key, lambda value=value: value) for key, value in env.items())
    return McpServerSpec(name, identity, McpCommand(("x",), variables, None))


def url(name: str = "docs", identity: str = "2") -> McpServerSpec:
    return McpServerSpec(name, identity, McpUrl("http://h/mcp", ()))


async def said(text: str) -> Mapping[str, Json]:
    return {"content": [{"type": "text", "text": text}]}


class Session:
    """One session; `answer` is asked for each call."""

    def __init__(self, net: Net, lost: Lost) -> None:
        self._net = net
        self._lost = lost
        self._news = asyncio.Event()
        self.is_lost = False
        self.is_busy = False
        self.doubts = 0
        self.looks = 0

    def lose(self) -> None:
        self.is_lost = True
        self._lost()
        self._news.set()

    def doubt(self) -> None:
        self.doubts += 1
        self._news.set()

    def change(self) -> None:
        self._news.set()

    async def tools(self) -> tuple[ListedTool, ...]:
        self.looks += 1
        if self._net.listing is not None:
            await self._net.listing()
        return tuple(map(tool, self._net.names))

    async def call(self, tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        self._net.calls.append((tool, arguments, about))
        return await self._net.answer(tool, arguments, about)

    async def news(self, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


async def _echo(tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
    return await said(tool)


@dataclass
class Net:
    """What sessions reach. `failure` is raised when one is opened; `gate` is waited for before."""

    names: list[str] = field(default_factory=lambda: ["search"])
    failure: Exception | None = None
    gate: asyncio.Event | None = None
    listing: Callable[[], Awaitable[None]] | None = None
    answer: Answering = _echo
    calls: list[tuple[str, Object, Object]] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    tries: int = 0
    open: int = 0
    heard: Heard | None = None
    told: Told = field(default_factory=lambda: Told())

    @asynccontextmanager
    async def __call__(self, server: McpServerSpec, *, lost: Lost, heard: Heard) -> AsyncIterator[Session]:
        self.tries += 1
        self.heard = heard
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        session = Session(self, lost)
        self.sessions.append(session)
        self.open += 1
        try:
            yield session
        finally:
            self.open -= 1


@dataclass
class Told:
    """What is told of servers."""

    lines: list[tuple[str, ...]] = field(default_factory=list)

    def up(self, server: str, tools: int) -> None:
        self.lines.append(("up", server, str(tools)))

    def down(self, server: str, reason: str) -> None:
        self.lines.append(("down", server, reason))

    def gone(self, server: str) -> None:
        self.lines.append(("gone", server))

    def left_out(self, server: str, tool: str, reason: str) -> None:
        self.lines.append(("left out", server, tool, reason))

    def said(self, server: str, line: str) -> None:
        self.lines.append(("said", server, line))


async def settle(turns: int = 30) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
