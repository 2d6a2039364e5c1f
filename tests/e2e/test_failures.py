"""When things fail: nothing is surfaced that was not saved, and what passes without state goes on passing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import A, B, C, answer, body, call, chunk, events, follow, history, result, said, stream, user
from tests.e2e.flaky import Flaky, on
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import Asked, Events, FakeUpstream, Whole

TOOLS = ("search", "delete")
MIXED = [call(A, "search", q="x"), call(B, "count", n=1), call(C, "delete")]


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(tmp_path, rule("no", "delete", block={"message": "no"}))


@pytest.mark.parametrize("streams", [False, True])
async def test_a_batch_that_cannot_be_saved_is_not_surfaced(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """No call of it is complete for the client, whole or as a stream, and the error says why."""
    flaky = Flaky()
    upstream.script(stream(*MIXED, text="Hm.") if streams else answer(*MIXED))
    tools = [upstream.tool("count", execution="eager")]
    async with sidecall(upstream.url, services=flaky, policies=[rules], tools=tools) as here:
        flaky.store.fails = on("save", "batch")
        got = await here.post(body(tools=TOOLS, stream=streams))
        assert got.error["code"] == "state_unavailable"
        if streams:
            assert b"[DONE]" not in got.data
            assert got.assembled()["finish"] is None
        else:
            assert got.status == 503
        assert here.value("state_unavailable_total") == 1
        assert here.value("deferred_calls") == 0
    assert not upstream.runs["count"]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_round_that_cannot_be_saved_is_not_run(streams: bool, upstream: FakeUpstream) -> None:
    """What a tool did has to be known before the upstream is called again, so it does not begin without a store."""
    flaky = Flaky()
    upstream.script(stream(MIXED[1]) if streams else answer(MIXED[1]))
    async with sidecall(upstream.url, services=flaky, tools=[upstream.tool("count")]) as here:
        flaky.store.fails = lambda operation, keys: operation == "save"
        got = await here.post(body(tools=TOOLS, stream=streams))
        assert got.error["code"] == "state_unavailable"
        assert here.total("continuations_total") == 1
    assert len(upstream.requests) == 1
    assert not upstream.runs["count"]


async def test_a_result_is_kept_when_the_store_comes_back(upstream: FakeUpstream) -> None:
    """A tool that has run is not run again because its result could not be written at once."""
    flaky = Flaky()
    failures = 0

    def fails(operation: str, keys: Any) -> bool:
        nonlocal failures
        if operation == "save" and upstream.runs["count"] and failures < 2:
            failures += 1
            return True
        return False

    upstream.script(answer(MIXED[1]), answer(text="done"))
    async with sidecall(upstream.url, services=flaky, tools=[upstream.tool("count")]) as here:
        flaky.store.fails = fails
        assert (await here.post(body(tools=TOOLS))).message["content"] == "done"
    assert failures == 2
    assert len(upstream.runs["count"]) == 1


@pytest.mark.parametrize("on_unavailable", ["refuse", "pass"])
async def test_a_store_that_is_down(on_unavailable: str, rules: str, upstream: FakeUpstream) -> None:
    """Requests and answers without held calls pass; a history with calls passes only where the setting says so."""
    flaky = Flaky()
    upstream.script(answer(call(A, "search")))
    settings: dict[str, Any] = {"state": {"url": "memory:", "onUnavailable": on_unavailable}}
    async with sidecall(upstream.url, services=flaky, policies=[rules], **settings) as here:
        flaky.store.fails = lambda operation, keys: True
        message = (await here.post(body(tools=TOOLS))).message
        assert message["tool_calls"] == [call(A, "search")]
        sent = follow(message, "found")
        upstream.always(answer(text="done"))
        got = await here.post(body(*sent, tools=TOOLS))
        if on_unavailable == "pass":
            assert upstream.last.messages == sent
        else:
            assert (got.status, got.error["code"]) == (503, "state_unavailable")
        upstream.script(answer(call(B, "delete"), call(C, "search")))
        got = await here.post(body(tools=TOOLS))
        assert (got.status, got.error["code"]) == (503, "state_unavailable")


async def test_a_rejoin_waits_for_the_store(rules: str, upstream: FakeUpstream) -> None:
    """A store that fails between the steps of a rejoin leaves the batch as it was."""
    flaky = Flaky()
    upstream.script(answer(*MIXED), answer(text="done"))
    async with sidecall(upstream.url, services=flaky, policies=[rules], tools=[upstream.tool("count")]) as here:
        message = (await here.post(body(tools=TOOLS))).message
        sent = body(*follow(message, "found"), tools=TOOLS)
        for fails in (
            on("load", "call"),
            on("load", "batch"),
            on("touch", "batch"),
            on("load", "run"),
            on("save", "run"),
        ):
            flaky.store.fails = fails
            got = await here.post(sent)
            assert (got.status, got.error["code"]) == (503, "state_unavailable")
        assert len(upstream.requests) == 1
        flaky.store.fails = lambda operation, keys: False
        assert (await here.post(sent)).message["content"] == "done"
    no = "Tool call blocked by policy p/no: no"
    assert history(upstream.last)[2:] == [result(A, "found"), result(B, "ran"), result(C, no)]
    assert len(upstream.runs["count"]) == 1


# -- the upstream


@pytest.mark.parametrize("at", range(1, 9))
async def test_an_upstream_that_breaks_off(at: int, rules: str, upstream: FakeUpstream) -> None:
    """The client gets the events so far and an error event; a held call stays held, and nothing is in the ledger."""
    flaky = Flaky()
    made = events(*MIXED, text="Hello")
    upstream.script(Events(made, break_after=at))
    async with sidecall(upstream.url, services=flaky, policies=[rules], tools=[upstream.tool("count")]) as here:
        got = await here.post(body(tools=TOOLS, stream=True))
        assert not got.broken
        assert got.error["type"] == "upstream_error"
        shown = got.assembled()
        assert "Hello".startswith(shown["content"] or "")
        assert {c["function"]["name"] for c in shown.get("tool_calls", [])} <= {"search"}
        assert shown["finish"] is None
        assert not [key for key in flaky.store.saved if not key.startswith("meta:")]
    assert not upstream.runs["count"]


async def test_an_upstream_that_is_not_there(rules: str, upstream: FakeUpstream) -> None:
    """A refused connection is 502 in OpenAI's form, for streams too."""
    async with sidecall("http://127.0.0.1:9/v1", policies=[rules]) as here:
        for streams in (False, True):
            got = await here.post(body(tools=TOOLS, stream=streams))
            assert (got.status, got.error["type"]) == (502, "upstream_error")
            assert set(got.error) == {"message", "type", "param", "code"}
        assert here.value("upstream_errors_total", kind="connect") == 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_the_upstreams_own_errors_pass(status: int, streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Byte for byte, with their headers."""
    refusal = Whole(b'{"error" : {"message":"no", "odd": 1.10}}', status, {"retry-after": "7", "x-odd": "1"})
    upstream.script(refusal)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=TOOLS, stream=streams))
    assert (got.status, got.data) == (status, refusal.body)
    assert (got.headers["retry-after"], got.headers["x-odd"]) == ("7", "1")
    assert "x-sidecall-request-id" not in got.headers


async def test_a_continuation_that_the_upstream_refuses(rules: str, upstream: FakeUpstream) -> None:
    """The client gets that refusal."""
    refusal = Whole({"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}, 400)
    for streams in (False, True):
        upstream.script(stream(MIXED[2], text="Hm.") if streams else answer(MIXED[2]), refusal)
        async with sidecall(upstream.url, policies=[rules]) as here:
            got = await here.post(body(tools=TOOLS, stream=streams))
            assert got.error["code"] == "context_length_exceeded"
            assert got.status == (200 if streams else 400)


# -- streams


async def test_a_stream_of_text_passes_byte_for_byte(rules: str, upstream: FakeUpstream) -> None:
    """Comments, odd line ends, odd fields, vendor chunks: all of it, and each event when it comes."""
    gate = asyncio.Event()
    odd = Events(
        [
            b": hello\n\n",
            b'data:  {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"odd":1.10}]}\r\n\r\n',
            b'event: message\nid: 7\ndata: {"choices":[{"index":0,"delta":{"content":"\\u00e9"}}],"n":1.10}\n\n',
            gate,
            b'data: {"choices":[],"usage":{"total_tokens":1},"x_groq":{"id":"1"}}\n\n',
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
            b"retry: 10\n\n",
        ]
    )
    upstream.script(odd)
    async with sidecall(upstream.url, policies=[rules]) as here:
        head = {"authorization": "Bearer one"}
        sent = body(tools=TOOLS, stream=True)
        async with here.session.post(f"{here.url}/v1/chat/completions", json=sent, headers=head) as answered:
            found = b""
            while found.count(b"\n") < 8:
                found += await answered.content.readany()
            gate.set()
            found += await answered.content.read()
    assert found == odd.data()


async def test_a_call_is_let_go_as_soon_as_its_name_decides(rules: str, upstream: FakeUpstream) -> None:
    """Arguments that no rule reads stream through while the upstream goes on."""
    gate = asyncio.Event()
    made = events(call(A, "search", q="x" * 30))
    upstream.script(Events([*made[:3], gate, *made[3:]]))
    async with sidecall(upstream.url, policies=[rules]) as here:
        head = {"authorization": "Bearer one"}
        sent = body(tools=TOOLS, stream=True)
        async with here.session.post(f"{here.url}/v1/chat/completions", json=sent, headers=head) as answered:
            found = b""
            while found.count(b"\n\n") < 3:
                found += await answered.content.readany()
            gate.set()
            await answered.content.read()


@pytest.mark.parametrize(
    ("limits", "made"),
    [
        ({"heldBytes": "4Ki"}, [chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 1000}}]})] * 20),
        ({"batchCalls": 3}, [e for n in range(5) for e in events(call(f"call_{n:024}", "delete"))[1:-1]]),
        ({"eventBytes": "4Ki"}, [b"data: " + b"x" * 9000]),
        ({"eventBytes": "4Ki"}, [b"data: {}" + b" " * 9000 + b"\n\n"]),
        ({"bufferedBytes": "8Ki"}, [chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 1000}}]})] * 20),
        ({"nesting": 20}, [b'data: {"choices":[{"index":0,"delta":{"x":' + b"[" * 1100 + b"]" * 1100 + b"}}]}\n\n"]),
    ],
)
async def test_what_is_held_is_bounded(limits: Any, made: list[Any], upstream: FakeUpstream, tmp_path: Path) -> None:
    """A stream that would make the proxy hold more than it may ends in an error event, and no call gets through."""
    path = policy(tmp_path, rule("args", "delete", validate={"schema": {"type": "object"}}))
    head = events(call(A, "delete"))[:2]
    upstream.script(Events([*head, *made]))
    async with sidecall(upstream.url, policies=[path], limits=limits) as here:
        got = await here.post(body(tools=TOOLS, stream=True))
        assert got.error["message"]
        assert "tool_calls" not in got.assembled()
        assert here.running.services.budget.held == 0


@pytest.mark.parametrize(
    ("limits", "status"), [({"batchCalls": 3}, 502), ({"bufferedBytes": "4Ki"}, 503), ({"nesting": 20}, 502)]
)
async def test_an_answer_in_one_piece_is_bounded(limits: Any, status: int, rules: str, upstream: FakeUpstream) -> None:
    """Too many calls, too much at once over all requests, or nesting that nobody should read: an error, no calls."""
    deep: Any = "x"
    for _ in range(40 if "nesting" in limits else 1):
        deep = [deep]
    calls = [call(f"call_{n:024}", "search", text="x" * 1500) for n in range(4)]
    upstream.script(answer(*calls, odd=deep))
    async with sidecall(upstream.url, policies=[rules], limits=limits) as here:
        got = await here.post(body(tools=TOOLS))
        assert got.status == status, got.data
        assert here.running.services.budget.held == 0


async def test_a_client_that_leaves_ends_the_upstreams_stream(rules: str, upstream: FakeUpstream) -> None:
    """At once, and one that comes back with a surfaced id finds its batch."""
    never = asyncio.Event()
    made = events(call(A, "search"), call(B, "delete"))
    upstream.script(Events([*made, never]), answer(text="done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        head = {"authorization": "Bearer one"}
        sent = body(tools=TOOLS, stream=True)
        async with here.session.post(f"{here.url}/v1/chat/completions", json=sent, headers=head) as answered:
            found = b""
            while b'"finish_reason":"tool_calls"' not in found.replace(b": ", b":"):
                found += await answered.content.readany()
        async with asyncio.timeout(10):
            await upstream.gone.wait()
        await here.post(body(*follow(said(call(A, "search")), "found"), tools=TOOLS))
        assert len(history(upstream.last)) == 4


@pytest.mark.parametrize("body_sent", [b"not json", b'{"messages": []', b"[1]"])
async def test_a_body_that_is_no_request_is_the_upstreams_to_judge(
    body_sent: bytes, rules: str, upstream: FakeUpstream
) -> None:
    """It goes up as it came."""
    upstream.script(Whole({"error": {"message": "bad"}}, 400))
    async with sidecall(upstream.url, policies=[rules]) as here:
        assert (await here.post(body_sent)).status == 400
    assert upstream.last.body == body_sent


@pytest.mark.parametrize(
    "unclear", [b"\xef\xbb\xbf{}", b'{"messages":[],"messages":[]}', b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"]
)
async def test_a_body_that_reads_two_ways_is_refused(unclear: bytes, rules: str, upstream: FakeUpstream) -> None:
    """400, and the upstream never sees it."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(unclear)
        assert (got.status, got.error["code"]) == (400, "invalid_request_body")
    assert not upstream.requests


@pytest.mark.parametrize(
    ("odd", "refused"),
    [
        (b"<html>busy</html>", False),
        (b'{"choices": [{"message": {"content": "x"}}]} trailing', False),
        (b'{"choices": [{"message": {"tool_calls": [{"id": "a"}]}}]} trailing', True),
        (b'\xef\xbb\xbf{"choices": [{"message": {"function_call": {"name": "delete"}}}]}', True),
        (b'{"output": [{"type": "web_search_call"}]} x', True),
    ],
)
async def test_an_answer_that_is_no_json(odd: bytes, refused: bool, rules: str, upstream: FakeUpstream) -> None:
    """It passes untouched, unless a lenient reader finds something like a tool call."""
    upstream.script(Whole(odd, headers={"content-type": "text/html"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=TOOLS))
    if refused:
        assert (got.status, got.error["type"]) == (502, "upstream_error")
    else:
        assert (got.status, got.data) == (200, odd)


async def test_requests_share_no_state(rules: str, upstream: FakeUpstream) -> None:
    """Twenty conversations at once, each with its own batch, come back each to its own."""

    def reply(asked: Asked) -> Any:
        name = asked.messages[0]["content"]
        if len(asked.messages) > 1:
            return answer(text=f"{name} {asked.messages[3]['content']}")
        return answer(call(f"call_{name:0>24}", "search"), call(f"held_{name:0>24}", "count", n=int(name)))

    async def echo(asked: Asked) -> str:
        return str(asked.json["n"])

    upstream.always(reply)
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count", echo)]) as here:

        async def talk(number: int) -> Any:
            first = (await here.post(body(user(str(number)), tools=TOOLS))).message
            sent = follow(first, "found", before=(user(str(number)),))
            return (await here.post(body(*sent, tools=TOOLS))).message["content"]

        assert await asyncio.gather(*map(talk, range(20))) == [f"{n} {n}" for n in range(20)]
