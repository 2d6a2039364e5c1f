"""Proxy tools from end to end: when they run, how many at once, and for whom they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import (
    A,
    B,
    C,
    D,
    answer,
    answers,
    body,
    call,
    choice,
    chunk,
    events,
    follow,
    history,
    result,
    said,
    stream,
    user,
)
from tests.e2e.gate import Gate, eventually
from tests.e2e.sidecall import Sidecall, pinging, policy, rule, sidecall
from tests.fake_upstream import Asked, Events, FakeUpstream

MIXED = [call(A, "search", q="x"), call(B, "count", n=1)]


async def echo(asked: Asked) -> str:
    return str(asked.json["n"])


async def test_an_eager_tool_runs_while_the_client_works(upstream: FakeUpstream) -> None:
    """The run begins with the split, goes on without its request, and is not repeated on the client's return."""
    gate = Gate()
    tools = [upstream.tool("count", gate, execution="eager"), upstream.tool("later")]
    upstream.script(answer(*MIXED, call(C, "later")), answer(text="done"))
    async with sidecall(upstream.url, tools=tools) as here:
        message = (await here.post(body(tools=("search",)))).message
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        assert not upstream.runs["later"]
        assert here.value("deferred_calls") == 2
        gate.open.set()
        await eventually(lambda: here.value("deferred_calls") == 1)
        await here.post(body(*follow(message, "found"), tools=("search",)))
    assert history(upstream.last)[2:] == [result(A, "found"), result(B, "run 1"), result(C, "ran")]
    assert {name: len(runs) for name, runs in upstream.runs.items()} == {"count": 1, "later": 1}


async def test_calls_run_at_once_within_the_limit_of_their_tool(upstream: FakeUpstream) -> None:
    """Calls of one batch run concurrently, at most `concurrency` of a tool."""
    gate, free = Gate(), Gate()
    tools = [upstream.tool("count", gate, concurrency=2), upstream.tool("free", free)]
    calls = [call(f"call_{n:024}", "count", n=n) for n in range(4)] + [call(A, "free"), call(B, "free")]
    upstream.script(answer(*calls), answer(text="done"))
    async with sidecall(upstream.url, tools=tools) as here:
        asking = asyncio.ensure_future(here.post(body(tools=("search",))))
        await upstream.until(lambda: len(upstream.runs["count"]) == 2 and len(upstream.runs["free"]) == 2)
        gate.open.set()
        free.open.set()
        assert (await asking).message["content"] == "done"
    assert (gate.most, free.most, len(upstream.runs["count"])) == (2, 2, 4)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_goes_away_in_the_middle_of_a_run(
    streams: bool, idempotent: bool, upstream: FakeUpstream
) -> None:
    """A run goes on without its client unless it may be repeated; the same request finds its result."""
    gate = Gate()
    made = call(A, "count", n=1)
    upstream.script(stream(made) if streams else answer(made))
    upstream.always(stream(text="done") if streams else answer(text="done"))
    async with sidecall(upstream.url, tools=[upstream.tool("count", gate, idempotent=idempotent)]) as here:
        sent = body(tools=("search",), stream=streams)
        asking = asyncio.ensure_future(here.post(sent))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        asking.cancel()
        await asyncio.wait([asking])
        if idempotent:
            await eventually(lambda: gate.running == 0)
        again = asyncio.ensure_future(here.post(sent))
        gate.open.set()
        got = await again
        message = got.assembled() if streams else got.message
        assert message["content"] == "done"
        assert here.value("continuations_total", api="chat", end="client_gone") == 1
    assert len(upstream.runs["count"]) == (2 if idempotent else 1)
    assert len(upstream.requests) == 2, "the first round was kept"
    assert history(upstream.last)[-1] == result(A, "run 2" if idempotent else "run 1")


@pytest.mark.parametrize("returns", [False, True])
async def test_comments_while_tools_run_behind_a_stream(returns: bool, upstream: FakeUpstream) -> None:
    """A stream that waits for a tool sends comments, which no reader takes for events."""
    gate = Gate()
    upstream.script(stream(*(MIXED if returns else MIXED[1:])), stream(text="done"))
    async with sidecall(upstream.url, services=pinging(0.02), tools=[upstream.tool("count", gate)]) as here:
        sent = body(tools=("search",), stream=True)
        if returns:
            first = await here.post(sent)
            message = said(*first.assembled()["tool_calls"])
            sent = body(*follow(message, "found"), tools=("search",), stream=True)
        asking = asyncio.ensure_future(here.post(sent))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        await asyncio.sleep(0.1)
        gate.open.set()
        got = await asking
    assert got.data.count(b": waiting\n") >= 2
    assert got.data.endswith(b"data: [DONE]\n\n")
    assert got.assembled()["content"] == "done"


@pytest.mark.parametrize("streams", [False, True])
async def test_two_identical_requests_at_once_share_a_run(streams: bool, upstream: FakeUpstream) -> None:
    """A request that comes again while the first one runs joins its rounds: the tool runs once."""
    gate = Gate()
    made = (call(A, "count", n=1), call(B, "count", n=1))

    def reply(asked: Asked) -> Any:
        if len(asked.messages) > 1:
            return stream(text="done") if streams else answer(text="done")
        first = made[len(upstream.requests) - 1]  # a model never gives the same id twice
        return stream(first) if streams else answer(first)

    upstream.always(reply)
    async with sidecall(upstream.url, tools=[upstream.tool("count", gate)]) as here:
        sent = body(tools=("search",), stream=streams)
        asking = [asyncio.ensure_future(here.post(sent)) for _ in range(2)]
        await upstream.until(lambda: len(upstream.requests) == 2 and gate.running >= 1)
        gate.open.set()
        found = [(got.assembled() if streams else got.message)["content"] for got in await asyncio.gather(*asking)]
    assert found == ["done", "done"]
    assert len(upstream.runs["count"]) == 1
    assert {history(asked)[-1]["content"] for asked in upstream.requests[2:]} == {"run 1"}


@pytest.mark.parametrize("streams", [False, True])
async def test_several_choices_have_runs_of_their_own(streams: bool, upstream: FakeUpstream) -> None:
    """With n: 2 each choice is continued by itself, with the results of its own calls."""
    one, two = call(A, "count", n=1), call(B, "count", n=2)
    first: Any = answers(choice(one), choice(two, index=1))
    if streams:
        first = Events([*events(one), *events(two, index=1)])

    def reply(asked: Asked) -> Any:
        text = f"it was {asked.messages[-1]['content']}"
        return stream(text=text) if streams else answer(text=text)

    upstream.script(first, reply, reply)
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        got = await here.post(body(tools=("search",), n=2, stream=streams))
    if streams:
        texts = [got.assembled(index)["content"] for index in (0, 1)]
    else:
        texts = [found["message"]["content"] for found in got.json["choices"]]
    assert texts == ["it was 1", "it was 2"]
    assert [asked.json.get("n") for asked in upstream.requests] == [2, 1, 1]
    assert [history(asked)[1:] for asked in upstream.requests[1:]] == [
        [said(one), result(A, "1")],
        [said(two), result(B, "2")],
    ]


@asynccontextmanager
async def custom(upstream: FakeUpstream, folder: Path) -> AsyncIterator[Sidecall]:
    path = policy(
        folder, rule("no", "shell", block={"message": "no"}), rule("pong", "ping", answer={"content": "pong"})
    )
    async with sidecall(upstream.url, policies=[path]) as here:
        yield here


@pytest.mark.parametrize("streams", [False, True])
async def test_custom_tools_with_free_text(streams: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """A held custom call comes back as it was made, beside the surfaced one."""
    held = {"id": A, "type": "custom", "custom": {"name": "shell", "input": 'rm -rf / # "x"'}}
    shown = {"id": B, "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    if streams:
        deltas = [{"tool_calls": [{"index": at, **made}]} for at, made in enumerate((held, shown))]
        first: Any = Events([*map(chunk, deltas), chunk({}, "tool_calls")])
    else:
        first = answer(held, shown)
    upstream.script(first, answer(text="done"))
    async with custom(upstream, tmp_path) as here:
        got = await here.post(body(stream=streams))
        if streams:
            entries = [e for event in got.events for c in event["choices"] for e in c["delta"].get("tool_calls", [])]
            assert [{**e, "index": 0} for e in entries] == [{"index": 0, **shown}]
        else:
            assert got.message["tool_calls"] == [shown]
        await here.post(body(*follow(said(shown), "patched")))
    assert history(upstream.last)[1:] == [
        said(held, shown),
        result(A, "Tool call blocked by policy p/no: no"),
        result(B, "patched"),
    ]


def _piece(delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": None}


@pytest.mark.parametrize("streams", [False, True])
async def test_legacy_functions(streams: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """A legacy call that is held is answered as a function's result, and its rounds come back before the next call."""
    held = {"name": "ping", "arguments": "{}"}
    shown = {"name": "search", "arguments": '{"q":"x"}'}

    def legacy(made: dict[str, Any]) -> Any:
        message = {"role": "assistant", "content": None, "function_call": made}
        if streams:
            base = events()[0]
            deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}, {"function_call": made}]
            finish = {"index": 0, "delta": {}, "finish_reason": "function_call"}
            return Events([*({**base, "choices": [_piece(d)]} for d in deltas), {**base, "choices": [finish]}])
        return answers({"index": 0, "message": message, "finish_reason": "function_call"})

    declared = [{"name": name, "parameters": {"type": "object"}} for name in ("ping", "search")]
    upstream.script(legacy(held), legacy(shown), answer(text="done"))
    async with custom(upstream, tmp_path) as here:
        got = await here.post(body(functions=declared, stream=streams))
        if streams:
            calls = [
                c["delta"]["function_call"] for e in got.events for c in e["choices"] if "function_call" in c["delta"]
            ]
            assert calls == [shown]
        else:
            assert got.message["function_call"] == shown
        message = {"role": "assistant", "content": None, "function_call": shown}
        returned = {"role": "function", "name": "search", "content": "found"}
        await here.post(body(user(), message, returned, functions=declared))
    assert [{k: v for k, v in m.items() if v is not None} for m in history(upstream.last)[1:]] == [
        {"role": "assistant", "function_call": held},
        {"role": "function", "name": "ping", "content": "pong"},
        {"role": "assistant", "function_call": shown},
        returned,
    ]


async def test_a_deferred_call_runs_behind_a_proxy_tool(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Over three requests: the free calls, the deferred one without the upstream, and the whole batch."""
    path = policy(tmp_path, rule("late", "send", defer={}))
    calls = [call(A, "send", to="bob"), call(B, "search"), call(C, "count", n=4)]
    upstream.script(answer(*calls), answer(text="done"))
    async with sidecall(upstream.url, policies=[path], tools=[upstream.tool("count", echo)]) as here:
        first = (await here.post(body(tools=("send", "search")))).message
        assert first["tool_calls"] == [calls[1]]
        assert here.value("deferred_calls") == 2
        sent = follow(first, "found")
        second = await here.post(body(*sent, tools=("send", "search")))
        assert second.message["tool_calls"] == [calls[0]]
        assert second.json["choices"][0]["finish_reason"] == "tool_calls"
        assert len(upstream.requests) == 1
        third = follow(said(calls[0]), "sent", before=tuple(sent))
        assert (await here.post(body(*third, tools=("send", "search")))).message["content"] == "done"
        assert here.value("deferred_calls") == 0
        assert here.value("rejoins_total", api="chat", outcome="rejoined") == 1
    results = [result(A, "sent"), result(B, "found"), result(C, "4")]
    assert history(upstream.last) == [user(), said(*calls), *results]


@pytest.mark.parametrize("streams", [False, True])
async def test_one_call_at_a_time(streams: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """With maxParallel: 1 a batch of three comes over three requests, and goes up whole."""
    path = policy(tmp_path, batch={"maxParallel": 1})
    calls = [call(A, "search", q=1), call(B, "search", q=2), call(D, "show")]
    upstream.script(stream(*calls) if streams else answer(*calls), answer(text="done"))
    async with sidecall(upstream.url, policies=[path]) as here:
        sent = [user()]
        for number, made in enumerate(calls):
            got = await here.post(body(*sent, tools=("search", "show"), stream=streams))
            message = got.assembled() if streams else got.message
            assert message["tool_calls"] == [made]
            sent = follow(said(made), f"result {number}", before=tuple(sent))
        await here.post(body(*sent, tools=("search", "show")))
        assert here.value("deferred_calls") == 0
    results = [result(made["id"], f"result {number}") for number, made in enumerate(calls)]
    assert history(upstream.last) == [user(), said(*calls), *results]
    assert len(upstream.requests) == 2
