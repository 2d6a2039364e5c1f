"""A stream through the filter: whatever the upstream does, and wherever its bytes are cut."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.calls import RequestFacts
from proxy.core.exchange.chat_events import Lead
from proxy.core.exchange.chat_stream import ChatStream
from proxy.core.exchange.judging import End, Judge
from proxy.core.exchange.steps import Ended, LookUp, Send, Step, StreamLimits
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.protocol.chat import read_request
from proxy.core.protocol.sse import EventSplitter
from tests.core.exchange.streams import (
    RULES,
    USAGE,
    WORLD,
    A,
    B,
    calls,
    entry,
    event,
    role,
    split,
    sse,
    text,
    usage,
    whole,
)
from tests.core.policy.engine import policies, rule
from tests.strictreader import Folded, data_of, read_strictly
from tests.transcript import BOUNDS, LIMITS, Outcome, World, lines, relay, single_bytes, ways_to_cut

ACTIONS: dict[str, dict[str, Any]] = {
    "free": {},
    "blocked": {"block": {"message": "no"}},
    "judged": {"when": "has(args.limit) && args.limit > 10", "block": {"message": "too much"}},
    "answered": {"answer": {"content": "pong"}},
    "clamped": {"rewrite": {"clamp": {"limit": {"max": 10}}}},
    "put_off": {"defer": {}},
    "stops": {"block": {"message": "That ends it.", "then": "stop"}},
    "fails": {"block": {"message": "Refused.", "then": "fail"}},
}
HELD = {"blocked", "answered", "stops", "fails"}


def rules_for(names: set[str], most: int | None) -> World:
    found = [rule(name, name=name, **ACTIONS[name]) for name in ACTIONS if name in names and ACTIONS[name]]
    spec: dict[str, Any] = {"rules": found}
    if most is not None:
        spec["batch"] = {"maxParallel": most}
    return World(policies(spec))


@st.composite
def entries_of(draw: st.DrawFn, ordinal: int, style: str) -> tuple[str, str, list[dict[str, Any]]]:
    """A call: its tool, a mark that only its arguments have, and its fragments in some server's manner."""
    name = draw(st.sampled_from(sorted(ACTIONS)))
    mark = f"mark{ordinal}x"
    args = json.dumps({"q": mark, "limit": draw(st.sampled_from([3, 10, 11, 50]))})
    strong = "call_" + chr(97 + ordinal) * 20
    call_id = draw(st.sampled_from([strong, strong, strong, f"{name}:{ordinal}"]))
    if style == "missing":
        return name, mark, [entry(None, call_id, name, args)]
    index = {"normal": ordinal, "zero": 0, "from_one": ordinal + 1}[style]
    cuts = sorted(draw(st.lists(st.integers(1, len(args) - 1), max_size=3, unique=True)))
    pieces = [args[a:b] for a, b in itertools.pairwise([0, *cuts, len(args)])]
    manner = draw(st.sampled_from(["openai", "whole", "repeats", "name_in_pieces", "args_first", "empty_again"]))
    if manner == "whole":
        return name, mark, [entry(index, call_id, name, args)]
    if manner == "repeats":
        return name, mark, [entry(index, call_id, name, piece) for piece in pieces]
    if manner == "empty_again":
        return name, mark, [entry(index, call_id, name, ""), *(entry(index, "", "", piece) for piece in pieces)]
    if manner == "name_in_pieces":
        heads = [entry(index, call_id, name[:2], ""), entry(index, None, name[2:], "")]
        return name, mark, [*heads, *(entry(index, args=piece) for piece in pieces)]
    if manner == "args_first" and style != "zero":
        first, *rest = pieces
        late = [entry(index, args=piece) for piece in rest]
        return name, mark, [entry(index, call_id, None, first), entry(index, None, name), *late]
    return name, mark, [entry(index, call_id, name, ""), *(entry(index, args=piece) for piece in pieces)]


class Made:
    """A batch of calls as (tool, mark, id), the events that bring it, and rules."""

    def __init__(self, batch: list[tuple[str, str, str]], events: list[dict[str, Any]], most: int | None) -> None:
        self.batch = batch
        self.events = events
        self.most = most

    def __repr__(self) -> str:
        shown = (one["choices"][0] for one in self.events)
        return "\n".join([f"most {self.most}", *(f"{c['delta']} {c['finish_reason']}" for c in shown)])

    @property
    def world(self) -> World:
        return rules_for({name for name, _, _ in self.batch}, self.most)


@st.composite
def batches(draw: st.DrawFn) -> Made:
    style = draw(st.sampled_from(["normal", "normal", "normal", "missing", "zero", "from_one"]))
    made = [draw(entries_of(ordinal, style)) for ordinal in range(draw(st.integers(1, 4)))]
    queues = [list(fragments) for _, _, fragments in made]
    events: list[dict[str, Any]] = [role()]
    interleaved = style == "normal" and draw(st.booleans())
    opened = 0
    while any(queues):
        ready = [q for q in queues if q]
        queue = ready[0]
        if interleaved and opened < len(queues):
            queue = queues[opened]  # heads come in the model's order
            opened += 1
        elif interleaved:
            queue = draw(st.sampled_from(ready))
        events.append(calls(queue.pop(0)))
        if draw(st.integers(0, 4)) == 0:
            events.append(text(f"t{len(events)} "))
    finish = draw(st.sampled_from(["tool_calls", "tool_calls", "stop", "length", "content_filter"]))
    events.append(event({}, finish))
    ids = [next(e["id"] for e in fragments if e.get("id")) for _, _, fragments in made]
    batch = [(name, mark, i) for (name, mark, _), i in zip(made, ids, strict=True)]
    return Made(batch, events, draw(st.sampled_from([None, None, None, 1])))


NEXT = sse(role(), text("goes on"), event({}, "stop"))


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(batches())
def test_nothing_of_a_held_call_is_sent_and_surfaced_calls_come_whole_and_in_order(made: Made) -> None:
    """Whatever the batch and the verdicts: held calls leave no trace, the others arrive, nothing else changes."""
    data = sse(*made.events)
    got = relay(made.world, data, NEXT)
    check_outcome(made.batch, made.events, got)
    assert relay(made.world, single_bytes(data), NEXT).text == got.text


def check_outcome(batch: list[tuple[str, str, str]], events: list[dict[str, Any]], got: Outcome) -> None:
    ended = got.ended[0]
    assert [j.call.name for j in ended.batch] == [name for name, _, _ in batch]
    stages = ended.conclusion.stages
    surfaced = [call for call, stage in zip(batch, stages, strict=True) if stage == 0]
    for name, mark, call_id in (call for call, stage in zip(batch, stages, strict=True) if stage != 0):
        traces = [mark, call_id] + [name] * (name not in [n for n, _, _ in surfaced])
        assert not [trace for trace in traces if trace.encode() in got.out]
    if ended.conclusion.end is End.FAIL:
        assert got.error is not None
        return
    rewritten = any(j.verdict.text is not None for j, stage in zip(ended.batch, stages, strict=True) if stage == 0)
    if len(surfaced) == len(batch) and not rewritten:
        assert_untouched(events, got.out)
        return
    read = read_strictly(got.out, repeats=True).choices[0]
    assert read.content.startswith("".join(filter(None, map(said_by, events))))
    assert read.names == [name for name, _, _ in surfaced]
    for (_, mark, _), call in zip(surfaced, read.calls, strict=True):
        assert mark in json.loads(call[3])["q"]


def said_by(one: dict[str, Any]) -> str | None:
    content: str | None = one["choices"][0]["delta"].get("content")
    return content


def assert_untouched(events: list[dict[str, Any]], out: bytes) -> None:
    """Every event as it came; text may have come before a call that waited, and a call before one that came later."""
    assert sorted(out.split(b"\n\n")) == sorted(sse(*events).split(b"\n\n"))
    sent = [json.loads(data) for data in data_of(out)[:-1]]
    for thread in map(thread_of, events):
        assert [one for one in sent if thread_of(one) == thread] == [one for one in events if thread_of(one) == thread]
    assert sent[-1] == events[-1]


def thread_of(one: dict[str, Any]) -> Any:
    """What an event goes on with: a call, by its number, or the text."""
    entries = one["choices"][0]["delta"].get("tool_calls")
    return entries[0].get("index") if entries else "text"


# ---------------------------------------------------------------- text waits for nothing


@settings(max_examples=50, deadline=None, report_multiple_bugs=False)
@given(batches())
def test_text_is_out_with_the_bytes_that_complete_it(made: Made) -> None:
    """Whatever is held: an event without a call is in what comes out of the very feed that brought its last byte."""
    data = sse(*made.events)
    for pieces in (single_bytes(data), events_of(data)):
        got = relay(made.world, pieces, NEXT)
        for event_bytes, sent in completed_by(pieces, got):
            value = json.loads(event_bytes[6:]) if event_bytes.startswith(b"data: {") else None
            if (
                value
                and not value["choices"][0].get("finish_reason")
                and "tool_calls" not in value["choices"][0]["delta"]
            ):
                assert event_bytes in sent


def events_of(data: bytes) -> list[bytes]:
    return [event.raw for event in EventSplitter().feed(data)]


def completed_by(pieces: list[bytes], got: Outcome) -> list[tuple[bytes, bytes]]:
    """Each event with what came out of the feed that completed it."""
    splitter = EventSplitter()
    return [(e.raw, sent) for piece, sent in zip(pieces, got.feeds, strict=False) for e in splitter.feed(piece)]


def test_text_goes_on_while_an_answer_is_long_in_coming() -> None:
    """Neither bytes that come later nor those that came with the question wait for it."""
    stream, lead = a_stream(WORLD)
    data = sse(role(), *split(0, A, "show", "{}"), text("same bytes"), done=False)
    steps = stream.feed(data, 0.0)
    assert [type(step) for step in steps] == [Send, LookUp]
    assert stream.waiting
    assert sent_by(stream.go_on(0.0)) == sse(text("same bytes"), done=False)
    assert not stream.waiting
    assert sent_by(stream.feed(sse(text("later"), done=False), 0.0)) == sse(text("later"), done=False)
    rest = sse(event({}, "tool_calls"), event({"content": ""}, usage=USAGE), usage())
    assert sent_by(stream.feed(rest, 0.0)) == b""
    ended = stream.known((0, 0), False, 0.0)
    assert sent_by(ended) == sse(*split(0, A, "show", "{}"), done=False)
    last = ended[-1]
    assert isinstance(last, Ended)
    assert sent_by(stream.surface(0, last.conclusion, [None])) == rest
    assert lead.rounds == 1


@pytest.mark.parametrize(
    ("data", "broken"),
    [
        (b"", True),
        (b": ping\n\n", True),
        (sse(role(), text("a"), done=False), True),
        (sse(role(), whole(0, A, "show"), done=False), True),
        (sse(role(), event({}, "stop"), done=False), False),
        (sse(role(), text("a")), False),
        (sse(role(), {"error": {"message": "x"}}, done=False), False),
    ],
)
def test_whether_a_stream_has_an_end(data: bytes, broken: bool) -> None:
    """However it is cut."""
    for pieces in ways_to_cut(data):
        stream, _ = a_stream(WORLD)
        for piece in pieces:
            stream.feed(piece, 0.0)
        stream.finish(0.0)
        assert stream.broken_off is broken


STOPS = policies([rule("stop_*", block={"message": "That ends it.", "then": "stop"})])


def a_stream(world: World) -> tuple[ChatStream, Lead]:
    lead, turns = Lead(), {0: ChoiceTurn()}
    judge = Judge(world.policies.for_request(world.facts), world.facts, ())
    stream = ChatStream(
        judge, lead, turn_of=turns.__getitem__, bounds=world.bounds, limits=world.limits, used_ids=frozenset()
    )
    return stream, lead


def sent_by(steps: list[Step]) -> bytes:
    return b"".join(step.data for step in steps if isinstance(step, Send))


# ---------------------------------------------------------------- ids, limits, ends


@pytest.mark.parametrize(
    ("call_id", "world"),
    [
        ("search:0", World(RULES)),
        ("", World(RULES)),
        (B, World(RULES, in_history=frozenset([B]))),
        (B, World(RULES, in_ledger=frozenset([B]))),
    ],
)
def test_an_id_that_could_be_anothers_is_given_anew_in_a_split_batch(call_id: str, world: World) -> None:
    """The whole call waits for that, and keeps its arguments."""
    data = sse(role(), whole(0, A, "delete_file"), *split(1, call_id, "show", '{"a":1}'), event({}, "tool_calls"))
    for pieces in ([data], single_bytes(data)):
        read = read_strictly(relay(world, pieces).out).choices[0]
        assert read.calls == [["call_fresh000000000000000001", "function", "show", '{"a":1}']]


def test_an_id_of_the_ledger_is_given_anew_in_a_batch_without_held_calls() -> None:
    """Only that makes such a batch an entry."""
    data = sse(role(), *split(0, B, "show", "{}"), event({}, "tool_calls"))
    assert relay(World(RULES, in_history=frozenset([B])), data).out == data
    read = read_strictly(relay(World(RULES, in_ledger=frozenset([B])), data).out).choices[0]
    assert [call[0] for call in read.calls] == ["call_fresh000000000000000001"]


@pytest.mark.parametrize(
    ("limits", "data"),
    [
        (replace(LIMITS, event_bytes=300), sse(role(), b"data: " + b"x" * 400)),
        (replace(LIMITS, batch_calls=2), sse(role(), *(whole(n, A + str(n), "search") for n in range(3)))),
        (replace(LIMITS, held_bytes=900), sse(role(), *(whole(n, A + str(n), "search") for n in range(9)))),
    ],
)
def test_what_is_held_has_a_limit(limits: StreamLimits, data: bytes) -> None:
    """Beyond it the answer is broken off; what came before has been sent."""
    got = relay(World(STOPS, limits=limits), single_bytes(data))
    assert got.error is not None
    assert got.error.code == "limit_exceeded"
    assert got.out.startswith(sse(role(), done=False))
    assert not [data for data in data_of(got.out) if b"tool_calls" in data]


def test_a_turn_that_is_stopped_ends_with_the_message_behind_its_text() -> None:
    """Also where text, calls and end came in one event; the end is said once."""
    world = World(STOPS)
    apart = sse(role(), text("Hm."), whole(0, A, "search"), whole(1, B, "stop_it"), event({}, "tool_calls"))
    at_once = sse(calls(entry(0, B, "stop_it", "{}"), finish="tool_calls", role="assistant", content="Hm."))
    twice = sse(role(), text("Hm."), whole(0, B, "stop_it"), event({}, "tool_calls"), event({}, "tool_calls"), usage())
    for data, pieces in ((d, p) for d in (apart, at_once, twice) for p in ([d], single_bytes(d))):
        read = read_strictly(relay(world, pieces).out)
        assert read.choices[0] == Folded("assistant", "Hm.\n\nThat ends it.", finish="stop"), data
    assert read.usage == USAGE


def test_a_failed_turn_gives_nothing_of_its_calls() -> None:
    """What was text has been sent; the server tells the rest."""
    world = World(policies([rule("fail_*", block={"message": "Refused.", "then": "fail"})]))
    data = sse(role(), text("Hm."), whole(0, A, "search"), whole(1, B, "fail_it"), event({}, "tool_calls"))
    for pieces in ([data], single_bytes(data)):
        got = relay(world, pieces)
        assert got.error is not None
        assert got.out == sse(role(), text("Hm."), done=False)


@pytest.mark.parametrize("may_count", [True, False])
def test_a_call_waits_for_what_the_world_says(may_count: bool) -> None:
    """A limit is asked for, and decides."""
    limits = policies([rule("search", limit={"max": 1, "per": "1h"})])
    data = sse(role(), *split(0, A, "search", "{}"), text("b"), event({}, "tool_calls"))
    got = relay(World(limits, may_count=may_count), data, NEXT)
    assert (got.out == data) is may_count
    assert (b"search" in got.out) is may_count
    assert relay(World(limits, may_count=may_count), single_bytes(data), NEXT).out == got.out


def test_a_turn_of_which_nothing_is_left_to_show_says_why_also_where_it_has_no_end() -> None:
    """A strict client needs an end."""
    world = World(RULES, bounds=replace(BOUNDS, most=0))
    read = read_strictly(relay(world, sse(role(), *HIDDEN), answer(role())).out).choices[0]
    assert read == Folded("assistant", LIMIT_REACHED, finish="stop")


def test_a_filter_knows_when_its_turns_are_over() -> None:
    """Then nothing but usage and the last event can come."""
    stream, _ = a_stream(WORLD)
    assert not stream.over
    stream.feed(sse(role(), text("a"), done=False), 0.0)
    assert not stream.over
    stream.feed(sse(event({}, "stop"), done=False), 0.0)
    assert stream.over


def test_decided_calls_of_a_broken_stream_are_told() -> None:
    """Every call that a model makes counts, also when its turn never ends."""
    data = sse(
        role(), *split(0, A, "search", '{"limit":1}'), *split(1, B, "delete_file", "{}"), {"error": {"message": "m"}}
    )
    got = relay(WORLD, data)
    assert [judged.call.name for judged in got.told] == ["search", "delete_file"]


# ---------------------------------------------------------------- rounds behind one answer


def answer(*events: dict[str, Any] | bytes, number: int = 2) -> bytes:
    """A later answer, with an id and a time of its own."""
    changed = [
        {**e, "id": f"chatcmpl-{number}", "created": 1700000000 + number} if isinstance(e, dict) else e for e in events
    ]
    return sse(*changed)


HIDDEN = [whole(0, A, "delete_file"), event({}, "tool_calls")]


def test_all_rounds_are_one_answer() -> None:
    """One id and time, one role, texts parted by a blank line, usage added up, one end."""
    first = sse(role(), text("One"), text("."), *HIDDEN, usage())
    second = answer(role(), text("Two"), *HIDDEN, usage())
    third = answer(
        role(),
        text(""),
        text("Three"),
        *split(0, B, "search", '{"limit":50}'),
        event({}, "tool_calls"),
        usage(),
        number=3,
    )
    for pieces in ([first], single_bytes(first)):
        got = relay(WORLD, pieces, second, third)
        read = read_strictly(got.out)
        call = [B, "function", "search", '{"limit":10}']
        assert read.choices == {0: Folded("assistant", "One.\n\nTwo\n\nThree", calls=[call], finish="tool_calls")}
        assert (read.usage, read.done, read.id) == ({k: 3 * v for k, v in USAGE.items()}, 1, "chatcmpl-1")
        assert b'"created":1700000002' not in got.out


def test_usage_is_added_up_where_it_comes_with_the_end() -> None:
    """Details too; where it came in a chunk of a choice, it stays in one."""
    used = {"prompt_tokens": 1, "details": {"cached": 2}}
    first = sse(role(), whole(0, A, "delete_file"), event({}, "tool_calls", usage=used))
    second = answer(role(), text("done"), event({}, "stop", usage=used))
    read = read_strictly(relay(WORLD, first, second).out)
    assert read.usage == {"prompt_tokens": 2, "details": {"cached": 4}}


def test_a_text_beside_a_call_that_goes_is_parted_from_the_next_round_only() -> None:
    """The blank line stands before the first text of a round that follows a text, wherever that text stands."""
    first = sse(calls(entry(0, A, "delete_file", "{}"), finish="tool_calls", role="assistant", content="One"))
    second = answer(
        calls(entry(0, A, "delete_file", "{}"), role="assistant", content="Two"), text("!"), event({}, "tool_calls")
    )
    third = answer(event({"role": "assistant", "content": "Three"}, "stop"), number=3)
    assert read_strictly(relay(WORLD, first, second, third).out).choices[0].content == "One\n\nTwo!\n\nThree"


def test_a_choice_is_continued_by_itself() -> None:
    """The answer to its continuation has one choice of number 0; the client sees it under its own."""
    first = sse(
        role(0),
        role(1),
        text("a"),
        event({}, "stop"),
        *(dict(e, choices=[dict(e["choices"][0], index=1)]) for e in HIDDEN),
    )
    read = read_strictly(relay(WORLD, first, answer(role(), text("b"), event({}, "stop"))).out)
    assert read.choices == {0: Folded("assistant", "a", finish="stop"), 1: Folded("assistant", "b", finish="stop")}


def test_of_a_continuation_one_choice_is_taken() -> None:
    """Some upstreams give more choices than they were asked for, in events of their own or together."""
    first = sse(role(), *HIDDEN)
    apart = answer(role(), text("b"), text("x", index=1), event({}, "stop", index=1), event({}, "stop"))
    both = dict(event(), choices=[*text("b")["choices"], *text("x", index=1)["choices"]])
    for second in (apart, answer(role(), both, event({}, "stop"), event({}, "stop", index=1))):
        read = read_strictly(relay(WORLD, first, second).out)
        assert read.choices == {0: Folded("assistant", "b", finish="stop")}


def test_calls_of_the_last_round_are_dropped_when_no_more_are_allowed() -> None:
    """What is said stays; where nothing is, a sentence says why."""
    world = World(RULES, bounds=replace(BOUNDS, most=0))
    first = sse(role(), *HIDDEN)
    says = answer(role(), text("Well."), whole(0, B, "show"), event({}, "tool_calls"), usage())
    mute = answer(role(), whole(0, B, "show"), event({}, "tool_calls"))
    assert read_strictly(relay(world, first, says).out).choices[0] == Folded("assistant", "Well.", finish="stop")
    shown = read_strictly(relay(world, first, mute).out).choices[0]
    assert shown == Folded("assistant", LIMIT_REACHED, finish="stop")


def test_a_model_that_was_denied_too_often_is_stopped() -> None:
    """A block in the next batch ends the turn with that rule's message."""
    data = sse(role(), *split(0, B, "show", "{}"), whole(1, A, "delete_file"), event({}, "tool_calls"))
    read = read_strictly(relay(World(RULES, denied=5), data).out).choices[0]
    assert read == Folded("assistant", "Not here.", finish="stop")


def test_an_error_in_a_later_round_is_the_end() -> None:
    """It goes on as it came."""
    got = relay(WORLD, sse(role(), *HIDDEN, usage()), answer(role(), {"error": {"message": "m"}}))
    assert read_strictly(got.out).errors == [{"message": "m"}]


# ---------------------------------------------------------------- recordings

RECORDINGS = Path(__file__).parent.parent.parent / "recordings"


@pytest.mark.parametrize("case", sorted(path.name for path in RECORDINGS.iterdir()))
def test_a_recording_comes_out_the_same_however_it_is_cut(case: str) -> None:
    """Whole, byte by byte, and cut at each point."""
    folder = RECORDINGS / case
    request = read_request((folder / "request.json").read_bytes(), 128)
    world = World(RULES, RequestFacts(model=str(request.value["model"]), declared=request.declared))
    upstream, wanted = (folder / "upstream.sse").read_bytes(), (folder / "client.sse").read_bytes()
    more = [path.read_bytes() for path in sorted(folder.glob("upstream-*.sse"))]
    for pieces in ways_to_cut(upstream):
        assert blank_lines_alike(relay(world, pieces, *more).out) == blank_lines_alike(wanted)


def blank_lines_alike(out: bytes) -> str:
    """Which line end a blank line gets depends on the cut, where a CR and its LF come apart."""
    return lines(re.sub(rb"(?:\r\n|\r|\n){2,}", b"\n\n", out))
