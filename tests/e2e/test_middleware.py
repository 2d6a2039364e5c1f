"""`middleware`, as a whole: calls and results, of clients and of proxy tools, in chats and responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e import responses
from tests.e2e.chat import A, B, C, answer, blocked, body, call, follow, history, result, said, stream, user
from tests.e2e.sidecall import Sidecall, pinging, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream
from tests.tools import house_rules

HERE = "tests.tools.house_rules"
UNEVALUATED = "the rule could not be evaluated"
TOOLS = ("search", "send", "count")


@pytest.fixture
async def house(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Sidecall]:
    """One object for everything, and behind it another that sees results first."""
    rules = [rule("outer", "*", middleware=f"{HERE}:scripted"), rule("inner", "search", middleware=f"{HERE}:late")]
    tools = [upstream.tool("count", "loud count")]
    house_rules.asked.clear()
    async with sidecall(upstream.url, policies=[policy(tmp_path, *rules)], tools=tools) as running:
        yield running


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_are_decided(streams: bool, house: Sidecall, upstream: FakeUpstream) -> None:
    """Blocked, failed and rewritten; the first listed sees a call first."""
    made = [call(A, "send", do="block"), call(B, "send", do="raise"), call(C, "send", do="rewrite")]
    upstream.script(stream(*made) if streams else answer(*made), answer(text="done"))
    got = await house.post(body(tools=TOOLS, stream=streams))
    message = got.assembled() if streams else got.message
    assert [one["function"]["arguments"] for one in message["tool_calls"]] == ['{"do":"rewritten"}']
    await house.post(body(*follow(said(*message["tool_calls"]), "sent"), tools=TOOLS))
    told = [one["content"] for one in history(upstream.last)[2:4]]
    assert told == [blocked("Not in this house.", "outer"), blocked(UNEVALUATED, "outer")]
    assert [asked.name for asked, text in house_rules.asked if text is None] == ["send"] * 3
    assert "a secret of the house" not in str(house.lines)


@pytest.mark.parametrize("streams", [False, True])
async def test_results_of_clients_are_seen(streams: bool, house: Sidecall, upstream: FakeUpstream) -> None:
    """By the last listed first, on every request alike, whoever else sees them."""
    sent = [user(), said(call(A, "search"), call(B, "send")), result(A, "x"), result(B, "raise")]
    for _ in range(2):
        upstream.script(stream(text="done") if streams else answer(text="done"))
        await house.post(body(*sent, tools=TOOLS, stream=streams))
        withheld = f"Tool result withheld by policy p/outer: {UNEVALUATED}"
        assert history(upstream.last)[2:] == [result(A, "late x"), result(B, withheld)]
    assert house.value("tool_results_total", tool="search", owner="client", outcome="replaced") == 1
    assert house.value("tool_results_total", tool="send", owner="client", outcome="blocked") == 1


async def test_results_of_responses_and_of_proxy_tools(house: Sidecall, upstream: FakeUpstream) -> None:
    """One chain for all of them."""
    upstream.script(answer(call(A, "count")), answer(text="done"))
    await house.post(body(tools=("search",)))
    assert history(upstream.last)[-1] == result(A, "LOUD COUNT")
    upstream.script(responses.whole(responses.message("done")))
    items = [responses.user(), responses.call(A, "search"), responses.output(A, "loud")]
    await house.post(responses.body(*items, tools=TOOLS), path=responses.PATH)
    assert upstream.last.json["input"][-1]["output"] == "late loud"


async def test_a_stream_waits_in_peace(upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a slow function decides in its thread, comments are sent and other requests are served."""
    slow = house_rules.Slow()
    monkeypatch.setattr(house_rules, "slow", slow)
    upstream.script(stream(call(A, "slow"), text="Wait."), answer(text="quick"))
    path = policy(tmp_path, rule("slow", "slow", middleware=f"{HERE}:slow"))
    async with sidecall(upstream.url, policies=[path], services=pinging(0.02)) as here:
        sent = body(tools=("slow",), stream=True)
        async with here.session.post(f"{here.url}/v1/chat/completions", json=sent) as got:
            found = b""
            while found.count(b": waiting\n") < 2:
                found += await got.content.readany()
            assert (await here.post(body())).message["content"] == "quick"
            assert b"slow" not in found
            slow.gate.set()
            found += await got.content.read()
        assert b'"slow"' in found


async def test_slow_results_keep_a_stream_alive(upstream: FakeUpstream, tmp_path: Path) -> None:
    """The client of a stream is told that it has to wait before the upstream is asked."""
    upstream.script(stream(text="done"))
    gate, begun = asyncio.Event(), asyncio.Event()

    class Waiting:
        async def on_result(self, call: object, result: str) -> str:
            begun.set()
            await gate.wait()
            return "waited"

    house_rules.waiting = Waiting()  # type: ignore[attr-defined]
    path = policy(tmp_path, rule("slow", "search", middleware=f"{HERE}:waiting"))
    async with sidecall(upstream.url, policies=[path], services=pinging(0.02)) as here:
        sent = body(user(), said(call(A, "search")), result(A, "x"), tools=TOOLS, stream=True)
        async with here.session.post(f"{here.url}/v1/chat/completions", json=sent) as got:
            found = await got.content.readany()
            assert begun.is_set()
            assert (found.startswith(b": waiting\n"), upstream.requests) == (True, [])
            gate.set()
            assert b"[DONE]" in await got.content.read()
    assert history(upstream.last)[-1] == result(A, "waited")
