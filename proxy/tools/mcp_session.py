"""Sessions of MCP servers with the package `mcp`: opened, listed, followed and called.

Rules: a session is opened and closed in one task, as the task groups of the package want it. A result is not held
against the schema that its server declares: that is for whom it is meant, and such schemas may be made to take long.
No server is given a say about this process: nothing is sampled, elicited or listed for one. Must not know who calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy import __version__
from proxy.core.jsontext import Json, Object, parse, render
from proxy.tools.mcp_http import STATUS, UNFINISHED, UNREADABLE, open_client
from proxy.tools.mcp_process import MESSAGE_BYTES, UNDELIVERED, run_command
from proxy.tools.mcp_results import without_trace
from proxy.tools.mcp_spec import Heard, ListedTool, Lost, McpCommand, McpServerSpec, McpUrl, SessionLostError
from proxy.tools.spec import RunKind, ToolRunError

_PAGES = 50
_MOST_TOOLS = 1000
_REST_SECONDS = 1.0
_REOPEN_SECONDS = (1.0, 30.0)


@asynccontextmanager
async def open_session(server: McpServerSpec, *, lost: Lost, heard: Heard) -> AsyncIterator[Session]:
    """A session that is ready for calls. Raises ToolRunError, OSError, SessionLostError and what else a broken server
    makes the package raise."""
    session = Session(lost)
    async with AsyncExitStack() as stack:
        match server.reach:
            case McpUrl() as reach:
                http = await stack.enter_async_context(await open_client(reach, lost=session.end))
                transport = streamable_http_client(reach.url, http_client=http, max_sse_event_size=MESSAGE_BYTES)
            case McpCommand() as reach:
                transport = run_command(reach, lost=session.end, heard=heard)
        client = Client(
            transport,
            cache=None,
            client_info=Implementation(name="sidecall", version=__version__),
            message_handler=session.note,
        )
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as error:
            raise _why(error) from error
        session.begin(client)
        stack.callback(session.end)
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS and session.tells_changes:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(session.listen)
        yield session
        await session.rest()


class Session:
    """One session."""

    def __init__(self, lost: Lost) -> None:
        self.is_lost = False
        self._lost = lost
        self._client: Client | None = None
        self._news = asyncio.Event()
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, client: Client) -> None:
        self._client = client

    def end(self) -> None:
        """Nothing can be asked any more."""
        self.is_lost = True
        self._lost()
        self._news.set()

    def doubt(self) -> None:
        self._news.set()

    async def rest(self) -> None:
        """Until what is on its way has come, such as the very answer by which the session was found to be lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REST_SECONDS):
                await self._idle.wait()

    @property
    def is_busy(self) -> bool:
        return self._calls > 0

    @property
    def tells_changes(self) -> bool:
        tools = self._opened.server_capabilities.tools
        return tools is not None and tools.list_changed is True

    async def news(self, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def note(self, message: IncomingMessage) -> None:
        """What the server tells without being asked."""
        if isinstance(message, ToolListChangedNotification):
            self._news.set()

    async def listen(self) -> None:
        """Keep a subscription to changes open. While there is none, something may be missed."""
        pause, longest = _REOPEN_SECONDS
        while True:
            with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError):
                async with self._opened.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._news.set()
            await anyio.sleep(pause)
            pause = min(longest, pause * 2)
            self._news.set()

    async def tools(self) -> tuple[ListedTool, ...]:
        found: list[Tool] = []
        cursor: str | None = None
        try:
            for _ in range(_PAGES):
                page = await self._opened.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor or len(found) >= _MOST_TOOLS:
                    break
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise _failure(error) from error
        return tuple(_listed(tool) for tool in found[:_MOST_TOOLS])

    async def call(self, tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        if self.is_lost:
            raise SessionLostError(delivered=False)
        if not _is_text(arguments):
            raise ToolRunError(RunKind.ARGUMENTS, "its arguments are not Unicode text")
        params = CallToolRequestParams.model_validate({"name": tool, "arguments": arguments, "_meta": about})
        self._calls += 1
        self._idle.clear()
        try:
            result = await self._opened.session.send_request(CallToolRequest(params=params), CallToolResult)
        except MCPError as error:
            if _is_broken(error):
                self.doubt()
            raise _failure(error) from error
        except ValueError as error:
            raise ToolRunError(RunKind.RESULT, "its server gave no result that can be read") from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
        found: Mapping[str, Json] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return found

    @property
    def _opened(self) -> Client:
        assert self._client is not None, "a session is used once it has begun"
        return self._client


def _listed(tool: Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=tool.input_schema,
        read_only=hints is not None and hints.read_only_hint is True,
        idempotent=hints is not None and hints.idempotent_hint is True,
    )


def _is_text(arguments: Object) -> bool:
    """Whether every character can be written: what cannot would end the session, with all calls in it."""
    try:
        parse(render(arguments))
    except ValueError:
        return False
    return True


def _why(error: MCPError | ExceptionGroup[Exception]) -> Exception:
    """The reason at the bottom of why no session could be opened."""
    inner: Exception = error
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return _failure(inner) if isinstance(inner, MCPError) else inner


def _is_broken(error: MCPError) -> bool:
    """Whether a connection has ended. The package has no code of its own for that: servers use the same for others."""
    if error.code == CONNECTION_CLOSED:
        return error.message == "Connection closed" or error.message.startswith("SSE stream")
    return error.code == UNFINISHED


def _failure(error: MCPError) -> SessionLostError | ToolRunError:
    """What an error of the protocol means for a call. What a server says of it is shown where it is about the
    arguments, so that the model can do better; it may hold anything otherwise."""
    match error.code:
        case code if code == UNDELIVERED:
            return SessionLostError(delivered=False)
        case _ if _is_broken(error):
            return SessionLostError(delivered=True)
        case code if code == STATUS:
            return ToolRunError(RunKind.HTTP, f"its server answered with HTTP status {error.data}")
        case code if code in (PARSE_ERROR, UNREADABLE):
            return ToolRunError(RunKind.RESULT, "its server gave no result that can be read")
        case code if code == INVALID_PARAMS:
            return ToolRunError(RunKind.PROTOCOL, without_trace(error.message)[:1000] or "its arguments were refused")
        case code:
            return ToolRunError(RunKind.PROTOCOL, f"its server refused the call (error {code})")
