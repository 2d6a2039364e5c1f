"""Sessions with servers of the package `mcp`, and with one that others wrote."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.core.jsontext import Json
from proxy.tools.mcp_results import result_text
from proxy.tools.mcp_session import Session, open_session
from proxy.tools.mcp_spec import ListedTool, McpCommand, McpServerSpec, SessionLostError
from proxy.tools.spec import RunKind, ToolRunError
from tests.tools.mcp_processes import free_port, packaged, plain, served, serving

KINDS = ["stdio", "http", "handshake"]


@asynccontextmanager
async def opened(server: McpServerSpec) -> AsyncIterator[Session]:
    async with open_session(server, lost=lambda: None, heard=lambda line: None) as session:
        yield session


@asynccontextmanager
async def reached(kind: str) -> AsyncIterator[Session]:
    """A session with the tests' own server."""
    if kind == "stdio":
        async with opened(packaged()) as session:
            yield session
        return
    port = free_port()
    async with serving(port, handshake=kind == "handshake"), opened(served(port)) as session:
        yield session


async def call(session: Session, tool: str, **arguments: Json) -> tuple[str, bool]:
    return result_text(await session.call(tool, arguments, {}))


async def failure(session: Session, tool: str, **arguments: Json) -> tuple[RunKind, str]:
    with pytest.raises(ToolRunError) as caught:
        await session.call(tool, arguments, {})
    return caught.value.kind, caught.value.reason


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_lists_its_tools_runs_them_and_tells_of_changes(kind: str) -> None:
    """On standard input and over HTTP, with the newest protocol and with the handshake of older ones. A call that is
    given up leaves the session whole."""
    async with reached(kind) as session:
        tools = {tool.name: tool for tool in await session.tools()}
        assert list(tools) == ["add", "parts", "wait", "fail", "process", "grow"]
        add = tools["add"]
        assert (add.description, add.read_only, add.idempotent) == ("Adds.", True, True)
        assert add.parameters["required"] == ["a", "b"]
        assert (tools["wait"].read_only, tools["wait"].idempotent) == (False, False)
        assert await call(session, "add", a=2, b=3) == ("5", False)
        assert await call(session, "parts") == ("one\n(image, image/png, 3 bytes)\ntwo", False)
        assert await call(session, "fail") == ("Error executing tool fail: there is no such order", True)
        text, is_error = await call(session, "add", a="x")
        assert (is_error, "b\n" in text) == (True, True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await call(session, "wait", seconds=60)
        both = await asyncio.gather(call(session, "add", a=1, b=1), call(session, "add", a=2, b=2))
        assert (*both,) == (("2", False), ("4", False))
        await call(session, "grow", name="new")
        assert await session.news(5.0)
        assert [tool.name for tool in await session.tools()][-1] == "new"
        assert await call(session, "new") == ("grown", False)
        assert (session.is_busy, session.is_lost) == (False, False)


@pytest.mark.parametrize("handshake", [False, True])
async def test_a_server_that_is_killed_loses_the_call_in_flight(handshake: bool) -> None:
    """It may have begun; the next one finds nobody."""
    port = free_port()
    async with serving(port, handshake=handshake) as process, opened(served(port)) as session:
        waiting = asyncio.ensure_future(session.call("wait", {"seconds": 60}, {}))
        while not session.is_busy:
            await asyncio.sleep(0)
        assert await call(session, "add", a=2, b=3) == ("5", False)  # by now the first one has begun
        process.kill()
        process.join()
        with pytest.raises(SessionLostError) as caught:
            await waiting
        assert caught.value.delivered
        assert await session.news(5.0)
        with pytest.raises(SessionLostError) as caught:
            await call(session, "add", a=2, b=3)
        assert (caught.value.delivered, session.is_lost) == (False, True)


async def test_a_server_that_was_restarted_does_not_know_the_session() -> None:
    """It never began, so that the call may be sent again in a new one: its caller learns that before all else ends."""
    port, lost = free_port(), asyncio.Event()
    async with serving(port, handshake=True) as first:
        async with open_session(served(port), lost=lost.set, heard=lambda line: None) as session:
            assert await call(session, "add", a=2, b=3) == ("5", False)
            first.kill()
            first.join()
            async with serving(port, handshake=True):
                calling = asyncio.ensure_future(call(session, "add", a=2, b=3))
                await lost.wait()
                assert session.is_lost
        with pytest.raises(SessionLostError) as caught:
            await calling
        assert not caught.value.delivered


async def test_a_server_that_is_not_there_is_not_reached() -> None:
    """At once."""
    with pytest.raises(SessionLostError):
        async with opened(served(free_port())):
            raise AssertionError


async def test_a_call_says_what_it_is_about() -> None:
    """Beside its arguments."""
    async with opened(plain("about")) as session:
        text, _ = result_text(await session.call("about", {}, {"sidecall.io/client": "team-a", "traceparent": "00-1"}))
    assert json.loads(text) == {"sidecall.io/client": "team-a", "traceparent": "00-1"}


async def test_arguments_arrive_as_they_are() -> None:
    """Nothing is left out, and numbers are whole."""
    arguments: dict[str, Json] = {"none": None, "deep": [{"none": None}], "big": 2**70, "half": 0.5, "text": "é\u2028"}
    async with opened(plain("echo")) as session:
        text, _ = await call(session, "echo", **arguments)
    assert json.loads(text.removeprefix("echo ")) == arguments


async def test_arguments_that_cannot_be_written_are_refused() -> None:
    """They would end the session, with all calls in it."""
    async with opened(plain("echo")) as session:
        assert await failure(session, "echo", a="\ud800") == (RunKind.ARGUMENTS, "its arguments are not Unicode text")
        assert (await call(session, "echo"))[0] == "echo {}"


async def test_a_result_that_is_none_is_told_as_such() -> None:
    """The session goes on."""
    async with opened(plain("nothing", "echo")) as session:
        assert await failure(session, "nothing") == (RunKind.RESULT, "its server gave no result that can be read")
        assert (await call(session, "echo"))[0] == "echo {}"


async def test_what_a_server_says_of_an_error_is_shown_where_it_is_about_arguments() -> None:
    """It may hold anything otherwise."""
    async with opened(script(REFUSING)) as session:
        assert await session.tools() == ()
        assert await failure(session, "-32602") == (RunKind.PROTOCOL, "q is missing")
        assert await failure(session, "-32000") == (RunKind.PROTOCOL, "its server refused the call (error -32000)")


def script(text: str, *words: str) -> McpServerSpec:
    return McpServerSpec("files", "1", McpCommand((sys.executable, "-c", text, *words), (), None))


REFUSING = """
import json, sys
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "r", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"error": {"code": int(asked.get("params", {}).get("name", -32601)), "message": "q is missing"}}
    if asked["method"] == "initialize":
        answer = {"result": HELLO}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""

PAGED = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    cursor = int((asked.get("params") or {}).get("cursor", 0))
    tools = [{"name": f"tool_{cursor}_{n}", "inputSchema": {"type": "object"}} for n in range(int(sys.argv[1]))]
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "p", "version": "1"}}
        case "tools/list":
            result = {"tools": tools, "nextCursor": str(cursor + 1)}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(("on_a_page", "count"), [(1, 50), (30, 1000)])
async def test_a_list_has_an_end(on_a_page: int, count: int) -> None:
    """Pages are turned, but not for ever."""
    async with opened(script(PAGED, str(on_a_page))) as session:
        tools = await session.tools()
    assert (len(tools), tools[on_a_page].name) == (count, "tool_1_0")
    assert tools[0] == ListedTool("tool_0_0", "", {"type": "object"}, False, False)


async def test_a_server_that_others_wrote_works() -> None:
    """It knows what time it is."""
    words = (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")
    async with opened(McpServerSpec("time", "1", McpCommand(words, (), None))) as session:
        assert [tool.name for tool in await session.tools()] == ["get_current_time", "convert_time"]
        arguments = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "UTC"}
        text, is_error = result_text(await session.call("convert_time", dict(arguments), {}))
        assert (json.loads(text)["source"]["timezone"], is_error) == ("Europe/Berlin", False)
        text, is_error = await call(session, "get_current_time", timezone="Nowhere/At_All")
        assert (is_error, "Nowhere/At_All" in text) == (True, True)
