"""Tools of MCP servers from end to end: servers that change, hang and die between the requests of a conversation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import A, B, answer, body, call, follow, history, result, said, stream, user
from tests.e2e.gate import eventually
from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream
from tests.tools.mcp_processes import free_port, is_there, killed, plain, program, serving


def command(*tools: str, **about: Any) -> dict[str, Any]:
    """An entry for the server that misbehaves as it is asked to."""
    reach = plain(*tools).reach
    own = about.pop("mcp", {})
    return {"mcp": {"name": "files", "command": list(reach.words), "cwd": reach.folder, **own}, **about}  # type: ignore[union-attr]  # a command


def offered(upstream: FakeUpstream, index: int = -1) -> list[str]:
    """The tools that the upstream was told of, less the client's own."""
    tools = upstream.requests[index].json.get("tools", [])
    return [entry["function"]["name"] for entry in tools if entry["function"]["name"] != "own"]


async def run(here: Sidecall, upstream: FakeUpstream, name: str, /, **arguments: Any) -> str:
    """What the model is told of the one call that it makes."""
    upstream.script(answer(call(A, name, **arguments)), answer(text="done"))
    got = await here.post(body(tools=("own",)))
    assert (got.status, got.message["content"]) == (200, "done"), got.data
    content: str = history(upstream.last)[-1]["content"]
    return content


async def test_tools_of_a_server_are_offered_with_their_prefix_and_run(upstream: FakeUpstream) -> None:
    """As many as the globs take; a rule sees them under the names that the model knows."""
    entry = command("read_a", "read_b", "write", mcp={"tools": ["read_*"], "prefix": "files_"})
    async with sidecall(upstream.url, tools=[entry]) as here:
        assert await run(here, upstream, "files_read_a", path="x") == 'read_a {"path": "x"}'
        assert offered(upstream) == ["files_read_a", "files_read_b"]
        told = upstream.last.json["tools"][1]["function"]
        assert told == {
            "name": "files_read_a",
            "description": "About read_a.",
            "parameters": {"type": "object", "properties": {}},
        }
        assert here.value("mcp_up", server="files") == 1
        assert here.value("tool_results_total", tool="files_read_a", owner="proxy", outcome="ok") == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_a_mixed_batch_is_split_between_client_and_server(streams: bool, upstream: FakeUpstream) -> None:
    """The server's part is run on the client's return."""
    calls = [call(A, "echo", n=1), call(B, "own", q="x")]
    made = stream if streams else answer
    upstream.script(made(*calls), made(text="done"))
    async with sidecall(upstream.url, tools=[command("echo")]) as here:
        got = await here.post(body(tools=("own",), stream=streams))
        message = got.assembled() if streams else got.message
        assert [made["id"] for made in message["tool_calls"]] == [B]
        message.pop("finish", None)
        await here.post(body(*follow(message, "found"), tools=("own",), stream=streams))
    assert history(upstream.last)[1:] == [said(*calls), result(A, 'echo {"n": 1}'), result(B, "found")]


async def test_a_server_over_http_that_is_killed_and_restarted_between_two_calls(upstream: FakeUpstream) -> None:
    """The model notices nothing, and no call runs twice."""
    port = free_port()
    entry = {"mcp": {"name": "docs", "url": f"http://127.0.0.1:{port}/mcp"}}
    async with serving(port, handshake=True) as first, sidecall(upstream.url, tools=[entry]) as here:
        before = await run(here, upstream, "process")
        first.kill()
        first.join()
        async with serving(port, handshake=True):
            after = await run(here, upstream, "process")
            assert before != after
            assert await run(here, upstream, "process") == after
            await eventually(lambda: here.value("mcp_up", server="docs") == 1)


async def test_a_command_that_is_killed_between_two_calls_is_started_again(upstream: FakeUpstream) -> None:
    """And ends with the proxy."""
    async with sidecall(upstream.url, tools=[command("pid")]) as here:
        before = int(await run(here, upstream, "pid"))
        await killed(before)
        after = int(await run(here, upstream, "pid"))
        assert before != after
        assert int(await run(here, upstream, "pid")) == after
    assert not is_there(after)


async def test_a_call_in_flight_when_its_server_dies(upstream: FakeUpstream, tmp_path: Path) -> None:
    """It is an error result, or runs once more where the tool is idempotent."""
    mark = str(tmp_path / "died")
    entry = command("die", "die_again", mcp={"trustHints": True})
    async with sidecall(upstream.url, tools=[entry]) as here:
        assert await run(here, upstream, "die") == "Tool die failed: the connection to its server broke off"
        assert await run(here, upstream, "die_again", unless=mark) == "alive"
        assert here.value("tool_results_total", tool="die", owner="proxy", outcome="error") == 1


async def test_a_server_that_is_down_at_the_start(upstream: FakeUpstream) -> None:
    """The proxy starts, is ready, and has its tools once it is there."""
    port = free_port()
    entry = {"mcp": {"name": "docs", "url": f"http://127.0.0.1:{port}/mcp", "tools": ["add"]}}
    async with sidecall(upstream.url, tools=[entry, upstream.tool("other", advertise="withTools")]) as here:
        assert (here.value("mcp_up", server="docs"), here.running.health.draining) == (0, False)
        async with here.session.get(f"http://127.0.0.1:{here.running.admin.port}/readyz") as ready:
            assert ready.status == 200
        upstream.script(answer(text="hi"))
        await here.post(body(tools=("own",)))
        assert offered(upstream) == ["other"]
        async with serving(port, handshake=False):
            await eventually(lambda: here.value("mcp_up", server="docs") == 1)
            assert await run(here, upstream, "add", a=2, b=3) == "5"
            assert offered(upstream) == ["other", "add"]


async def test_a_change_of_the_list_is_for_the_requests_that_come_then(upstream: FakeUpstream) -> None:
    """All rounds of one request are offered the same tools."""
    async with sidecall(upstream.url, tools=[command("grow")]) as here:
        await run(here, upstream, "grow", tool="late")
        await eventually(lambda: "late" in here.running.snapshots.current.tools.specs)
        upstream.script(answer(text="hi"))
        await here.post(body(tools=("own",)))
        assert [offered(upstream, index) for index in range(3)] == [["grow"], ["grow"], ["grow", "late"]]


async def test_hints_that_are_trusted_make_a_tool_eager(upstream: FakeUpstream) -> None:
    """It has run before the client comes back."""
    entry = command("read", "write", mcp={"trustHints": True})
    upstream.script(answer(call(A, "read"), call("call_" + "W" * 24, "write"), call(B, "own")))
    async with sidecall(upstream.url, tools=[entry]) as here:
        await here.post(body(tools=("own",)))
        await eventually(lambda: here.value("deferred_calls") == 1)
        assert here.value("tool_results_total", tool="read", owner="proxy", outcome="ok") == 1
        assert here.value("tool_results_total", tool="write", owner="proxy", outcome="ok") == 0


async def test_a_tool_that_hangs_is_an_error_result(upstream: FakeUpstream) -> None:
    """The others of its server go on."""
    async with sidecall(upstream.url, tools=[command("hang", "echo", mcp={"timeout": "100ms"})]) as here:
        upstream.script(answer(call(A, "hang"), call(B, "echo")), answer(text="done"))
        await here.post(body(tools=("own",)))
        assert history(upstream.last)[2:] == [
            result(A, "Tool hang failed: it timed out after 100ms"),
            result(B, "echo {}"),
        ]


async def test_an_error_of_a_tool_shows_no_secret_and_no_stack(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Nor does the log show what the server was given."""
    (tmp_path / "token").write_text("hunter22")
    entry = command("bad", mcp={"env": {"TOKEN": {"file": str(tmp_path / "token")}}})
    async with sidecall(upstream.url, tools=[entry]) as here:
        assert await run(here, upstream, "bad") == "Tool bad failed: it cannot: ***"
        assert "hunter22" not in json.dumps(here.lines)


async def test_a_server_is_told_for_whom_it_acts(upstream: FakeUpstream, tmp_path: Path) -> None:
    """And never the client's credential."""
    (tmp_path / "key").write_text("team-key")
    clients = [{"name": "team-a", "key": {"file": str(tmp_path / "key")}}]
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with sidecall(upstream.url, tools=[command("about")], clients=clients) as here:
        upstream.script(answer(call(A, "about")), answer(text="done"))
        await here.post(body(tools=("own",)), key="team-key", traceparent=trace)
    about = json.loads(history(upstream.last)[-1]["content"])
    assert about.pop("sidecall.io/idempotencyKey")
    assert about == {"sidecall.io/callId": A, "sidecall.io/client": "team-a", "traceparent": trace}


async def test_rules_hold_for_tools_of_servers(upstream: FakeUpstream, tmp_path: Path) -> None:
    """A blocked call does not reach the server; a result may be changed."""
    rules = [
        rule("no", "die", block={"message": "no"}),
        rule("short", "long", result={"replace": {"content": "cut"}}),
    ]
    async with sidecall(upstream.url, tools=[command("die", "long")], policies=[policy(tmp_path, *rules)]) as here:
        assert await run(here, upstream, "die") == "Tool call blocked by policy p/no: no"
        assert await run(here, upstream, "long", bytes=10) == "cut"


async def test_slow_servers_do_not_stop_others(upstream: FakeUpstream) -> None:
    """Many calls wait; a plain request passes beside them."""
    entry = command("hang", mcp={"timeout": "500ms"}, concurrency=4)
    async with sidecall(upstream.url, tools=[entry]) as here:
        calls = [call(f"call_{n:024}", "hang") for n in range(8)]
        upstream.script(answer(*calls))
        waiting = asyncio.ensure_future(here.post(body(tools=("own",))))
        await eventually(lambda: len(upstream.requests) == 1)
        upstream.script(answer(text="at once"), answer(text="done"))
        assert (await here.post(body(user("and now"), tools=("own",)))).message["content"] == "at once"
        assert not waiting.done()
        assert (await waiting).message["content"] == "done"
    assert {message["content"] for message in history(upstream.last)[2:]} == {
        "Tool hang failed: it timed out after 500ms"
    }


async def test_a_server_that_others_wrote(upstream: FakeUpstream) -> None:
    """With its own words for errors."""
    reach = program("mcp_server_time", "--local-timezone", "UTC").reach
    entry = {"mcp": {"name": "time", "command": list(reach.words), "prefix": "time_"}}  # type: ignore[union-attr]  # a command
    async with sidecall(upstream.url, tools=[entry]) as here:
        arguments = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}
        told = json.loads(await run(here, upstream, "time_convert_time", **arguments))
        assert told["target"]["datetime"].endswith("T03:00:00+00:00")
        failed = await run(here, upstream, "time_get_current_time", timezone="Nowhere/At_All")
        assert failed.startswith("Tool time_get_current_time failed: ")
        assert offered(upstream) == ["time_get_current_time", "time_convert_time"]
