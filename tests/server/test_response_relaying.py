"""Streams of responses on their way: what passes at once, what waits for the ledger, how they break and end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.flaky import Flaky, on
from tests.e2e.manners import Client
from tests.e2e.responses import (
    PATH,
    USAGE,
    A,
    B,
    C,
    answer_of,
    body,
    call,
    custom,
    events_of,
    message,
    named,
    read_strictly,
    reasoning,
    response,
    stream,
    streamed,
    user,
    whole,
)
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import Asked, Events, FakeUpstream, Whole

TEXT = "Let me see."


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
    )


@pytest.fixture
def stopping(tmp_path: Path) -> str:
    """A rule that may end a turn: no call goes before its batch is decided."""
    return policy(tmp_path, rule("enough", "stop", block={"message": "that is enough", "then": "stop"}))


async def test_a_stream_without_held_calls_passes_byte_for_byte(rules: str, upstream: FakeUpstream) -> None:
    """Every event as it came, with what an upstream says beside: comments, names, an end of its own."""
    made = [named(event) for event in events_of(response(reasoning(1), message(TEXT), call(A, "search", q="x")))]
    odd = b'event: response.vendor\r\ndata: {"type":"response.vendor", "n":1.10}\r\n\r\n'
    reply = Events([b": hello\n\n", *made[:4], odd, *made[4:]], done=True)
    upstream.script(reply)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
        assert here.value("batches_total", api="responses", kind="single") == 1
    assert got.data == reply.data()


@pytest.mark.parametrize("odd", ["null", "[]", '"x"', None])
@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_last_event_without_a_response(
    odd: str | None, rounds: int, rules: str, upstream: FakeUpstream
) -> None:
    """It is given what is known of the response where that changes; beside text alone it passes."""
    last = '{"type":"response.completed"' + (f',"response":{odd}' if odd else "") + "}"
    text = [named(event) for event in events_of(response(message(TEXT), number=2))][:-1]
    calls = [named(event) for event in events_of(response(call(A, "search"), call(C, "delete"), number=2))][:-1]
    for made, item in ((text, message(TEXT)), (calls, call(A, "search"))):
        reply = Events([*made, f"data: {last}\n\n".encode()], done=False)
        upstream.script(*[stream(call(B, "delete"))] * rounds, reply)
        async with sidecall(upstream.url, policies=[rules]) as here:
            got = await Client(here, streams=True).send(user())
        if made is text and not rounds:
            assert got.data == reply.data()
        else:
            assert got.events[-1]["type"] == "response.completed"
            assert got.events[-1]["response"]["output"] == [item]
            assert got.events[-1]["response"]["id"] == got.events[0]["response"]["id"]


@pytest.mark.parametrize("ends", [True, False])
async def test_text_goes_out_before_the_stream_ends(ends: bool, rules: str, upstream: FakeUpstream) -> None:
    """Nothing waits for what comes later: neither text nor the call that a rule allows by its name."""
    gate = asyncio.Event()
    made = [named(event) for event in events_of(response(message(TEXT), call(A, "search", q="x")))]
    at = len(made) - (1 if ends else 4)
    upstream.script(Events([*made[:at], gate, *made[at:]], done=False))
    async with sidecall(upstream.url, policies=[rules]) as here:
        found, got = await read_until(here, b"response.function_call_arguments.delta", gate)
    assert TEXT[2:].encode() in found
    assert got.data == b"".join(made)


async def test_calls_wait_for_their_batch_where_a_rule_may_end_the_turn(stopping: str, upstream: FakeUpstream) -> None:
    """Text does not, nor does what has nothing to do with the call."""
    gate = asyncio.Event()
    made = [named(event) for event in events_of(response(message(TEXT), call(A, "search", q="x")))]
    beside = named({"type": "response.vendor"})
    upstream.script(Events([*made[:-1], beside, gate, made[-1]], done=False))
    async with sidecall(upstream.url, policies=[stopping]) as here:
        found, got = await read_until(here, b"response.vendor", gate)
    assert TEXT[2:].encode() in found
    assert A.encode() not in found
    read = read_strictly([event for event in got.events if event["type"] != "response.vendor"])
    assert read.items == [message(TEXT), call(A, "search", q="x")]


async def read_until(here: Sidecall, mark: bytes, gate: asyncio.Event) -> tuple[bytes, Got]:
    """What has come of a stream when something stands in it; the gate is opened then, and the rest read."""
    headers = {"authorization": "Bearer one", "content-type": "application/json"}
    sent = json.dumps(body(user(), stream=True))
    async with here.session.post(f"{here.url}{PATH}", data=sent, headers=headers) as answer:
        found = b""
        async with asyncio.timeout(10):
            while mark not in found:
                found += await answer.content.readany()
        gate.set()
        return found, Got(answer.status, dict(answer.headers), found + await answer.read())


async def test_a_call_is_not_done_before_the_ledger_has_its_batch(rules: str, upstream: FakeUpstream) -> None:
    """Clients act on an item that is done: where a call could be held, it waits for what has to be kept."""
    flaky = Flaky()
    upstream.script(stream(call(A, "search", q="x"), call(B, "delete")))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        flaky.store.fails = on("save", "batch")
        got = await Client(here, streams=True).send(user())
    kinds = [event["type"] for event in got.events]
    assert "response.output_item.added" in kinds
    assert "response.output_item.done" not in kinds
    assert got.error["code"] == "state_unavailable"


async def test_nothing_of_a_held_call_reaches_the_client(rules: str, upstream: FakeUpstream) -> None:
    """Neither its name, its arguments, its ids, nor a place that it left."""
    items = [message(TEXT), call(A, "delete", path="secret"), custom(B, "delete", "secret"), call(C, "search")]
    upstream.script(stream(*items))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=True, tools=("search",)).say(user())
    assert answer.items == [items[0], items[3]]
    for word in (b"secret", b"delete", A.encode(), B.encode()):
        assert word not in answer.got.data


async def test_rewritten_arguments_stand_in_all_four_places(rules: str, upstream: FakeUpstream) -> None:
    """No event shows those that were rewritten; the reader compares the four."""
    upstream.script(stream(call(A, "cap", limit=500), call(B, "search")))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=True).say(user())
    assert b"500" not in answer.got.data
    assert json.loads(answer.items[0]["arguments"]) == {"limit": 10}
    kinds = [event["type"] for event in answer.got.events]
    assert kinds.count("response.function_call_arguments.done") == 2


async def test_a_continuation_goes_on_in_the_same_stream(rules: str, upstream: FakeUpstream) -> None:
    """One beginning, one end, numbers without gaps, one id throughout; usage of both at the end."""
    upstream.script(
        stream(message(TEXT, 1), call(A, "delete")),
        stream(reasoning(2), message("Done.", 2), number=2),
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=True).say(user())
        assert here.value("continuations_total", api="responses", end="text") == 1
        assert here.requests()[-1]["rounds"] == 1
    kinds = [event["type"] for event in answer.got.events]
    assert [kinds.count(f"response.{kind}") for kind in ("created", "in_progress", "completed")] == [1, 1, 1]
    assert answer.items == [message(TEXT, 1), reasoning(2), message("Done.", 2)]
    assert answer.response["usage"]["output_tokens"] == 2 * USAGE["output_tokens"]
    assert b"[DONE]" not in answer.got.data


async def test_an_end_of_the_upstreams_own_comes_once(rules: str, upstream: FakeUpstream) -> None:
    """A server that ends its streams as chat does has one end in the stream of two rounds."""
    upstream.script(
        streamed(response(call(A, "delete")), done=True),
        streamed(response(message("Done."), number=2), done=True),
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
    assert got.data.count(b"[DONE]") == 1
    assert got.data.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("at", range(1, 12))
async def test_a_stream_that_breaks_off_ends_in_an_error(at: int, rules: str, upstream: FakeUpstream) -> None:
    """What came before is there; no call of it is done, and nothing is continued."""
    made = stream(message(TEXT), call(A, "search", q="x"), call(B, "delete"))
    made.break_after = at
    upstream.script(made)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
        assert here.value("upstream_errors_total", kind="reset") == 1
    read = read_strictly(got.events)
    assert read.final is None
    assert [error["type"] for error in read.errors] == ["upstream_error"]
    assert all(item["type"] == "message" for number, item in enumerate(read.items) if number not in read.open)
    assert len(upstream.requests) == 1


async def test_a_stream_that_ends_without_an_end_counts_as_cut_short(rules: str, upstream: FakeUpstream) -> None:
    """The call that is held is left out, nothing is continued; the client gets what the upstream sent, and an error."""
    made = [named(event) for event in events_of(response(call(A, "search"), call(B, "delete")))]
    upstream.script(Events(made[:-1], done=False))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
    read = read_strictly(got.events)
    assert (read.items, read.final) == ([call(A, "search")], None)
    assert [error["type"] for error in read.errors] == ["upstream_error"]
    assert len(upstream.requests) == 1


async def test_a_continuation_that_is_no_stream_of_a_response(rules: str, upstream: FakeUpstream) -> None:
    """It ends in an error event."""
    upstream.script(stream(call(A, "delete")), whole(message("not a stream")))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
        assert here.value("continuations_total", api="responses", end="upstream_error") == 1
    assert got.error["type"] == "upstream_error"
    assert read_strictly(got.events).final is None


async def test_a_continuation_that_breaks_off_ends_in_an_error(rules: str, upstream: FakeUpstream) -> None:
    """Behind what came of it."""
    made = stream(message(TEXT, 2), call(B, "search"), number=2)
    made.break_after = 6
    upstream.script(stream(call(A, "delete")), made)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
        assert here.value("continuations_total", api="responses", end="upstream_error") == 1
    read = read_strictly(got.events)
    assert read.texts == {0: TEXT}
    assert [error["type"] for error in read.errors] == ["upstream_error"]


async def test_a_failure_of_the_upstreams_own_reaches_the_client(rules: str, upstream: FakeUpstream) -> None:
    """In its words; a held call beside it is left out."""
    failure = {"code": "server_error", "message": "the model fell over"}
    upstream.script(stream(call(A, "delete"), message(TEXT), status="failed", error=failure))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=True).say(user())
    assert answer.response["error"] == failure
    assert answer.items == [message(TEXT)]
    assert len(upstream.requests) == 1


async def test_a_message_of_our_own_comes_as_events(stopping: str, upstream: FakeUpstream) -> None:
    """Those that the upstream would have sent for it, behind what was streamed before."""
    upstream.script(stream(message("Well."), call(A, "search"), call(B, "stop")))
    async with sidecall(upstream.url, policies=[stopping]) as here:
        answer = await Client(here, streams=True).say(user())
    assert answer.texts == ["Well.", "that is enough"]
    own = [event for event in answer.got.events if event.get("output_index") == 1]
    assert [event["type"].removeprefix("response.") for event in own] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


async def test_a_client_that_goes_away_ends_the_upstreams_request(rules: str, upstream: FakeUpstream) -> None:
    """At once, in the middle of a continuation too."""
    never = asyncio.Event()
    made = [named(event) for event in events_of(response(message(TEXT), number=2))]
    upstream.script(stream(call(A, "delete")), Events([*made[:4], never], done=False))
    async with sidecall(upstream.url, policies=[rules]) as here:
        asking = asyncio.ensure_future(Client(here, streams=True).send(user()))
        await upstream.until(lambda: len(upstream.requests) == 2)
        asking.cancel()
        async with asyncio.timeout(10):
            await upstream.gone.wait()
        await asyncio.wait([asking])


async def test_headers_of_a_stream(rules: str, upstream: FakeUpstream) -> None:
    """Those of the first answer; what could be changed names the request."""
    made = stream(call(A, "delete"))
    made.headers = {"x-request-id": "one"}
    second = stream(message("Done."), number=2)
    second.headers = {"x-request-id": "two"}
    upstream.script(made, second)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
    assert got.headers["x-request-id"] == "one"
    assert got.headers["x-sidecall-request-id"]
    assert got.headers["content-type"].startswith("text/event-stream")


async def test_an_error_in_the_place_of_a_stream_passes(rules: str, upstream: FakeUpstream) -> None:
    """With its status, byte for byte."""
    upstream.script(Whole(b'{"error": {"message": "no"} }', 429, {"retry-after": "7"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=True).send(user())
    assert (got.status, got.data, got.headers["retry-after"]) == (429, b'{"error": {"message": "no"} }', "7")


async def test_a_whole_answer_to_a_request_for_a_stream_is_settled_whole(rules: str, upstream: FakeUpstream) -> None:
    """The answer says what it is, not the request."""

    def reply(asked: Asked) -> Whole:
        return whole(message("Done."), number=2) if len(upstream.requests) > 1 else whole(call(A, "delete"))

    upstream.always(reply)
    async with sidecall(upstream.url, policies=[rules]) as here:
        assert (await Client(here, streams=True).say(user())).texts == ["Done."]


async def test_the_clients_own_id_of_the_response_before_stands_in_every_event(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream knows it by another, which no event shows."""
    for said in ([call(A, "delete")], [message("one", 1)], [message("two", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams=True)
        first = await client.say(user())
        second = await client.say(user("more"))
    shown = [event["response"]["previous_response_id"] for event in second.got.events if "response" in event]
    assert set(shown) == {first.id}
    assert f"resp_{2:048}".encode() not in second.got.data


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_cut_at_any_place_a_stream_says_the_same(size: int, rules: str, upstream: FakeUpstream) -> None:
    """However the upstream's bytes come."""
    data = stream(reasoning(1), message("é😀"), call(A, "delete"), call(B, "cap", limit=99)).data()
    upstream.script(
        Events([data[at : at + size] for at in range(0, len(data), size)], done=False), Events([data], done=False)
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=True)
        cut, at_once = [answer_of(await client.send(user())) for _ in range(2)]
    assert [item | {"call_id": ""} for item in cut.items] == [item | {"call_id": ""} for item in at_once.items]
