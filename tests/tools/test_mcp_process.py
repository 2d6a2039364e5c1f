"""MCP servers that are commands: their environment, their messages, their end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace

import pytest

from proxy.core.jsontext import Json
from proxy.tools import mcp_process, mcp_session
from proxy.tools.mcp_results import result_text
from proxy.tools.mcp_session import Session, open_session
from proxy.tools.mcp_spec import McpCommand, McpServerSpec, SessionLostError
from proxy.tools.spec import RunKind, ToolRunError
from tests.tools.mcp_processes import gone, is_there, killed, plain

KILLED = "its command ended with status -9"


@dataclass
class Opened:
    session: Session
    heard: list[str]
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, tool: str, **arguments: Json) -> str:
        return result_text(await self.session.call(tool, arguments, {}))[0]


@asynccontextmanager
async def opened(server: McpServerSpec, *, ends: str = "") -> AsyncIterator[Opened]:
    """`ends`: the process ends by itself, and how that is told."""
    heard: list[str] = []
    lost = asyncio.Event()
    with pytest.raises(ToolRunError, match=ends) if ends else nullcontext():
        async with open_session(server, lost=lost.set, heard=heard.append) as session:
            yield Opened(session, heard, lost)


async def test_a_command_gets_the_variables_of_its_entry_and_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of ours, however harmless; an own PATH counts."""
    monkeypatch.setenv("OPENAI_API_KEY", "hunter22")
    async with opened(plain("environment", TOKEN="t")) as server:
        found = json.loads(await server.call("environment"))
    # What begins so is set by the interpreter itself, for its locale.
    assert {name: value for name, value in found.items() if not name.startswith("LC_")} == {
        "PATH": os.environ["PATH"],
        "TOKEN": "t",
    }
    async with opened(plain("environment", PATH="/bin")) as server:
        assert json.loads(await server.call("environment"))["PATH"] == "/bin"


async def test_what_is_no_message_is_left_out() -> None:
    """Some servers print."""
    async with opened(plain("noise")) as server:
        assert await server.call("noise", a=1) == 'noise {"a": 1}'
        assert await server.call("noise") == "noise {}"


async def test_what_it_writes_to_standard_error_is_heard() -> None:
    """Line by line, up to a bound."""
    async with opened(plain("talk")) as server:
        await server.call("talk", words="hello\n\nthere")
        await server.call("talk", words="x" * 5000)
        async with asyncio.timeout(5):
            while len(server.heard) < 3:
                await asyncio.sleep(0.005)
        assert server.heard[:2] == ["hello", "there"]
        assert server.heard[2] == "x" * 2000


async def test_a_large_message_comes_through() -> None:
    """In both directions."""
    async with opened(plain("long", "echo")) as server:
        assert len(await server.call("long", bytes=3_000_000)) == 3_000_000
        assert len(await server.call("echo", words="x" * 1_000_000)) > 1_000_000


async def test_a_message_beyond_the_bound_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing holds more of it."""
    monkeypatch.setattr(mcp_process, "MESSAGE_BYTES", 10_000)
    async with opened(plain("long")) as server:
        assert len(await server.call("long", bytes=9_000)) == 9_000
        with pytest.raises(SessionLostError) as caught:
            await server.call("long", bytes=100_000)
        assert caught.value.delivered
        assert server.session.is_lost


async def test_a_call_in_flight_ends_with_the_process() -> None:
    """It may have begun. In the end it is told how the process ended."""
    async with opened(plain("die"), ends="its command ended with status 3") as server:
        with pytest.raises(SessionLostError) as caught:
            await server.call("die")
        assert (caught.value.delivered, server.lost.is_set()) == (True, True)
        with pytest.raises(SessionLostError) as caught:
            await server.call("die")
        assert not caught.value.delivered


async def test_a_message_that_a_dead_process_never_had_was_not_delivered() -> None:
    """A call that comes before its end is noticed may be sent again."""
    async with opened(plain("pid"), ends=KILLED) as server:
        pid = int(await server.call("pid"))
        os.kill(pid, 9)
        while is_there(pid):  # the loop does not turn: nobody has noticed
            pass
        with pytest.raises(SessionLostError) as caught:
            await server.call("pid")
        assert not caught.value.delivered


async def test_a_process_ends_with_its_session() -> None:
    """When its input ends, as it should."""
    async with opened(plain("pid")) as server:
        pid = int(await server.call("pid"))
        assert is_there(pid)
    assert not is_there(pid)


async def test_a_process_that_does_not_go_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it started."""
    monkeypatch.setattr(mcp_process, "_GRACE", 0.1)
    monkeypatch.setattr(mcp_session, "_REST_SECONDS", 0.1)
    async with opened(plain("stubborn", "child", "pid")) as server:
        pids = [int(await server.call("child")), int(await server.call("pid"))]
        calling = asyncio.ensure_future(server.call("stubborn"))
        assert await server.call("pid") == str(pids[1])
    with pytest.raises(SessionLostError):
        await calling
    for pid in pids:
        await gone(pid)


async def test_what_a_process_started_ends_with_it() -> None:
    """Also when the process was killed by somebody else."""
    async with opened(plain("child", "pid"), ends=KILLED) as server:
        child = int(await server.call("child"))
        await killed(int(await server.call("pid")))
        await server.lost.wait()
    await gone(child)


async def test_a_session_that_is_cancelled_leaves_no_process() -> None:
    """Its owner may end at any time."""
    pids: list[int] = []

    async def own() -> None:
        async with opened(plain("pid")) as server:
            pids.append(int(await server.call("pid")))
            await asyncio.Event().wait()

    task = asyncio.ensure_future(own())
    while not pids:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(pids[0])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("sh", "-c", "exit 3"), "its command ended with status 3"),
        (("sh", "-c", "kill -9 $$"), "its command ended with status -9"),
    ],
)
async def test_a_command_that_ends_at_once_is_told_by_its_status(words: tuple[str, ...], reason: str) -> None:
    """That is what one looks for in a log."""
    server = McpServerSpec("files", "1", McpCommand(words, (), None))
    with pytest.raises(ToolRunError) as caught:
        async with opened(server):
            raise AssertionError
    assert (caught.value.kind, caught.value.reason) == (RunKind.CONNECT, reason)


async def test_a_command_that_is_not_there_cannot_be_started() -> None:
    """As the system says it."""
    with pytest.raises(FileNotFoundError):
        async with opened(McpServerSpec("files", "1", McpCommand(("no-such-command",), (), None))):
            raise AssertionError


async def test_a_command_runs_in_its_folder() -> None:
    """The folder decides which files it finds."""
    server = plain("pid")
    assert isinstance(server.reach, McpCommand)
    elsewhere = replace(server, reach=replace(server.reach, folder="/"))
    with pytest.raises(ToolRunError, match="status 1"):
        async with opened(elsewhere):
            raise AssertionError
