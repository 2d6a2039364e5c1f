from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.batch.ledger import Run, RunState
from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult, TurnRecord
from proxy.core.batch.rejoin import (
    ABANDONED,
    Found,
    Kept,
    Piece,
    Progress,
    PutBatch,
    PutRound,
    PutText,
    denied_in_a_row,
    find,
    pieces,
)
from proxy.core.calls import BatchId, CallId, Owner, ToolCall
from proxy.core.history import Entry, EntryKind
from tests.core.batch.conversations import Message, World, worlds

PLENTY = 1 << 30
B = BatchId("b")


# ---------------------------------------------------------------- whole conversations


def values(messages: Iterable[bytes]) -> list[Message]:
    return [json.loads(message) for message in messages]


@given(worlds)
def test_the_model_sees_what_it_said(world: World) -> None:
    """Whatever was split, hidden, put off, renamed or rewritten, every history is again the one that the model made."""
    for kept, seen in world.grown:
        assert values(world.rejoined(kept)) == seen


@given(worlds)
def test_a_history_keeps_its_bytes_as_it_grows(world: World) -> None:
    """What the upstream saw on one request it sees again, to the byte, on every later one."""
    earlier: list[bytes] = []
    for kept, _ in world.grown:
        now = world.rejoined(kept)
        assert now[: len(earlier)] == earlier
        assert world.rejoined(kept) == now
        earlier = now


@given(worlds, st.integers(0, 60))
def test_trimming_takes_the_oldest_results_first(world: World, room: int) -> None:
    """With little room the hidden results at the end stay, and only results of hidden rounds are ever trimmed."""
    whole, trimmed = values(world.rejoined(world.kept)), values(world.rejoined(world.kept, room))
    assert len(whole) == len(trimmed)
    hidden = [(a, b) for a, b in zip(whole, trimmed, strict=True) if str(a["content"]).startswith("hidden ")]
    assert all(a == b for a, b in zip(whole, trimmed, strict=True) if (a, b) not in hidden)
    cut = [b["content"] == "(trimmed)" for _, b in hidden]
    assert cut == sorted(cut, reverse=True)
    left = sum(len(a["content"]) for (a, _), gone in zip(hidden, cut, strict=True) if not gone)
    assert left <= room
    assert world.rejoined(world.kept, room) == world.rejoined(world.kept, room)


def pairs_of(kept: list[Message]) -> list[tuple[int, int]]:
    """Every call of a history that is shown: its message and its place in it."""
    return [(i, at) for i, m in enumerate(kept) for at in range(len(m.get("tool_calls", [])))]


def without_pair(kept: list[Message], index: int, at: int) -> list[Message]:
    """The history without a call and its result, as a client that cleans up leaves it."""
    message = kept[index]
    call_id = message["tool_calls"][at]["id"]
    calls = [c for n, c in enumerate(message["tool_calls"]) if n != at]
    out = [m for m in kept if m.get("tool_call_id") != call_id]
    place = next(n for n, m in enumerate(out) if m is message)
    out[place : place + 1] = [{**message, "tool_calls": calls}] if calls else []
    return out


def with_call(kept: list[Message], index: int, call: Message) -> list[Message]:
    """The history with another call in a message, and its result behind the others."""
    out = list(kept)
    out[index] = {**out[index], "tool_calls": [*out[index]["tool_calls"], call]}
    end = index + 1
    while end < len(out) and out[end]["role"] == "tool":
        end += 1
    out.insert(end, {"role": "tool", "tool_call_id": call["id"], "content": "own"})
    return out


def with_function(kept: list[Message], index: int, at: int, **function: str) -> list[Message]:
    out = list(kept)
    calls = list(out[index]["tool_calls"])
    calls[at] = {**calls[at], "function": {**calls[at]["function"], **function}}
    out[index] = {**out[index], "tool_calls": calls}
    return out


@st.composite
def edited(draw: st.DrawFn) -> tuple[World, list[Message]]:
    """A conversation, and its history as a client left it that edits, but leaves no call without its result."""
    world = draw(worlds)
    kept = list(world.kept)
    for number in range(draw(st.integers(1, 4))):
        shown = pairs_of(kept)
        how = draw(st.sampled_from(["truncate", "fork", "drop", "edit", "rename", "add", "results"]))
        users = [i for i, m in enumerate(kept) if m["role"] == "user"]
        if how == "truncate":
            kept = kept[draw(st.sampled_from(users)) :]
        elif how == "fork":
            kept = [*kept[: draw(st.sampled_from(users))], {"role": "user", "content": "another way"}]
        elif how == "results":
            kept = [{**m, "content": "other"} if m["role"] == "tool" else m for m in kept]
        elif shown:
            index, at = draw(st.sampled_from(shown))
            if how == "drop":
                kept = without_pair(kept, index, at)
            elif how == "edit":
                kept = with_function(kept, index, at, arguments='{"mine":1}')
            elif how == "rename":
                kept = with_function(kept, index, at, name="another")
            else:
                call = {"id": f"own_{number}", "type": "function", "function": {"name": "mine", "arguments": "{}"}}
                kept = with_call(kept, index, call)
    return world, kept


def check_well_formed(messages: list[Message]) -> None:
    """Every call has one result directly behind its message, and no result stands elsewhere."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        assert message["role"] != "tool", "a result without its call"
        ids = [call["id"] for call in message.get("tool_calls", [])]
        assert len(set(ids)) == len(ids)
        assert "tool_calls" not in message or ids
        answered = []
        while at < len(messages) and messages[at]["role"] == "tool":
            answered.append(messages[at]["tool_call_id"])
            at += 1
        assert sorted(answered) == sorted(ids)


@given(edited())
def test_an_edited_history_stays_well_formed(made: tuple[World, list[Message]]) -> None:
    """A client may cut, fork, clean up, edit and add: every call that goes up has one result right behind it."""
    world, kept = made
    check_well_formed(kept)
    if any(anchor.progress is Progress.DUE for anchor in world.found(kept).anchors):
        return  # the client gets what is due, and the upstream is not asked
    messages = values(world.rejoined(kept))
    check_well_formed(messages)
    own = [m["content"] for m in kept if m["role"] == "user"]
    assert [m["content"] for m in messages if m["role"] == "user"] == own


@given(edited())
def test_an_edited_history_is_the_same_on_every_request(made: tuple[World, list[Message]]) -> None:
    """An edited history is put back in one way, and goes on as it began when the client goes on with it."""
    world, kept = made
    more = [*kept, {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}]
    if any(anchor.progress is Progress.DUE for anchor in world.found(kept).anchors):
        return
    first, later = world.rejoined(kept), world.rejoined(more)
    assert later[: len(first)] == first
    assert values(later[len(first) :]) == more[-2:]


# ---------------------------------------------------------------- one batch


def call(call_id: str, name: str = "t") -> ToolCall:
    return ToolCall(CallId(call_id), name, "{}")


def record(call_id: str, stage: int | None = None, *, given: str = "", **more: Any) -> CallRecord:
    owner = Owner.PROXY if stage is None else Owner.CLIENT
    return CallRecord(call(call_id), "{}", owner, given or ("" if stage is None else call_id), stage=stage, **more)


def batch_of(*calls: CallRecord, rounds: tuple[Round, ...] = ()) -> BatchRecord:
    return BatchRecord(B, "{}", "", calls, rounds)


def history(text: str) -> list[Entry]:
    """Entries from words: `u`, `t`, `o`; `c:A,B` is a message with calls, `r:A` a result; a call may be `id/name`."""
    found = []
    kinds = {"u": EntryKind.USER, "t": EntryKind.TEXT, "o": EntryKind.OTHER}
    for index, word in enumerate(text.split()):
        kind, _, rest = word.partition(":")
        if kind == "c":
            made = tuple(call(name.partition("/")[0], name.partition("/")[2] or "t") for name in rest.split(","))
            found.append(Entry(index, EntryKind.CALLS, calls=made))
        elif kind == "r":
            found.append(Entry(index, EntryKind.RESULT, call_id=rest))
        else:
            found.append(Entry(index, kinds[kind]))
    return found


def look(text: str, batch: BatchRecord, *others: BatchRecord, remembered: bool = False) -> Found:
    batches = {b.batch_id: b for b in (batch, *others)}
    pointers = {c.given_id: b.batch_id for b in batches.values() for c in b.calls if c.given_id}
    return find(history(text), pointers, batches=batches, turns={}, remembered=remembered)


STAGED = batch_of(record("A", 0), record("H", result="h"), record("D", 1), record("B", 0), record("E", 2))


@pytest.mark.parametrize(
    ("text", "progress", "due"),
    [
        ("u c:A,B", Progress.WAITING, ()),
        ("u c:A,B u", Progress.WAITING, ()),
        ("r:A u c:A,B", Progress.WAITING, ()),
        ("u c:A,B r:X", Progress.WAITING, ()),
        ("u c:A,B r:A", Progress.PARTIAL, ()),
        ("u c:A r:A", Progress.PARTIAL, ()),
        ("u c:A,B r:A r:B", Progress.DUE, (2,)),
        ("u c:A,B r:B r:A u", Progress.DUE, (2,)),
        ("u c:A,B r:A r:B t u", Progress.PARTIAL, ()),
        ("u c:A,B r:A r:B c:X r:X", Progress.PARTIAL, ()),
        ("u c:A,B r:A r:B c:D", Progress.PARTIAL, ()),
        ("u c:A,B r:A r:B c:D r:D", Progress.DUE, (4,)),
        ("u c:A,B r:A r:B c:D r:D c:E", Progress.PARTIAL, ()),
        ("u c:A,B r:A r:B c:D r:D c:E r:E", Progress.WHOLE, ()),
        ("u c:A,B u r:A r:B c:D r:D c:E u t r:E", Progress.WHOLE, ()),
        ("u c:D r:D c:E r:E", Progress.PARTIAL, ()),
    ],
)
def test_how_far_a_client_has_come(text: str, progress: Progress, due: tuple[int, ...]) -> None:
    """Only results release a batch; the next stage is due once the one before has all of its own."""
    (anchor,) = look(text, STAGED).anchors
    assert (anchor.progress, anchor.due) == (progress, due)
    assert anchor.released is (progress in (Progress.WHOLE, Progress.PARTIAL))


@pytest.mark.parametrize(
    ("text", "anchors", "mismatched"),
    [
        ("", 0, False),
        ("u t u", 0, False),
        ("u c:X,Y r:X r:Y", 0, False),
        ("r:A", 0, False),
        ("c:A/other r:A", 0, True),
        ("c:A/other,B r:A r:B", 1, True),
        ("c:H r:H", 0, False),
    ],
)
def test_what_shows_a_batch(text: str, anchors: int, mismatched: bool) -> None:
    """A batch shows by a surfaced call under its id and its name, and by nothing else."""
    found = look(text, STAGED)
    assert len(found.anchors) == anchors
    assert found.mismatched == (frozenset([B]) if mismatched else frozenset())


@pytest.mark.parametrize(
    ("text", "progress", "due"),
    [
        ("r:A r:B", Progress.DUE, (2,)),
        ("r:B u r:A u", Progress.DUE, (2,)),
        ("r:A", Progress.PARTIAL, ()),
        ("r:A r:B t", Progress.PARTIAL, ()),
        ("r:A r:B r:D", Progress.DUE, (4,)),
        ("r:A r:B r:D r:E", Progress.WHOLE, ()),
        ("r:A r:B c:D r:D r:E", Progress.WHOLE, ()),
        ("c:A,B r:A r:B c:D r:D c:E r:E", Progress.WHOLE, ()),
    ],
)
def test_what_a_client_shows_of_a_batch_that_the_upstream_has(
    text: str, progress: Progress, due: tuple[int, ...]
) -> None:
    """A result alone shows its call, and the results before it."""
    (anchor,) = look(text, STAGED, remembered=True).anchors
    assert (anchor.progress, anchor.due) == (progress, due)


@pytest.mark.parametrize("text", ["", "u", "r:H", "r:X u", "c:A/other"])
def test_what_shows_nothing_of_a_batch_that_the_upstream_has(text: str) -> None:
    """A result for a call that was held is none of the client's."""
    assert not look(text, STAGED, remembered=True).anchors


def test_results_of_a_batch_that_the_upstream_has_stand_together() -> None:
    """Where the first of them stood; what a client made up for a held call is dropped."""
    found = look("r:B r:H u r:A", batch_of(record("A", 0), record("H", result="h"), record("B", 0)), remembered=True)
    (anchor,) = found.anchors
    assert (anchor.entries, anchor.dropped) == ((0, 3), (1,))
    out = pieces(history("r:B r:H u r:A"), found, runs={}, restore_bytes=PLENTY)
    assert out == [PutBatch(anchor, (3, "h", 0)), Kept(2)]


def test_a_pointer_to_a_batch_that_is_gone_finds_nothing() -> None:
    """Of an expired batch the ids may still be known: such a history stays as it is."""
    found = find(history("c:A r:A"), {"A": B}, batches={}, turns={})
    assert found == Found()


def test_what_an_anchor_knows() -> None:
    """Entries, calls, results, own calls of the client and made-up results each are found at their place."""
    (anchor,) = look("u c:A,X,B r:B r:H r:X r:A c:D r:D r:D c:E r:E t r:H", STAGED).anchors
    assert anchor.entries == (1, 6, 9)
    assert anchor.shown == {0: call("A"), 3: call("B"), 2: call("D"), 4: call("E")}
    assert anchor.results == {3: 2, 0: 5, 2: 7, 4: 10}
    assert anchor.extra == ((1, 1),)
    assert anchor.dropped == (3,)
    assert anchor.left_out == frozenset()
    assert anchor.to_run() == []


def test_a_made_up_result_is_dropped_only_behind_its_batch() -> None:
    """A result under the id of a held call that stands elsewhere may belong to another call of that id."""
    assert look("r:H c:A,B r:A r:H u r:H", STAGED).anchors[0].dropped == (3, 5)
    assert look("u c:A,B r:A c:H r:H", STAGED).anchors[0].dropped == ()
    nameless = batch_of(record("A", 0), record(""))
    assert look("u c:A r:A r:", nameless).anchors[0].dropped == ()


def test_a_call_is_shown_where_it_stands_first() -> None:
    """A history that repeats itself is put back where it came first, so that what the upstream saw stays."""
    once, twice = "u c:A,B r:A r:B t", "u c:A,B r:A r:B t c:A,B r:A r:B"
    assert put(once, STAGED) == put(twice, STAGED)[:-3]
    assert put(twice, STAGED)[-3:] == [Kept(5), Kept(6), Kept(7)]
    (anchor,) = look("c:A,A r:A", batch_of(record("A", 0))).anchors
    assert anchor.extra == ((0, 1),)


def test_a_message_belongs_to_one_batch() -> None:
    """Calls of two batches in one message: the first is put back, and nothing of the other is lost."""
    other = BatchRecord(BatchId("o"), "{}", "", (record("O", 0), record("P")), ())
    found = look("u c:A,O r:A r:O t", batch_of(record("A", 0)), other)
    (anchor,) = found.anchors
    assert (anchor.batch.batch_id, anchor.extra) == (B, ((1, 1),))
    out = pieces(history("u c:A,O r:A r:O t"), found, runs={}, restore_bytes=PLENTY)
    assert out == [Kept(0), PutBatch(anchor, (2,)), Kept(3), Kept(4)]


# ---------------------------------------------------------------- pieces


def put(text: str, batch: BatchRecord, runs: dict[int, str] | None = None) -> list[Piece]:
    done = {(B, i): Run(RunState.DONE, text=run) for i, run in (runs or {}).items()}
    return pieces(history(text), look(text, batch), runs=done, restore_bytes=PLENTY)


def results_of(out: list[Piece]) -> tuple[int | str | None, ...]:
    (found,) = [piece for piece in out if isinstance(piece, PutBatch)]
    return found.results


def test_a_batch_stands_where_its_message_stood() -> None:
    """Its results follow it wherever they stood, made-up ones go, and everything else keeps its place."""
    out = put("o u c:A,X,B r:X u r:B r:H r:A t", batch_of(record("A", 0), record("H", result="h"), record("B", 0)))
    assert [type(piece) for piece in out] == [Kept, Kept, PutBatch, Kept, Kept, Kept]
    assert [piece.index for piece in out if isinstance(piece, Kept)] == [0, 1, 3, 4, 8]
    assert results_of(out) == (7, "h", 5)


@pytest.mark.parametrize(
    ("text", "results", "left_out"),
    [
        ("c:A,B r:A r:B t", (0, "h", ABANDONED, 1, ABANDONED), set()),
        ("c:A,B r:A t", (0, "h", ABANDONED, None, ABANDONED), set()),
        ("c:A r:A t", (0, "h", ABANDONED, None, ABANDONED), {3}),
        ("c:A,B r:A r:B c:D r:D t", (0, "h", 2, 1, ABANDONED), set()),
        ("c:D r:D t", (None, "h", 0, None, ABANDONED), {0, 3}),
        ("c:A,B/other r:A r:B t", (0, "h", ABANDONED, None, ABANDONED), {3}),
    ],
)
def test_results_of_a_batch(text: str, results: tuple[Any, ...], left_out: set[int]) -> None:
    """What never came to the client was not run, what it did not answer has no result, what it dropped stays out."""
    places = [e.index for e in history(text) if e.kind is EntryKind.RESULT]
    expected = tuple(places[r] if isinstance(r, int) else r for r in results)
    (anchor,) = look(text, STAGED).anchors
    assert results_of(put(text, STAGED)) == expected
    assert anchor.left_out == left_out


def test_held_calls_that_have_to_run() -> None:
    """A held call without a result gets that of its run; an empty result is one."""
    batch = batch_of(record("A", 0), record("H"), record("I", result=""), record("J"))
    assert look("c:A r:A", batch).anchors[0].to_run() == [1, 3]
    assert results_of(put("c:A r:A", batch, {1: "one", 3: ""})) == (1, "one", "", "")


@pytest.mark.parametrize("text", ["u c:A,B u", "u c:A,B r:A r:B", "u c:A/x r:A", "u c:X r:H"])
def test_what_is_not_released_is_kept(text: str) -> None:
    """A batch that is waited for, or due, or not shown changes nothing in a history."""
    assert put(text, STAGED) == [Kept(e.index) for e in history(text)]


def hidden(*texts: str, blocked: bool = False) -> Round:
    return Round("{}", tuple(RoundResult(call("r"), text, blocked, blocked) for text in texts))


def test_hidden_rounds_stand_before_what_they_led_to() -> None:
    """Rounds of a batch stand before its message, rounds of a turn before its text."""
    one, two = hidden("1"), hidden("2")
    batch = batch_of(record("A", 0), record("H", result="h"), rounds=(one, two))
    out = put("u c:A r:A t", batch)
    assert out[:3] == [Kept(0), PutRound(one, (False,)), PutRound(two, (False,))]
    assert isinstance(out[3], PutBatch)
    turns = {1: TurnRecord('"own"', (one,)), 3: TurnRecord('"other"', (two,), unclear=True)}
    entries = history("u t u t")
    found = find(entries, {}, batches={}, turns=turns)
    out = pieces(entries, found, runs={}, restore_bytes=PLENTY)
    assert out == [Kept(0), PutRound(one, (False,)), PutText(1, '"own"'), Kept(2), Kept(3)]


@pytest.mark.parametrize(("text", "recalled"), [("r:A r:B", True), ("u r:A", True), ("c:A r:A", False)])
def test_what_the_upstream_has_of_a_batch(text: str, recalled: bool) -> None:
    """It has a batch of which results alone are shown, with its hidden rounds; of one whose calls the client sends
    again it has nothing, whatever it remembers."""
    batch = batch_of(record("A", 0), record("B", 0), record("C", result="no"), rounds=(hidden("one"),))
    entries = history(text)
    found = find(entries, {"A": B, "B": B}, batches={B: batch}, turns={}, remembered=True)
    assert [anchor.recalled for anchor in found.anchors] == [recalled]
    out = pieces(entries, found, runs={}, restore_bytes=PLENTY)
    assert any(isinstance(piece, PutRound) for piece in out) is not recalled


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (99, [(False, False), (False,), (False,)]),
        (10, [(False, False), (False,), (False,)]),
        (9, [(True, False), (False,), (False,)]),
        (6, [(True, True), (False,), (False,)]),
        (3, [(True, True), (True,), (True,)]),
        (0, [(True, True), (True,), (True,)]),
    ],
)
def test_old_results_are_trimmed(room: int, expected: list[tuple[bool, ...]]) -> None:
    """Results beyond the room are trimmed from the oldest on; once one is, every older one is too."""
    turns = {0: TurnRecord('""', (hidden("aa", "bb"),)), 1: TurnRecord('""', (hidden("\ud83d"), hidden("12345")))}
    entries = history("t t")
    out = pieces(entries, Found(turns=turns), runs={}, restore_bytes=room)
    assert [piece.trimmed for piece in out if isinstance(piece, PutRound)] == expected


# ---------------------------------------------------------------- denials


NO, YES = hidden("no", blocked=True), hidden("yes")


@pytest.mark.parametrize(
    ("text", "out", "count"),
    [
        ("", [], 0),
        ("u", [Kept(0)], 0),
        ("u", [Kept(0), PutRound(NO, (False,)), PutRound(NO, (False,))], 2),
        ("u", [PutRound(NO, (False,)), Kept(0)], 0),
        ("t", [PutRound(NO, (False,)), Kept(0)], 1),
        ("t", [PutRound(NO, (False,)), PutText(0, '""')], 1),
        ("c:X", [PutRound(NO, (False,)), Kept(0)], 0),
        ("r:X", [PutRound(NO, (False,)), Kept(0)], 1),
        ("", [PutRound(NO, (False,)), PutRound(YES, (False,)), PutRound(NO, (False,))], 1),
    ],
)
def test_denials_in_a_row(text: str, out: list[Piece], count: int) -> None:
    """Calls that were blocked are counted from the last that went ahead, and from the user's last word."""
    assert denied_in_a_row(history(text), out) == count


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        ([record("A", 0), record("H", result="no", blocked=True)], 1),
        ([record("H", result="no", blocked=True), record("A", 0)], 0),
        ([record("G", result="no", blocked=True), record("H", result="no", blocked=True), record("A", 0)], 0),
        ([record("A", 0), record("G", result="no", blocked=True), record("H", result="no", blocked=True)], 2),
    ],
)
def test_denials_in_a_batch(calls: list[CallRecord], count: int) -> None:
    """In a batch the model's order counts."""
    assert denied_in_a_row(history("u c:A r:A"), put("u c:A r:A", batch_of(*calls))) == count


@pytest.mark.parametrize(
    ("text", "before", "count"),
    [("", 3, 3), ("o", 3, 3), ("u", 3, 0), ("r:X", 3, 3), ("r:X u", 3, 0), ("c:X r:X", 3, 0)],
)
def test_denials_that_the_upstream_remembers(text: str, before: int, count: int) -> None:
    """They go on until the user speaks or a call goes ahead."""
    entries = history(text)
    assert denied_in_a_row(entries, [Kept(e.index) for e in entries], before) == count
