"""One choice of a stream: what waits, what is ready, how calls are numbered."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Batch, CallId, Kind, Owner, ToolCall
from proxy.core.exchange.chat_choice import ChoiceState, HeldEvent, Slot
from proxy.core.exchange.judging import Conclusion, End, Judged
from proxy.core.exchange.steps import LookUp
from proxy.core.policy.verdicts import Decision, Needs, Verdict
from proxy.core.protocol.assembly import Fragment, OpenCall
from proxy.core.protocol.sse import Event

ALLOWED = Judged(ToolCall(CallId("a"), "show", "{}"), "{}", Owner.CLIENT, Verdict(Decision.ALLOWED))


def slot(ordinal: int = 0, *pieces: str, index: Any = None, kind: Kind = Kind.FUNCTION) -> Slot:
    number = ordinal if index is None else index
    return Slot(
        OpenCall(ordinal, kind, index=number, call_id=f"id{ordinal}", name="show", pieces=list(pieces)), since=1.0
    )


def held(delta: dict[str, Any], **more: Any) -> HeldEvent:
    value = {"choices": [{"index": 0, "delta": delta}], **more}
    return HeldEvent(Event(b"", b""), value, 0, (Fragment(0, 0),))


@pytest.mark.parametrize(
    ("needs", "pieces", "closed", "finished", "ready"),
    [
        (Needs.NAME, [], False, False, False),
        (Needs.NAME, ["{"], False, False, True),
        (Needs.NAME, [], False, True, True),
        (Needs.ARGUMENTS, ["{}"], False, False, False),
        (Needs.ARGUMENTS, ["{}"], True, False, True),
        (Needs.ARGUMENTS, ["{"], False, True, True),
        (Needs.BATCH, ["{}"], True, False, False),
        (Needs.BATCH, ["{}"], False, True, True),
    ],
)
def test_what_a_decision_waits_for(needs: Needs, pieces: list[str], closed: bool, finished: bool, ready: bool) -> None:
    """The name is whole when arguments begin; arguments are when the call is over; a batch when the turn is."""
    state, one = ChoiceState(finished=finished), slot(0, *pieces)
    one.closed = closed
    assert state.is_ready(one, lambda _: needs) is ready


@pytest.mark.parametrize(
    ("first", "over"),
    [
        (slot(0), False),  # its arguments may still come
        (slot(0, '{"a":'), False),
        (slot(0, '{"a":', "1}"), True),
        (slot(0, "12"), False),  # more digits may follow
        (slot(0, "{}", kind=Kind.CUSTOM), False),  # free text
        (Slot(OpenCall(0, Kind.FUNCTION, index=0, pieces=["{}"]), since=1.0), False),  # its name may come behind them
    ],
)
def test_when_a_call_is_over(first: Slot, over: bool) -> None:
    """When another goes on, and nothing can be added to its arguments."""
    state = ChoiceState(slots=[first, slot(1)])
    state.close_earlier([Fragment(0, 1)])
    assert state.slots[0].closed is over
    assert not state.slots[1].closed


def test_the_batch_is_known_when_the_turn_has_ended() -> None:
    """Rules that read it wait for that."""
    state = ChoiceState(slots=[slot(0), slot(1)])
    assert state.batch(1) is None
    state.finished = True
    assert state.batch(1) == Batch(2, 1, ("show", "show"))


def test_an_id_is_looked_up_once() -> None:
    """However often the state is looked at."""
    one = slot(3)
    assert one.look_up(1) == [LookUp((1, 3), "id3")]
    assert one.look_up(1) == []


def test_a_settled_call_is_as_it_ended() -> None:
    """What came behind its decision is in it, and how long it was held."""
    one = slot(0, '{"a":1}')
    one.judged = ALLOWED
    judged, seconds = one.settled(3.5)
    assert (judged.call.text, seconds) == ('{"a":1}', 2.5)
    assert judged.raw == '{"id":"id0","type":"function","function":{"name":"show","arguments":"{\\"a\\":1}"}}'
    one.freed = 2.0
    assert one.settled(9.0)[1] == 1.0


@pytest.mark.parametrize(
    ("indexes", "stages", "renumber"),
    [
        ([0, 1, 2], (0, None, 0), False),  # earlier calls have their numbers already
        ([1, 2, 3], (0, None, 0), True),
        ([1, 2, 3], (0, 0, 0), False),
        ([0, 0, 0], (0, 1, 0), True),
    ],
)
def test_calls_get_numbers_without_gaps(indexes: list[int], stages: tuple[int | None, ...], renumber: bool) -> None:
    """Those of the first stage, in order; numbers that were odd are made good only where something changes."""
    state = ChoiceState(slots=[slot(at, "{}", index=index) for at, index in enumerate(indexes)])
    for one in state.slots:
        one.judged = ALLOWED
    state.number(Conclusion(End.SPLIT, stages), [None] * 3)
    surfaced = [one.out_index for one in state.slots if not one.dropped]
    assert surfaced == list(range(len(surfaced)))
    assert state.renumber is renumber


def test_what_an_event_says_beside_its_call_can_go_first() -> None:
    """In two events, nothing is said twice."""
    event = held({"role": "assistant", "content": "a", "refusal": None, "tool_calls": [{}]}, usage={"a": 1})
    delta = ("choices", 0, "delta")
    assert event.speech == ((*delta, "role"), (*delta, "content"))
    speech, rest = event.spoken()
    assert (speech.fragments, speech.gone) == ((), ((*delta, "tool_calls"),))
    assert rest.gone == ((*delta, "role"), (*delta, "content"), ("usage",))
    assert rest.speech == ()
    assert held({"tool_calls": [{}]}).speech == ()
