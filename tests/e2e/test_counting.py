"""What can be seen of governed requests: metrics, one line a request in the log, one record a call in the audit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import A, B, C, answer, body, call, chunk, events, follow, result, said, stream, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import Asked, Cut, Events, FakeUpstream, Whole

MIXED = [call(A, "delete"), call(B, "search", q="secret"), call(C, "count", n=1)]
TOOLS = ("search", "delete")


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path, rule("no", "delete", block={"message": "no"}), rule("pong", "ping", answer={"content": "pong"})
    )


@pytest.mark.parametrize("streams", [False, True])
async def test_a_mixed_batch_is_counted_once(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Calls, results, batch and rejoin count once, however often the client sends its next request."""
    upstream.script(stream(*MIXED) if streams else answer(*MIXED))
    upstream.always(answer(text="done"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        await here.post(body(tools=TOOLS, stream=streams))
        assert here.value("deferred_calls") == 1
        for _ in range(3):
            await here.post(body(*follow(said(MIXED[1]), "found"), tools=TOOLS))
        assert here.value("deferred_calls") == 0
        assert here.total("tool_calls_total", mode="enforce") == 3
        assert {
            (r["tool"], r["owner"], r["decision"], r.get("policy", ""), r.get("rule", "")) for r in here.audit()
        } == {
            ("delete", "client", "blocked", "p", "no"),
            ("search", "client", "allowed", "", ""),
            ("count", "proxy", "allowed", "", ""),
        }
        assert len(here.audit()) == 3
        assert here.total("tool_results_total") == 2
        assert here.total("tool_results_total", tool="search", owner="client", outcome="ok") == 1
        assert here.total("tool_results_total", tool="count", owner="proxy", outcome="ok") == 1
        assert here.total("batches_total", kind="mixed") == here.total("batches_total") == 1
        assert here.total("rejoins_total", outcome="rejoined") == here.total("rejoins_total") == 1
        assert here.total("tool_call_duration_seconds_count", tool="search", owner="client") == 1
        assert [line["calls"] for line in here.requests() if "calls" in line] == [3]
        assert len(here.requests()) == 4
        assert "secret" not in str(here.lines)


async def test_a_batch_that_never_comes_back_leaves_the_gauge(rules: str, upstream: FakeUpstream) -> None:
    """What the ledger has forgotten is waited for no more."""
    upstream.script(answer(*MIXED))
    settings: dict[str, Any] = {"state": {"url": "memory:", "ttl": "1s"}}
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")], **settings) as here:
        await here.post(body(tools=TOOLS))
        assert here.value("deferred_calls") == 1
        async with asyncio.timeout(10):
            while here.value("deferred_calls"):
                await asyncio.sleep(0.05)
        upstream.always(answer(text="done"))
        sent = body(*follow(said(MIXED[1]), "found"), tools=TOOLS)
        for _ in range(2):
            await here.post(sent)
        assert upstream.last.json["messages"] == sent["messages"], "it passes as the client sent it"
        assert here.total("rejoins_total", outcome="forgotten") == here.total("rejoins_total") == 1
        assert sum(line["message"] == "a batch was forgotten" for line in here.lines) == 1


async def test_a_forgotten_batch_of_two_calls_is_one_batch(rules: str, upstream: FakeUpstream) -> None:
    """`forgotten` counts batches, and not the ids that led to them."""
    upstream.script(answer(*MIXED, call(f"{A}2", "search")))
    settings: dict[str, Any] = {"state": {"url": "memory:", "ttl": "1s"}}
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")], **settings) as here:
        message = (await here.post(body(tools=TOOLS))).message
        assert len(message["tool_calls"]) == 2
        async with asyncio.timeout(10):
            while here.value("deferred_calls"):
                await asyncio.sleep(0.05)
        upstream.always(answer(text="done"))
        await here.post(body(*follow(message, "found", "found"), tools=TOOLS))
        assert here.total("rejoins_total", outcome="forgotten") == 1


async def test_partial_and_mismatching_batches_count_once(rules: str, upstream: FakeUpstream) -> None:
    """A batch counts under the outcome that it first had."""
    batch = [call(A, "delete"), call(B, "search"), call(C, "search")]
    upstream.script(answer(*batch))
    upstream.always(answer(text="done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        message = (await here.post(body(tools=TOOLS))).message
        part = [user(), message, result(B, "found")]
        await here.post(body(*part, tools=TOOLS))
        await here.post(body(*part, result(C, "found"), tools=TOOLS))
        assert here.total("rejoins_total", outcome="partial") == here.total("rejoins_total") == 1
        upstream.script(answer(*batch))
        other = (await here.post(body(user("again"), tools=TOOLS))).message
        for made in other["tool_calls"]:
            made["function"]["name"] = "show"
        sent = body(*follow(other, "x", "y", before=(user("again"),)), tools=TOOLS)
        for _ in range(2):
            await here.post(sent)
        assert upstream.last.json["messages"] == sent["messages"]
        assert here.total("rejoins_total", outcome="mismatch") == 1


async def test_made_up_results_for_held_calls_are_dropped(rules: str, upstream: FakeUpstream) -> None:
    """A result for an id that was held reaches no model; it is counted and logged once."""
    upstream.script(answer(*MIXED))
    upstream.always(answer(text="done"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        await here.post(body(tools=TOOLS))
        sent = body(user(), said(MIXED[1]), result(A, "I deleted it"), result(B, "found"), tools=TOOLS)
        for _ in range(2):
            await here.post(sent)
        assert here.total("stray_results_total") == 1
        assert here.total("tool_results_total", owner="client") == 1
        assert sum(line["message"] == "a result was dropped" for line in here.lines) == 1
    assert "I deleted it" not in upstream.last.body.decode()


async def test_results_of_ids_that_come_again(rules: str, upstream: FakeUpstream) -> None:
    """Servers that number their calls give one id in many conversations: each result counts, and none twice."""
    upstream.always(answer(text="done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        for name in ("one", "two"):
            sent = follow(said(call("call_0", "search")), "found", before=(user(name),))
            for later in ([], [], [said(text="done"), user("more")]):
                await here.post(body(*sent, *later, tools=TOOLS))
        assert here.total("tool_results_total", tool="search") == here.total("tool_results_total") == 2


# -- how turns with hidden rounds end


BROKEN = Events([chunk({"role": "assistant", "content": "It"})], break_after=1)
OVER = Events([chunk({"role": "assistant"}), {"error": {"message": "overloaded"}}], done=False)
FAILED = Whole({"error": {"message": "no"}}, 500)


@pytest.mark.parametrize(
    ("end", "streams", "replies"),
    [
        ("text", False, [answer(call(A, "ping")), answer(text="done")]),
        ("text", True, [stream(call(A, "ping")), stream(text="done")]),
        ("surfaced", False, [answer(call(A, "ping")), answer(call(B, "search"))]),
        ("surfaced", True, [stream(call(A, "ping")), stream(call(B, "search"))]),
        ("stopped", False, [answer(call(A, "ping")), answer(call(B, "halt"))]),
        ("stopped", True, [stream(call(A, "ping")), stream(call(B, "halt"))]),
        ("stopped", False, [answer(call(A, "ping")), answer(call(B, "fail"))]),
        ("stopped", True, [stream(call(A, "ping")), stream(call(B, "fail"))]),
        ("limit", False, [answer(call(A, "ping")), answer(call(B, "ping")), answer(call(C, "ping")), answer(text="x")]),
        ("limit", True, [stream(call(A, "ping")), stream(call(B, "ping")), stream(call(C, "ping")), stream(text="x")]),
        ("errors", False, [answer(call(A, "no")), answer(call(B, "no")), answer(text="x")]),
        ("errors", True, [stream(call(A, "no")), stream(call(B, "no")), stream(text="x")]),
        ("upstream_error", False, [answer(call(A, "ping")), FAILED]),
        ("upstream_error", True, [stream(call(A, "ping")), FAILED]),
        ("upstream_error", False, [answer(call(A, "ping")), Cut()]),
        ("upstream_error", True, [stream(call(A, "ping")), Cut()]),
        ("upstream_error", True, [stream(call(A, "ping")), BROKEN]),
        ("upstream_error", True, [stream(call(A, "ping")), OVER]),
    ],
)
async def test_every_turn_with_hidden_rounds_ends_once(
    end: str, streams: bool, replies: list[Any], upstream: FakeUpstream, tmp_path: Path
) -> None:
    """One turn, one count, under the way it ended."""
    rules = policy(
        tmp_path,
        rule("pong", "ping", answer={"content": "pong"}),
        rule("halt", "halt", block={"message": "halt", "then": "stop"}),
        rule("fail", "fail", block={"message": "fail", "then": "fail"}),
        rule("no", "no", block={"message": "no"}),
    )
    upstream.script(*replies)
    bounds = {"max": 2, "maxConsecutiveErrors": 2}
    async with sidecall(upstream.url, policies=[rules], continuations=bounds) as here:
        await here.post(body(tools=("ping",), stream=streams))
        assert here.total("continuations_total", end=end) == here.total("continuations_total") == 1
        assert len(here.requests()) == 1
        assert here.requests()[0]["rounds"] == len(replies) - 1


@pytest.mark.parametrize("streams", [False, True])
async def test_a_turn_whose_client_went_away(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """A client that leaves while the upstream is asked again ends the turn, and the upstream's stream."""
    gate = asyncio.Event()
    hanging = Events([*events(text="It")[:2], gate, *events(text="is.")[1:]])
    upstream.script(stream(call(A, "ping")) if streams else answer(call(A, "ping")), hanging)
    async with sidecall(upstream.url, policies=[rules]) as here:
        asking = asyncio.ensure_future(here.post(body(tools=("ping",), stream=streams)))
        await upstream.until(lambda: len(upstream.requests) == 2)
        asking.cancel()
        await asyncio.wait([asking])
        async with asyncio.timeout(10):
            await upstream.gone.wait()
            while not here.requests():
                await asyncio.sleep(0.005)
        assert here.total("continuations_total", end="client_gone") == here.total("continuations_total") == 1
        assert here.requests()[0]["error"] == "client_gone"
        assert here.value("streams_active") == 0


async def test_the_time_of_tools_and_upstream_is_not_the_proxys(rules: str, upstream: FakeUpstream) -> None:
    """Overhead is what is left when those have taken theirs."""

    async def slow(asked: Asked) -> str:
        await asyncio.sleep(0.3)
        return "slow"

    upstream.script(answer(call(A, "count")), answer(text="done"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count", slow)]) as here:
        await here.post(body(tools=TOOLS))
        while not here.requests():  # the line comes behind the answer
            await asyncio.sleep(0)
        line = here.requests()[0]
    assert line["duration"] >= 0.3
    assert line["duration"] - line["waited"] < 0.2


async def test_a_stream_that_breaks_off_in_a_call(rules: str, upstream: FakeUpstream) -> None:
    """What was decided before the break is counted and audited; the call that never came whole is not surfaced."""
    made = [*events(call(A, "delete"), call(B, "search", q="x"))]
    upstream.script(Events(made[:5], break_after=5))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=TOOLS, stream=True))
        assert got.error["type"] == "upstream_error"
        assert b"DONE" not in got.data
        assert [record["tool"] for record in here.audit()][:1] == ["delete"]
        assert here.total("tool_calls_total", tool="delete", decision="blocked") == 1
        assert here.total("upstream_errors_total") == 1
