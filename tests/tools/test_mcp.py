"""MCP servers: sessions kept open, lists kept up to date, calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from proxy.core.jsontext import Json, Object
from proxy.tools.mcp import McpServer, McpServers, Pace
from proxy.tools.mcp_spec import McpServerSpec, SessionLostError
from proxy.tools.spec import McpBackend, RunKind, ToolRun, ToolRunError
from tests.tools.mcp_fakes import Net, Told, command, said, settle, tool, url

BACKEND = McpBackend("1", "search", 5.0)
RUN = ToolRun("call_1", {"q": "x"}, "team-a", "key-1", "00-trace", "tenant")
PATIENT = Pace(gap=0.0, shortest=3600.0, longest=3600.0, heartbeat=3600.0, looks=0.0)
"""The next try after one that failed comes when a call wants it."""


class Pool:
    def __init__(self, net: Net, pace: Pace) -> None:
        self.told = Told()
        self.tasks: list[asyncio.Task[None]] = []
        self.servers = McpServers(self._start, self.told, pace=pace, open_session=net)
        self.changes = 0
        self.servers.changed = self._change

    def _start(self, work: object) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
        self.tasks.append(task)
        assert isinstance(task, asyncio.Task)
        return task

    def _change(self) -> None:
        self.changes += 1


@asynccontextmanager
async def kept(
    net: Net, spec: McpServerSpec | None = None, pace: Pace = PATIENT
) -> AsyncIterator[tuple[McpServer, Pool]]:
    pool = Pool(net, pace)
    server = pool.servers.hold(spec or command())
    try:
        yield server, pool
    finally:
        for task in pool.tasks:
            task.cancel()
        await asyncio.wait(pool.tasks)


async def failure(server: McpServer, *, may_repeat: bool = False) -> tuple[RunKind, str]:
    with pytest.raises(ToolRunError) as caught:
        await server.call(BACKEND, RUN, may_repeat=may_repeat)
    return caught.value.kind, caught.value.reason


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


# ---------------------------------------------------------------- calls


async def test_a_call_is_sent_with_what_it_is_about() -> None:
    """For whom, and how to know it again; a session serves many calls."""
    net = Net()
    async with kept(net) as (server, _):
        assert [await server.call(BACKEND, RUN, may_repeat=False) for _ in range(2)] == ["search", "search"]
    about = {
        "sidecall.io/callId": "call_1",
        "sidecall.io/idempotencyKey": "key-1",
        "sidecall.io/client": "team-a",
        "traceparent": "00-trace",
    }
    assert net.calls == [("search", {"q": "x"}, about)] * 2
    assert net.tries == 1


async def test_what_is_not_known_of_a_call_is_not_told() -> None:
    """Callers may be nameless, and untraced."""
    net = Net()
    async with kept(net) as (server, _):
        await server.call(BACKEND, ToolRun("call_1", {}, "", "key-1", "", "tenant"), may_repeat=False)
    assert net.calls[0][2] == {"sidecall.io/callId": "call_1", "sidecall.io/idempotencyKey": "key-1"}


async def test_an_error_of_a_tool_is_told_without_secrets() -> None:
    """What the server was given does not come back."""

    async def answer(tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        return {**await said((arguments and "not with hunter22") or ""), "isError": True}

    net = Net(answer=answer)
    async with kept(net, command(TOKEN="hunter22")) as (server, _):
        assert await failure(server) == (RunKind.TOOL, "not with ***")
        silent = ToolRun("call_1", {}, "", "key-1", "", "tenant")
        with pytest.raises(ToolRunError, match="it does not say why"):
            await server.call(BACKEND, silent, may_repeat=False)


class Losing:
    """An answer that loses the session a number of times first."""

    def __init__(self, net: Net, times: int, *, delivered: bool) -> None:
        self._net = net
        self._times = times
        self._delivered = delivered

    async def __call__(self, tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        if self._times:
            self._times -= 1
            self._net.sessions[-1].lose()
            raise SessionLostError(delivered=self._delivered)
        return await said("done")


@pytest.mark.parametrize(
    ("delivered", "may_repeat", "times", "end", "calls"),
    [
        (False, False, 1, "done", 2),
        (False, True, 1, "done", 2),
        (True, True, 1, "done", 2),
        (True, False, 1, "the connection to its server broke off", 1),
        (True, True, 2, "the connection to its server broke off", 2),
        (False, False, 2, "its server could not be reached", 2),
    ],
)
async def test_a_call_is_sent_again_once_where_that_is_safe(
    delivered: bool, may_repeat: bool, times: int, end: str, calls: int
) -> None:
    """When the server never had it, or when the tool is idempotent."""
    net = Net()
    net.answer = Losing(net, times, delivered=delivered)
    async with kept(net) as (server, _):
        await server.first_attempt()
        if end == "done":
            assert await server.call(BACKEND, RUN, may_repeat=may_repeat) == "done"
        else:
            assert await failure(server, may_repeat=may_repeat) == (RunKind.CONNECT, end)
    assert (len(net.calls), len(net.sessions)) == (calls, calls if end == "done" else len(net.sessions))


async def test_a_call_finds_a_server_that_died_between_two_calls() -> None:
    """It waits for the new session."""
    net = Net()
    async with kept(net) as (server, pool):
        await server.call(BACKEND, RUN, may_repeat=False)
        net.sessions[0].lose()
        assert await server.call(BACKEND, RUN, may_repeat=False) == "search"
        assert len(net.sessions) == 2
        assert pool.told.lines == [
            ("down", "files", ""),
            ("up", "files", "1"),
            ("down", "files", "the session ended"),
            ("up", "files", "1"),
        ]


# ---------------------------------------------------------------- servers that are away


async def test_a_call_to_a_server_that_is_away_has_it_tried_at_once() -> None:
    """Without a call it is tried when the pause is over."""
    net = Net(failure=ConnectionRefusedError(111, "Connection refused"))
    async with kept(net) as (server, pool):
        await server.first_attempt()
        await settle()
        assert (net.tries, pool.told.lines[-1]) == (1, ("down", "files", "Connection refused"))
        assert await failure(server) == (RunKind.CONNECT, "its server could not be reached")
        assert net.tries == 2
        net.failure = None
        assert await server.call(BACKEND, RUN, may_repeat=False) == "search"
        assert (net.tries, server.tools) == (3, (tool("search"),))


async def test_calls_do_not_have_a_server_tried_more_often_than_that() -> None:
    """One that crashes at its start is not started for each of them."""
    net = Net(failure=OSError())
    async with kept(net, pace=Pace(gap=3600.0)) as (server, _):
        await server.first_attempt()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await server.call(BACKEND, RUN, may_repeat=False)
        assert net.tries == 1


async def test_calls_that_wait_share_a_try() -> None:
    """However many they are."""
    net = Net(gate=asyncio.Event(), failure=OSError())
    async with kept(net) as (server, _):
        assert net.gate is not None
        waiting = [asyncio.ensure_future(failure(server)) for _ in range(5)]
        await settle()
        net.gate.set()
        assert {await one for one in waiting} == {(RunKind.CONNECT, "its server could not be reached")}
        assert net.tries == 1


async def test_a_server_comes_back_by_itself() -> None:
    """Nobody has to call it; the pauses end."""
    net = Net(failure=OSError())
    async with kept(net, pace=Pace(gap=0.0, shortest=0.001, longest=0.004)) as (server, _):
        await until(lambda: net.tries >= 5)
        net.failure = None
        await until(lambda: bool(server.tools))


async def test_pauses_grow_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that crashes as soon as it is there is not started as fast as it can be."""
    waits: list[float] = []
    done, net, pause = asyncio.Event(), Net(failure=OSError()), asyncio.timeout

    def timeout(seconds: float | None) -> asyncio.Timeout:
        if seconds is None or seconds == Pace().opening:
            return pause(seconds)
        waits.append(seconds)
        if len(waits) == 10:
            done.set()
        return pause(0)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    async with kept(net, pace=Pace(gap=0.0, shortest=60.0, longest=500.0)):
        await done.wait()
    assert waits[:5] == [60.0, 120.0, 240.0, 480.0, 500.0]
    assert waits[9] == 500.0


async def test_a_server_that_does_not_open_in_time_is_away() -> None:
    """It is closed, and tried again later."""
    net = Net(gate=asyncio.Event())
    async with kept(net, pace=Pace(opening=0.01)) as (server, pool):
        await server.first_attempt()
        await settle()
        assert (pool.told.lines[-1], net.open) == (("down", "files", "it did not answer in time"), 0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ExceptionGroup("", [ExceptionGroup("", [FileNotFoundError(2, "No such file or directory")])]),
            "No such file or directory",
        ),
        (ToolRunError(RunKind.CONNECT, "its command ended with status 3"), "its command ended with status 3"),
        (SessionLostError(delivered=False), "it cannot be reached"),
        (SessionLostError(delivered=True), "the connection broke off"),
        (RuntimeError("with hunter22"), "RuntimeError"),
        (OSError("hunter22"), "OSError"),
        (ToolRunError(RunKind.HTTP, "not with hunter22"), "not with ***"),
    ],
)
async def test_the_reason_is_told_without_secrets(error: Exception, reason: str) -> None:
    """What is not written by us is told by its class."""
    async with kept(Net(failure=error), command(TOKEN="hunter22")) as (server, pool):
        await server.first_attempt()
        await settle()
        assert pool.told.lines[-1] == ("down", "files", reason)


async def test_who_waits_for_a_server_that_is_let_go_is_told() -> None:
    """Nobody opens a session any more."""
    net = Net(gate=asyncio.Event())
    async with kept(net) as (server, pool):
        waiting = asyncio.ensure_future(failure(server))
        await settle()
        await pool.servers.let_go(server)
        assert await waiting == (RunKind.CONNECT, "its server could not be reached")
        assert await failure(server) == (RunKind.CONNECT, "its server could not be reached")
        await server.first_attempt()


# ---------------------------------------------------------------- lists


async def test_a_change_of_the_list_is_told_once() -> None:
    """The same list again is no change."""
    net = Net()
    async with kept(net) as (server, pool):
        await server.first_attempt()
        assert pool.changes == 1
        net.sessions[0].change()
        await until(lambda: net.sessions[0].looks == 2)
        assert pool.changes == 1
        net.names.append("read")
        net.sessions[0].change()
        await until(lambda: pool.changes == 2)
        assert server.tools == (tool("search"), tool("read"))


async def test_changes_in_a_row_are_looked_at_together() -> None:
    """A server that never stops to tell does not keep us busy."""
    net = Net()
    async with kept(net, pace=Pace(looks=3600.0)) as (server, _):
        await server.first_attempt()
        for _ in range(3):
            net.sessions[0].change()
            await settle()
        assert net.sessions[0].looks == 2


async def test_a_list_is_read_again_in_each_session() -> None:
    """While the server is away, what it listed before stays."""
    net = Net()
    async with kept(net) as (server, pool):
        await server.first_attempt()
        net.failure, net.names = OSError(), ["other"]
        net.sessions[0].lose()
        await settle()
        assert server.tools == (tool("search"),)
        net.failure = None
        await server.call(BACKEND, RUN, may_repeat=False)
        assert (server.tools, pool.changes) == ((tool("other"),), 2)


async def test_a_server_over_http_is_asked_now_and_then() -> None:
    """Nobody hears that it has gone; one that does not answer is away."""
    net = Net()
    async with kept(net, url(), pace=Pace(gap=0.0, shortest=0.0, heartbeat=0.001, looks=0.0)) as (_, pool):
        await until(lambda: bool(net.sessions) and net.sessions[0].looks > 3)
        net.failure = OSError()

        async def refuse() -> None:
            raise ConnectionResetError(104, "Connection reset by peer")

        net.listing = refuse
        await until(lambda: ("down", "docs", "Connection reset by peer") in pool.told.lines)


async def test_a_server_over_http_that_works_is_not_asked() -> None:
    """It may be too busy to answer."""
    net = Net()
    async with kept(net, url(), pace=Pace(heartbeat=0.001)) as (server, _):
        await server.first_attempt()
        net.sessions[0].is_busy = True
        await asyncio.sleep(0.02)
        assert net.sessions[0].looks == 1


async def test_a_server_that_hangs_is_started_anew() -> None:
    """After a call that took too long it is asked whether it is there."""
    net, hang = Net(), asyncio.Event()
    async with kept(net, pace=Pace(answer=0.01, gap=0.0, shortest=0.0, looks=0.0)) as (server, pool):
        await server.first_attempt()
        server.overdue()
        await until(lambda: net.sessions[0].looks == 2)
        assert net.open == 1

        async def never() -> None:
            if len(net.sessions) == 1:
                await hang.wait()

        net.listing = never
        server.overdue()
        await until(lambda: len(net.sessions) == 2)
        assert ("down", "files", "it did not answer in time") in pool.told.lines


# ---------------------------------------------------------------- the pool


async def test_a_server_is_kept_as_long_as_somebody_holds_it() -> None:
    """Two configurations that reach it in the same way share its session."""
    net = Net()
    async with kept(net) as (server, pool):
        await server.first_attempt()
        assert pool.servers.hold(command()) is server
        await pool.servers.let_go(server)
        assert (net.open, await server.call(BACKEND, RUN, may_repeat=False)) == (1, "search")
        await pool.servers.let_go(server)
        assert (net.open, pool.told.lines[-1]) == (0, ("gone", "files"))


async def test_a_server_that_is_reached_otherwise_keeps_its_name() -> None:
    """The old one goes in silence."""
    net = Net()
    async with kept(net) as (server, pool):
        other = pool.servers.hold(command(identity="9"))
        assert other is not server
        await other.first_attempt()
        await pool.servers.let_go(server)
        assert ("gone", "files") not in pool.told.lines


async def test_what_a_server_says_is_told_without_secrets() -> None:
    """Beside its messages."""
    net = Net()
    async with kept(net, command(TOKEN="hunter22")) as (server, pool):
        await server.first_attempt()
        assert net.heard is not None
        net.heard("using hunter22")
        pool.servers.left_out("files", "x", "why")
        assert pool.told.lines[-2:] == [("said", "files", "using ***"), ("left out", "files", "x", "why")]
