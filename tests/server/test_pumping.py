"""Bytes through a filter: text waits for nothing, what is held is counted, and an end is an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from proxy.core.exchange.steps import Send, Step
from proxy.server.pumping import Pump
from tests.e2e import responses
from tests.e2e.chat import PATH, A, B, C, body, call, chunk, events, stream
from tests.e2e.sidecall import Got, Sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole, framed
from tests.server.parts import Parts

TOOLS = ("search", "delete", "cap")


async def ask(here: Sidecall, **more: Any) -> Got:
    return await here.post(body(tools=TOOLS, stream=True, **more))


async def test_an_upstream_that_stays_open_behind_its_end(here: Sidecall, upstream: FakeUpstream) -> None:
    """A connection that is left open holds up no continuation."""
    never = asyncio.Event()
    upstream.script(Events([*events(call(A, "delete")), never], done=False), stream(text="done"))
    got = await ask(here)
    assert got.assembled()["content"] == "done"


TEXT, CALLS = events(text="Hm."), events(call(A, "search"), call(B, "delete"))
ITEMS = [responses.message("Hm."), responses.call(A, "search"), responses.call(B, "delete")]


@pytest.mark.parametrize("made", [TEXT[:-1], CALLS[:-1], TEXT[:1], []], ids=["text", "calls", "a role", "nothing"])
@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_chat_stream_without_an_end_ends_in_an_error(
    made: list[Any], rounds: int, here: Sidecall, upstream: FakeUpstream
) -> None:
    """Behind what came; in a later round too. Nothing of it is continued, and the same request asks anew."""
    upstream.script(*[stream(call(C, "delete"))] * rounds, Events(made, done=False), stream(text="anew"))
    got = await ask(here)
    assert got.events[-1]["error"]["type"] == "upstream_error"
    assert b"[DONE]" not in got.data
    assert b'"delete"' not in got.data
    assert (got.assembled()["content"] == "Hm.") is (made == TEXT[:-1])
    assert len(upstream.requests) == rounds + 1
    assert here.value("upstream_errors_total", kind="reset") == 1
    assert (await ask(here)).assembled()["content"] == "anew"


@pytest.mark.parametrize("made", [ITEMS[:1], ITEMS, []], ids=["text", "calls", "nothing"])
@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_response_without_an_end_ends_in_an_error(
    made: list[Any], rounds: int, here: Sidecall, upstream: FakeUpstream
) -> None:
    """As a chat stream does."""
    first = responses.stream(responses.call(C, "delete"))
    broken = Events(responses.stream(*made, number=2).events[:-1] if made else [], done=False)
    upstream.script(*[first] * rounds, broken, responses.stream(responses.message("anew"), number=3))
    sent = {**responses.body("hi"), "stream": True}
    got = await here.post(sent, path=responses.PATH)
    assert got.events[-1]["error"]["type"] == "upstream_error"
    assert b"response.completed" not in got.data
    assert b'"delete"' not in got.data
    assert len(upstream.requests) == rounds + 1
    assert b"anew" in (await here.post(sent, path=responses.PATH)).data


@pytest.mark.parametrize(
    "events_and_done",
    [(TEXT, False), (CALLS[:5], True), (TEXT[:-1], True), ([*TEXT, chunk(None, index=1)], False)],
    ids=["no last event", "calls without a finish", "text without a finish", "a choice that says nothing"],
)
async def test_a_chat_stream_with_an_end_of_either_kind_has_one(
    events_and_done: tuple[list[Any], bool], here: Sidecall, upstream: FakeUpstream
) -> None:
    """Many servers send no last event; some never say why a choice ends."""
    made, done = events_and_done
    upstream.script(Events(made, done=done))
    assert b"upstream_error" not in (await ask(here)).data


async def test_a_response_whose_last_event_is_that_of_a_chat_has_an_end(here: Sidecall, upstream: FakeUpstream) -> None:
    """The upstream said so."""
    upstream.script(Events(responses.stream(*ITEMS[:1]).events[:-1], done=True))
    got = await here.post({**responses.body("hi"), "stream": True}, path=responses.PATH)
    assert b"upstream_error" not in got.data


async def test_text_does_not_wait_for_a_call(here: Sidecall, upstream: FakeUpstream) -> None:
    """What is said while a call waits for its arguments reaches the client at once."""
    gate = asyncio.Event()
    made = events(call(A, "cap", n=99))
    upstream.script(Events([*made[:3], chunk({"content": "meanwhile"}), gate, *made[3:]]))
    sent = body(tools=TOOLS, stream=True)
    async with here.session.post(f"{here.url}/v1/chat/completions", json=sent) as answered:
        found = b""
        while b"meanwhile" not in found:
            found += await answered.content.readany()
        assert b"cap" not in found
        gate.set()
        assert b"cap" in await answered.content.read()


async def test_what_is_held_is_given_back(here: Sidecall, upstream: FakeUpstream) -> None:
    """Buffers that a stream took are free when it ends, however it ends."""
    made = events(call(A, "cap", text="x" * 5000))
    for script in (Events(made), Events(made, break_after=4)):
        upstream.script(script)
        await ask(here)
    assert here.running.services.budget.held == 0
    assert here.value("streams_active") == 0


@pytest.mark.parametrize("cut", [-1, -2, -3, -20], ids=["a line end", "two", "within", "early"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_body_that_ends_within_an_event(cut: int, api: str, here: Sidecall, upstream: FakeUpstream) -> None:
    """The beginning of an event does not go on; what has all its data does, and the error event stands apart."""
    made = TEXT[:-1] if api == "chat" else responses.stream(*ITEMS[:1]).events
    raw = b"".join(framed(event) for event in made[: 2 if api == "chat" else 5])
    upstream.script(Whole(raw[:cut], headers={"content-type": "text/event-stream"}))
    path = PATH if api == "chat" else responses.PATH
    sent = body(tools=TOOLS, stream=True) if api == "chat" else {**responses.body("hi"), "stream": True}
    got = await here.post(sent, path=path)
    assert got.events[-1]["error"]["type"] == "upstream_error"
    whole = [part for part in raw.split(b"\n\n") if part][: None if cut > -3 else -1]
    assert got.data.split(b"\n\n")[:-2] == whole
    assert b"x-sidecall" not in got.data


CHUNK = b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"delete"}}]}}]}'
ITEM = b'{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c","name":"delete"}}'


@pytest.mark.parametrize("line", [CHUNK, ITEM], ids=["chat", "responses"])
@pytest.mark.parametrize("end", [b"data: [DONE]", b'data: {"choices":[]}', b'data: {"type":"x"}', b"event: x"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_line_that_is_no_field_and_holds_a_call(
    line: bytes, end: bytes, api: str, here: Sidecall, upstream: FakeUpstream
) -> None:
    """Readers that go line by line would find it: it is refused, whatever stands beside it."""
    upstream.script(Whole(line + b"\n" + end + b"\n\n", headers={"content-type": "text/event-stream"}))
    sent = body(tools=TOOLS, stream=True) if api == "chat" else {**responses.body("hi"), "stream": True}
    got = await here.post(sent, path=PATH if api == "chat" else responses.PATH)
    assert b"delete" not in got.data
    assert b"upstream_error" in got.data


class Slow:
    """A filter that takes a second for 100 KB, as one does of events that say nothing."""

    waiting = over = broken_off = False
    kept_bytes = 0

    def __init__(self, there: Parts) -> None:
        self._there = there
        self.portions: list[int] = []

    def feed(self, data: bytes, now: float) -> list[Step]:
        self._there.clock.now += len(data) / 1e5
        self.portions.append(len(data))
        return [Send(data)]

    def finish(self, now: float) -> list[Step]:
        return []

    def abandon(self) -> list[Any]:
        return []


class Pieces:
    """What an upstream sends, and what reaches the client."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.out = b""

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    async def write(self, data: bytes) -> None:
        self.out += data


async def test_many_events_in_one_read_let_others_run() -> None:
    """The loop turns after each portion, and portions that take long become smaller."""
    there = Parts()
    slow, both, turns = Slow(there), Pieces(bytes(100_000), bytes(30_000)), 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(other())
    none: Any = None
    pump = Pump(there.services, cast(Any, both), none, ended=none, goes_on=lambda: False)
    await pump.run(cast(Any, both), cast(Any, slow))
    beside.cancel()
    assert both.out == bytes(130_000)
    assert max(slow.portions[3:]) == 2048
    assert turns >= len(slow.portions) - 2, "after the last portion of each piece the next one is read"
