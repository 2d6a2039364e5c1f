"""Running proxy tools: bounded in number, time and size, and never raising."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from proxy.core.jsontext import Json, Object
from proxy.tools.mcp import McpServers, Pace
from proxy.tools.mcp_spec import McpServerSpec, McpSource, SessionLostError
from proxy.tools.python import load_function
from proxy.tools.run import NO_OUTPUT, ToolSet, cut
from proxy.tools.spec import (
    Advertise,
    Backend,
    Execution,
    HttpBackend,
    McpBackend,
    PythonBackend,
    RunKind,
    ToolOutcome,
    ToolRun,
    ToolSpec,
)
from proxy.tools.urltemplate import parse_template
from tests.tools.mcp_fakes import Net, command
from tests.tools.mcp_fakes import settle as fakes_settle

RUN = ToolRun("call_1", {}, "team-a", "key-1", "", "tenant")


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("my_tools")
    sys.modules["my_tools"] = made
    yield made
    del sys.modules["my_tools"]


def spec(name: str, backend: Backend, *, concurrency: int = 8, most: int = 1000) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="",
        parameters={},
        advertise=Advertise.NEVER,
        execution=Execution.ON_RETURN,
        idempotent=False,
        concurrency=concurrency,
        max_result_bytes=most,
        backend=backend,
    )


@pytest.fixture
def python(module: ModuleType) -> Callable[..., ToolSet]:
    """A set with the one tool `tool`, which is a function."""

    def build(function: object, *, timeout: float = 5.0, **bounds: int) -> ToolSet:
        module.function = function  # type: ignore[attr-defined]  # the module is made for this
        return ToolSet([spec("tool", PythonBackend(load_function("my_tools:function"), timeout), **bounds)])

    return build


class Gate:
    """An async tool that counts how many runs are in it, until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def __call__(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        self.inside -= 1
        return "ok"


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_run_gives_what_the_tool_gave(python: Callable[..., ToolSet]) -> None:
    """Specs are found by name."""
    tools = python(lambda: "shipped")
    assert list(tools.specs) == ["tool"]
    assert await tools.run("tool", RUN) == ToolOutcome("shipped", is_error=False, kind=RunKind.OK)


@pytest.mark.parametrize("value", ["", None])
async def test_an_empty_result_is_told_as_such(value: str | None, python: Callable[..., ToolSet]) -> None:
    """Models take an empty message for a mistake."""
    assert (await python(lambda: value).run("tool", RUN)).text == NO_OUTPUT == "(no output)"


async def test_a_tool_that_is_gone_is_an_error_result() -> None:
    """A call may be older than the configuration."""
    outcome = await ToolSet([]).run("old", RUN)
    assert outcome == ToolOutcome(
        "Tool old failed: there is no such tool any more", is_error=True, kind=RunKind.UNKNOWN
    )


async def test_a_failure_names_tool_and_kind(python: Callable[..., ToolSet]) -> None:
    """And nothing of what the tool said."""

    def broken() -> None:
        raise ValueError("hunter2")

    outcome = await python(broken).run("tool", RUN)
    assert outcome == ToolOutcome("Tool tool failed: it raised ValueError", is_error=True, kind=RunKind.EXCEPTION)


@pytest.mark.parametrize(("seconds", "shown"), [(0.02, "20ms"), (0.0, "0ms")])
async def test_a_run_that_takes_too_long_is_an_error_result(
    seconds: float, shown: str, python: Callable[..., ToolSet]
) -> None:
    """The time limit is told as it is configured."""
    outcome = await python(Gate(), timeout=seconds).run("tool", RUN)
    expected = ToolOutcome(f"Tool tool failed: it timed out after {shown}", is_error=True, kind=RunKind.TIMEOUT)
    assert outcome == expected


async def test_no_more_than_concurrency_run_at_once(python: Callable[..., ToolSet]) -> None:
    """The others wait for a place, and all run."""
    gate = Gate()
    tools = python(gate, concurrency=2)
    tasks = [asyncio.create_task(tools.run("tool", RUN)) for _ in range(5)]
    await settle()
    assert gate.inside == 2
    gate.open.set()
    assert [outcome.text for outcome in await asyncio.gather(*tasks)] == ["ok"] * 5
    assert gate.most == 2


async def test_a_cancelled_run_gives_its_place_back(python: Callable[..., ToolSet]) -> None:
    """Also one that was still waiting for a place."""
    gate = Gate()
    tools = python(gate, concurrency=1)
    tasks = [asyncio.create_task(tools.run("tool", RUN)) for _ in range(3)]
    await settle()
    for task in tasks[:2]:
        task.cancel()
    await settle()
    gate.open.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, asyncio.CancelledError, ToolOutcome]


async def test_a_thread_that_outlasts_its_time_keeps_its_place(python: Callable[..., ToolSet]) -> None:
    """Or a tool that hangs would take more and more threads."""
    go = threading.Event()
    tools = python(lambda: "ok" if go.wait(5) else "stuck", concurrency=1, timeout=0.02)
    assert (await tools.run("tool", RUN)).kind is RunKind.TIMEOUT
    second = asyncio.create_task(tools.run("tool", RUN))
    await asyncio.wait([second], timeout=0.05)
    assert not second.done()
    go.set()
    assert (await second).text == "ok"


async def test_a_long_result_is_cut_with_a_note(python: Callable[..., ToolSet]) -> None:
    """One that just fits is not."""
    assert (await python(lambda: "x" * 1000).run("tool", RUN)).text == "x" * 1000
    text = (await python(lambda: "x" * 1001).run("tool", RUN)).text
    assert text == "x" * 1000 + "\n(cut: the result was longer than 1000 bytes)"


@pytest.mark.parametrize(
    ("text", "most", "start"), [("éé", 3, "é\n"), ("\ud800a", 9, "?a"), ("ab", 2, "ab"), ("😀", 3, "\n")]
)
def test_a_cut_never_splits_a_character(text: str, most: int, start: str) -> None:
    """What the model gets is always Unicode text."""
    got = cut(text, most)
    assert got.startswith(start)
    got.encode()


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/slow":
            await asyncio.Event().wait()
        return web.Response(body="é".encode("utf-16") * 600, headers={"content-type": "text/plain; charset=utf-16"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    served = TestServer(app)
    await served.start_server(shutdown_timeout=0.1)
    yield served
    await served.close()


def http(server: TestServer, path: str, timeout: float = 5.0, **bounds: Any) -> ToolSet:
    backend = HttpBackend("GET", parse_template(f"http://127.0.0.1:{server.port}{path}"), (), timeout)
    return ToolSet([spec("tool", backend, **bounds)])


async def test_an_answer_that_was_not_read_to_its_end_is_told_so(server: TestServer) -> None:
    """Also where what was read is shorter in the encoding that the model gets."""
    tools = http(server, "/", most=2300)
    text = (await tools.run("tool", RUN)).text
    assert text.endswith("(cut: the result was longer than 2300 bytes)")
    await tools.close()


async def test_an_http_tool_that_takes_too_long_is_an_error_result(server: TestServer) -> None:
    """Its place is free again."""
    tools = http(server, "/slow", timeout=0.03, concurrency=1)
    for _ in range(2):
        assert (await tools.run("tool", RUN)).kind is RunKind.TIMEOUT
    await tools.close()


async def test_a_set_may_be_closed_twice_or_unused(server: TestServer) -> None:
    """Closing is for whoever replaced it, whatever became of it."""
    tools = http(server, "/")
    await tools.close()
    await tools.run("tool", RUN)
    await tools.close()
    await tools.close()


# ---------------------------------------------------------------- MCP servers

BROKE_OFF = "the connection to its server broke off"


def mcp_source(server: McpServerSpec, **change: Any) -> McpSource:
    return replace(
        McpSource(server, ("*",), "", 5.0, False, Advertise.NEVER, None, None, 8, 1000),
        **change,
    )


@pytest.fixture
async def pool() -> AsyncIterator[Callable[[Net], McpServers]]:
    """Makes pools of servers whose sessions reach a net; what is told of them is kept as `told`."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.get_running_loop().create_task(work))
        return tasks[-1]

    yield lambda net: McpServers(start, net.told, pace=Pace(looks=0.0, gap=0.0), open_session=net)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def test_tools_of_a_server_are_there_once_it_has_listed_them(pool: Callable[[Net], McpServers]) -> None:
    """Beside those that are declared, and with their own places."""
    net = Net(names=["search", "files.read"])
    tools = ToolSet([spec("own", HttpBackend("GET", parse_template("http://h"), (), 1.0))], [mcp_source(command())])
    assert (list(tools.specs), tools.is_empty) == (["own"], False)
    tools = await tools.opened(pool(net), wait=5.0)
    assert list(tools.specs) == ["own", "search", "files_read"]
    assert await tools.run("files_read", RUN) == ToolOutcome("files.read", is_error=False, kind=RunKind.OK)
    await tools.close()
    assert net.open == 0
    assert (await tools.run("files_read", RUN)).text == "Tool files_read failed: its server is not in use any more"
    await tools.close()


async def test_a_set_without_servers_opens_as_it_is(pool: Callable[[Net], McpServers]) -> None:
    """Nothing is asked."""
    tools = ToolSet([])
    assert await tools.opened(pool(Net()), wait=0.0) is tools
    assert tools.is_empty
    await tools.close()


async def test_a_set_does_not_wait_for_servers_for_ever(pool: Callable[[Net], McpServers]) -> None:
    """Their tools come later, in another set; a set is not changed."""
    net = Net(gate=asyncio.Event())
    servers = pool(net)
    tools = await ToolSet([], [mcp_source(command())]).opened(servers, wait=0.0)
    assert (list(tools.specs), tools.is_empty, tools.renewed()) == ([], False, tools)
    changed = asyncio.Event()
    servers.changed = changed.set
    assert net.gate is not None
    net.gate.set()
    await changed.wait()
    later = tools.renewed()
    assert (list(tools.specs), list(later.specs), later.renewed()) == ([], ["search"], later)
    await tools.close()
    assert net.open == 1
    await later.close()
    assert net.open == 0


async def test_of_two_tools_with_one_name_the_first_is_taken(pool: Callable[[Net], McpServers]) -> None:
    """A declared one before all others; it is told which ones are left out."""
    net = Net(names=["a", "b"])
    sources = [mcp_source(command(identity="1"), globs=("b",)), mcp_source(command("more", "2"), concurrency=1)]
    own = spec("a", HttpBackend("GET", parse_template("http://h"), (), 1.0))
    tools = await ToolSet([own], sources).opened(pool(net), wait=5.0)
    assert tools.specs["a"] is own
    assert tools.specs["b"].backend == McpBackend("1", "b", 5.0)
    left_out = [line for line in net.told.lines if line[0] == "left out"]
    assert left_out == [("left out", "more", name, "there is another tool of this name") for name in ("a", "b")]
    await tools.close()


async def test_an_mcp_tool_is_bounded_like_any_other(pool: Callable[[Net], McpServers]) -> None:
    """In number, over all sets of a configuration, and in size."""
    gate, inside, most = asyncio.Event(), 0, 0

    async def wait(tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1
        return {"content": [{"type": "text", "text": "x" * 2000}]}

    net = Net(answer=wait)
    tools = await ToolSet([], [mcp_source(command(), concurrency=2)]).opened(pool(net), wait=5.0)
    net.names.append("other")
    net.sessions[0].change()
    await fakes_settle()
    later = tools.renewed()
    assert later is not tools
    runs = [asyncio.ensure_future(one.run("search", RUN)) for one in (tools, tools, later, later)]
    await fakes_settle()
    gate.set()
    assert {(await run).text for run in runs} == {f"{'x' * 1000}\n(cut: the result was longer than 1000 bytes)"}
    assert most == 2
    await tools.close()
    await later.close()


async def test_an_mcp_tool_that_takes_too_long_is_an_error_result(pool: Callable[[Net], McpServers]) -> None:
    """Its place is free again, and its server is asked whether it is there."""

    async def hang(tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        await asyncio.Event().wait()
        raise AssertionError

    net = Net(answer=hang)
    tools = await ToolSet([], [mcp_source(command(), timeout=0.01, concurrency=1)]).opened(pool(net), wait=5.0)
    for _ in range(2):
        outcome = await tools.run("search", RUN)
        assert outcome == ToolOutcome(
            "Tool search failed: it timed out after 10ms", is_error=True, kind=RunKind.TIMEOUT
        )
    assert net.sessions[0].doubts == 2
    await tools.close()


@pytest.mark.parametrize(("idempotent", "text"), [(True, "search"), (False, f"Tool search failed: {BROKE_OFF}")])
async def test_only_an_idempotent_mcp_tool_runs_twice(
    idempotent: bool, text: str, pool: Callable[[Net], McpServers]
) -> None:
    """When its server dies in the middle of a call."""
    net = Net()

    async def once(tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        if len(net.calls) == 1:
            net.sessions[0].lose()
            raise SessionLostError(delivered=True)
        return {"content": [{"type": "text", "text": tool}]}

    net.answer = once
    tools = await ToolSet([], [mcp_source(command(), idempotent=idempotent)]).opened(pool(net), wait=5.0)
    assert (await tools.run("search", RUN)).text == text
    await tools.close()
