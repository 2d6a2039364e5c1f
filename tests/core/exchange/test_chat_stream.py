"""A stream through the filter: whatever the upstream does, and wherever its bytes are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.exchange.judging import End
from tests.core.exchange.streams import (
    calls,
    entry,
    event,
    role,
    sse,
    text,
)
from tests.core.policy.engine import policies, rule
from tests.strictreader import data_of, read_strictly
from tests.transcript import Outcome, World, relay, single_bytes

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


@settings(max_examples=400, deadline=None, report_multiple_bugs=False)
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
