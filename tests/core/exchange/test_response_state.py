"""Which item an event is of, whatever it is named by; what of a response waits, and what it is in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.calls import Owner
from proxy.core.exchange.judging import Judged
from proxy.core.exchange.response_reading import Part
from proxy.core.exchange.response_state import HeldEvent, OutputItem, ResponseState
from proxy.core.jsontext import render
from proxy.core.policy.verdicts import Decision, Needs, Verdict
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError

DELTA, WORDS = "response.function_call_arguments.delta", "response.output_text.delta"
MESSAGE: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
CALL: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "show", "arguments": ""}


def take(state: ResponseState, kind: str, **value: Any) -> HeldEvent | None:
    event = {"type": kind, **value}
    data = render(event)
    return state.take(Event(b"data: " + data + b"\n\n", data), event, kind=kind, now=0.0)


def item_of(state: ResponseState, kind: str, **value: Any) -> OutputItem:
    held = take(state, kind, **value)
    assert held is not None
    assert held.item is not None
    return held.item


def begin(state: ResponseState, item: dict[str, Any], index: int | None = 0) -> OutputItem:
    place = {} if index is None else {"output_index": index}
    return item_of(state, "response.output_item.added", item=item, **place)


def end(state: ResponseState, item: dict[str, Any], index: int | None = 0) -> OutputItem:
    place = {} if index is None else {"output_index": index}
    return item_of(state, "response.output_item.done", item=item, **place)


def decide(item: OutputItem, *, goes: bool) -> None:
    assert item.call is not None
    item.call.seal(Needs.ARGUMENTS)
    item.call.judged = Judged(item.call.whole(), "", Owner.CLIENT, Verdict(Decision.ALLOWED))
    item.call.goes, item.call.dropped = goes, not goes


# ---------------------------------------------------------------- which item


@pytest.mark.parametrize(
    "named",
    [
        {"item_id": "fc_1"},
        {"item_id": "fc_1", "output_index": 9},
        {"call_id": "call_1"},
        {"item_id": "call_1"},
        {"output_index": 0},
        {"item_id": "fc_other", "output_index": 0},
        {},
    ],
)
def test_an_event_of_a_call_finds_its_item(named: dict[str, Any]) -> None:
    """By the id of one or the other, by its place, or as the newest."""
    state = ResponseState()
    begin(state, MESSAGE | {"id": "msg_0"}, 0)
    call = begin(state, CALL)
    assert item_of(state, DELTA, delta="{", **named) is call
    assert call.call is not None
    assert call.call.pieces == ["{"]
    assert len(state.items) == 2


def test_an_event_of_text_finds_its_item_and_no_call() -> None:
    """Also where both stand in one place."""
    state = ResponseState()
    told, call = begin(state, MESSAGE), begin(state, CALL)
    assert item_of(state, WORDS, output_index=0) is told
    assert item_of(state, WORDS, item_id="fc_1", output_index=0) is call
    other = item_of(state, WORDS, item_id="msg_2", output_index=1)
    assert (other.id, other.index, other in state.items) == ("msg_2", 1, True)
    assert item_of(state, WORDS, item_id="msg_3") is state.items[-1]


def test_an_event_without_an_item_belongs_to_none() -> None:
    """Nor does one that names an item that nobody has heard of, and says nothing."""
    state = ResponseState()
    begin(state, MESSAGE)
    for named in ({}, {"item_id": "msg_9"}):
        held = take(state, "keepalive", **named)
        assert held is not None
        assert held.item is None


def test_an_unknown_event_at_a_place_belongs_to_what_is_there() -> None:
    """Be that a call or not."""
    state = ResponseState()
    call = begin(state, CALL, 3)
    assert item_of(state, "response.item.note", output_index=3) is call
    assert item_of(state, "response.item.note", output_index=4) is state.items[-1]
    assert item_of(state, "response.item.updated", output_index=3, item=CALL) is call


def test_events_before_their_item_wait_for_it() -> None:
    """It is the same when it begins, under whatever id."""
    state = ResponseState()
    early = item_of(state, DELTA, call_id="call_1", output_index=0, delta="{}")
    assert begin(state, CALL) is early
    assert end(state, CALL | {"id": "fc_2"}) is early
    words = item_of(state, WORDS, output_index=5)
    assert begin(state, MESSAGE, 5) is words


@pytest.mark.parametrize(
    ("first", "second", "index", "same"),
    [
        (MESSAGE, MESSAGE, 0, True),
        (MESSAGE, MESSAGE | {"id": "msg_2"}, 0, True),
        (MESSAGE, MESSAGE | {"id": "msg_2"}, 1, False),
        (MESSAGE, {**MESSAGE, "id": None}, 0, True),
        (MESSAGE, CALL, 0, False),
        (CALL, CALL | {"id": "fc_2"}, 7, True),
        (CALL, CALL | {"id": "fc_2", "call_id": "call_2"}, 7, False),
        (CALL, CALL | {"type": "custom_tool_call", "id": "ctc_1"}, 7, False),
        (CALL, CALL | {"call_id": "call_2"}, 0, True),
    ],
)
def test_an_item_that_is_done_is_the_one_that_began(
    first: dict[str, Any], second: dict[str, Any], index: int, same: bool
) -> None:
    """By its id, by its call's, or by its place and its type."""
    state = ResponseState()
    item = begin(state, first)
    assert (end(state, second, index) is item) is same


def test_what_begins_again_is_another_item() -> None:
    """Under the same id, for another call, or when the first is done."""
    state = ResponseState()
    first = begin(state, CALL)
    assert begin(state, CALL, None) is first
    second = begin(state, CALL | {"call_id": "call_2"})
    assert second is not first
    end(state, CALL | {"call_id": "call_2"})
    assert begin(state, CALL | {"call_id": "call_2"}) is not second
    twin = begin(state, CALL | {"id": "fc_7"}, 1)
    assert twin is not first
    assert end(state, {"type": "message"}, None) is state.items[-1]


def test_an_item_becomes_a_call_and_not_the_other_way() -> None:
    """What could be one is one until it is whole."""
    state = ResponseState()
    told = begin(state, MESSAGE)
    assert end(state, CALL | {"id": "msg_1"}) is told
    assert told.call is not None
    with pytest.raises(UpstreamError):
        end(state, MESSAGE)
    words = item_of(state, WORDS, item_id="x", output_index=4)
    assert item_of(state, DELTA, item_id="x", delta="{}") is words
    assert [slot.place for slot in state.slots] == [0, 1]
    probe = {"type": "probe_call", "id": "p", "call_id": None}
    item = begin(state, probe, 5)
    begin(state, CALL | {"id": "fc_5", "call_id": "call_5"}, 6)
    assert item.undecided
    assert end(state, probe, 5).call is None
    assert [slot.place for slot in state.slots] == [0, 1, 2]
    assert json.loads(item.raw) == probe


def test_tools_that_the_upstream_runs_are_no_calls() -> None:
    """Nor are the events of their kind."""
    state = ResponseState(hosted=frozenset({"shell"}))
    item = begin(state, {"type": "shell_call", "id": "sh_1", "call_id": "call_1"})
    assert item_of(state, "response.shell_call_command.delta", output_index=0, delta="ls") is item
    assert state.slots == []


def test_pieces_behind_what_was_judged_do_not_go_on() -> None:
    """They would be another call's."""
    state = ResponseState()
    decide(end(state, CALL), goes=True)
    assert take(state, DELTA, item_id="fc_1", delta="{}") is None


# ---------------------------------------------------------------- the list


def listing(state: ResponseState, *items: Any) -> list[OutputItem | None]:
    state.take_list(list(items), [render(item) for item in items], 0.0)
    return [item for item, _ in state.listing]


def test_items_of_the_list_are_those_that_were_streamed() -> None:
    """By id, by the call's, by place; what is new is new."""
    state = ResponseState()
    told, call, other = begin(state, MESSAGE, 0), begin(state, CALL, 1), begin(state, MESSAGE | {"id": "msg_7"}, 2)
    found = listing(state, MESSAGE, CALL | {"id": "fc_z"}, MESSAGE | {"id": "msg_z"}, 7, MESSAGE | {"id": "msg_n"})
    assert [item is same for item, same in zip(found, (told, call, other, None), strict=False)] == [True] * 4
    assert (found[4], state.items[-1].streamed) == (state.items[-1], False)
    assert state.layout() == (
        render(MESSAGE),
        0,
        render(MESSAGE | {"id": "msg_z"}),
        b"7",
        render(MESSAGE | {"id": "msg_n"}),
    )


def test_calls_that_share_an_id_of_an_item_are_told_apart_by_their_own() -> None:
    """And a call is in the list once."""
    state = ResponseState()
    first = begin(state, CALL, 0)
    second = begin(state, CALL | {"call_id": "call_2"}, 1)
    assert first is not second
    assert listing(state, CALL, CALL | {"call_id": "call_2"}) == [first, second]
    again = ResponseState()
    one = begin(again, CALL, 0)
    found = listing(again, CALL, CALL)
    assert found[0] is one
    assert found[1] is not one


@pytest.mark.parametrize("output", [None, [], "x"])
def test_a_list_that_is_none_leaves_what_was_streamed(output: Any) -> None:
    """In the order in which it came."""
    state = ResponseState()
    end(state, MESSAGE)
    begin(state, CALL, 1)
    begin(state, {"type": "reasoning", "id": "rs_1"}, 2)
    state.take_list(output, [], 0.0)
    assert state.layout() == (render(MESSAGE), 0, render({"type": "reasoning", "id": "rs_1"}))


def test_an_item_that_is_too_long_is_forgotten_unless_the_list_has_it() -> None:
    """Its place is not lost."""
    state = ResponseState(most=200)
    long = MESSAGE | {"content": ["x" * 300]}
    begin(state, MESSAGE)
    end(state, long)
    assert (state.is_forgotten, state.remembered, state.layout()) == (True, 0, ())
    listing(state, long)
    assert not state.is_forgotten
    assert state.layout() == (render(long),)


# ---------------------------------------------------------------- what is ready, and what waits


@pytest.mark.parametrize(
    ("needs", "whole", "finished", "ready"),
    [
        (Needs.NAME, False, False, True),
        (Needs.ARGUMENTS, False, False, False),
        (Needs.ARGUMENTS, True, False, True),
        (Needs.BATCH, True, False, False),
        (Needs.BATCH, False, True, True),
        (Needs.ARGUMENTS, False, True, True),
    ],
)
def test_what_a_decision_waits_for(needs: Needs, whole: bool, finished: bool, ready: bool) -> None:
    """The name is there with the item; a batch when the response is over."""
    state = ResponseState(finished=finished)
    item = begin(state, CALL)
    if whole:
        take(state, "response.function_call_arguments.done", item_id="fc_1", arguments="{}")
    assert item.call is not None
    assert state.is_ready(item.call, lambda *_, **__: needs) is ready


@pytest.mark.parametrize(
    "shown",
    [
        {"kind": "response.function_call_arguments.done", "arguments": "{}", "name": "show", "item_id": "fc_1"},
        {"kind": "response.output_item.added", "item": {k: v for k, v in CALL.items() if k != "name"}},
        {"kind": "response.output_item.added", "item": {"type": "tool_search_call", "id": "ts_1"}},
    ],
)
def test_a_name_that_is_not_sure_decides_nothing(shown: dict[str, Any]) -> None:
    """The item has yet to show itself."""
    state = ResponseState()
    take(state, **shown)
    assert not state.is_ready(state.slots[0], lambda *_, **__: Needs.NAME)
    state.finished = True
    assert state.is_ready(state.slots[0], lambda *_, **__: Needs.BATCH)


def test_items_have_their_places_when_those_before_are_decided() -> None:
    """Dropped ones have none, and neither have those without events."""
    state = ResponseState()
    first, call, last = begin(state, MESSAGE, 0), begin(state, CALL, 1), begin(state, MESSAGE | {"id": "msg_2"}, 2)
    assert state.place(3) == 4
    assert (first.out_index, call.out_index, last.out_index) == (3, None, None)
    decide(call, goes=False)
    state.items.append(OutputItem(9, streamed=False))
    assert state.place(4) == 5
    assert (call.gone, last.out_index, state.items[-1].out_index) == (True, 4, None)
    assert state.place(5) == 5


def held(item: OutputItem, part: Part = Part.PIECE) -> HeldEvent:
    return HeldEvent(Event(b"12345", b""), {}, "x", part, item)


def test_what_waits_is_looked_through_when_something_was_decided() -> None:
    """Else only what came last."""
    state = ResponseState()
    call, other = begin(state, CALL), begin(state, CALL | {"id": "fc_2", "call_id": "call_2"}, 1)
    events = [held(call), held(other), held(call)]
    for event in events:
        state.push(event)
    looked: list[HeldEvent] = []

    def may_go(event: HeldEvent) -> bool:
        looked.append(event)
        return event.item is call

    assert state.going(may_go, everything=False) == [events[2]]
    assert (looked, state.queued, state.held_bytes > 10) == ([events[2]], 10, True)
    state.released = 1
    assert state.going(may_go, everything=False) == [events[0]]
    assert state.going(may_go, everything=False) == []
    assert state.going(may_go, everything=True) == [events[1]]
    assert (state.queue, state.queued) == ([], 0)


def test_which_events_clients_act_on() -> None:
    """A call's whole text, and its whole item."""
    state = ResponseState()
    call, told = begin(state, CALL), begin(state, MESSAGE, 1)
    acted = [held(item, part).is_acted_on for item in (call, told) for part in (Part.PIECE, Part.TEXT, Part.DONE)]
    assert acted == [False, True, True, False, False, False]
    assert [held(call, part).ends_item for part in (Part.TEXT, Part.DONE)] == [False, True]


def test_a_response_that_failed_holds_nothing() -> None:
    """What had gone stays gone."""
    state = ResponseState()
    gone, waits = begin(state, CALL), begin(state, CALL | {"id": "fc_2", "call_id": "call_2"}, 1)
    decide(gone, goes=True)
    state.push(held(waits))
    state.fail()
    assert (state.queue, state.finished, gone.gone, waits.gone) == ([], True, False, True)
