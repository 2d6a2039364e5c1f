"""Calls on their way: when they are judged, in which order they go, what they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.core.calls import Batch, CallId, Kind, RequestFacts, ToolCall
from proxy.core.exchange.deciding import CallOnItsWay, CallQueue, Decisions
from proxy.core.exchange.judging import Conclusion, End, Judge
from proxy.core.exchange.steps import Asked, LookUp
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.verdicts import Needs
from tests.core.exchange.streams import RULES
from tests.core.policy.engine import policies, rule

STRONG = "call_" + "a" * 20
BOUNDS = Bounds(most=5, most_errors=3, stop_after=2)


@dataclass(slots=True)
class Call(CallOnItsWay):
    """A call of no wire."""

    call: ToolCall
    place: int = 0
    goes: bool = False
    numbered: bool = True
    judged_by: Needs | None = None

    @property
    def ordinal(self) -> int:
        return self.place

    @property
    def let_go(self) -> bool:
        return self.goes

    @property
    def may_be_renumbered(self) -> bool:
        return not self.numbered

    def whole(self) -> ToolCall:
        return self.call

    def raw(self) -> str:
        return "{}"

    def seal(self, needs: Needs) -> None:
        self.judged_by = needs


@dataclass(slots=True)
class Queue(CallQueue[Call]):
    """Calls that are ready when their text is there."""

    order: list[str] = field(default_factory=list)

    def is_ready(self, slot: Call, needs: Callable[..., Needs]) -> bool:
        return bool(slot.call.text) or self.finished

    def let_go(self, slot: Call) -> None:
        slot.goes = True
        self.order.append(slot.call.name)


def call(name: str, call_id: str = STRONG, text: str = "{}", kind: Kind = Kind.FUNCTION, **parts: Any) -> Call:
    return Call(ToolCall(CallId(call_id), name, text, kind), since=1.0, **parts)


def queue(*calls: Call, finished: bool = False) -> Queue:
    for place, one in enumerate(calls):
        one.place = place
    return Queue(slots=list(calls), finished=finished)


def decisions(rules: PolicySet = RULES, *used: str) -> Decisions:
    facts = RequestFacts()
    return Decisions(Judge(rules.for_request(facts), facts, ()), BOUNDS, frozenset(used))


def test_calls_are_judged_in_their_order_as_soon_as_they_are_ready() -> None:
    """One that is not ready holds up those behind it."""
    calls, deciding = queue(call("show"), call("search", text=""), call("show")), decisions()
    assert deciding.judge(0, calls) == []
    assert [slot.judged is not None for slot in calls.slots] == [True, False, False]
    assert (calls.cursor, calls.all_judged) == (1, False)
    assert calls.slots[0].judged_by is Needs.NAME
    calls.finished = True
    deciding.judge(0, calls)
    assert calls.all_judged
    assert calls.slots[1].judged_by is Needs.ARGUMENTS


def test_a_judgement_that_asks_goes_on_with_the_answer() -> None:
    """Nothing behind it is judged before."""
    calls, deciding = queue(call("search"), call("show")), decisions(policies([rule(limit={"max": 1, "per": "1h"})]))
    asked = deciding.judge(3, calls)
    assert [type(step) for step in asked] == [Asked]
    assert isinstance(asked[0], Asked)
    assert asked[0].key == (3, 0)
    assert deciding.judge(3, calls) == []
    assert deciding.resume((3, 0), calls.slots[0], False) == []
    assert calls.slots[0].judged is not None
    assert calls.slots[0].judged.held
    assert [type(step) for step in deciding.judge(3, calls)] == [Asked]


def test_a_call_goes_when_the_ledger_does_not_have_its_id() -> None:
    """That is asked once; a held call is dropped without."""
    deciding, turn = decisions(), ChoiceTurn()
    deciding.now = 4.0
    calls = queue(call("delete_file"), call("show"))
    deciding.judge(0, calls)
    assert deciding.release(0, calls, turn) == [LookUp((0, 1), STRONG)]
    assert deciding.release(0, calls, turn) == []
    assert (calls.slots[0].dropped, calls.slots[0].decided, calls.slots[1].decided) == (True, True, False)
    calls.slots[1].known = False
    assert deciding.release(0, calls, turn) == []
    assert calls.order == ["show"]
    deciding.now = 9.0
    assert [slot.settled(9.0)[1] for slot in calls.slots] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("one", "rules", "turn", "used", "waits"),
    [
        (call("show"), RULES, ChoiceTurn(), (), False),
        (call("show", "show:1"), RULES, ChoiceTurn(), (), True),
        (call("show", "show:1"), policies(), ChoiceTurn(), (), False),
        (call("show", "mcpr_1", kind=Kind.APPROVAL), RULES, ChoiceTurn(), ("mcpr_1",), False),
        (call("show"), RULES, ChoiceTurn(), (STRONG,), True),
        (call("show", numbered=False), RULES, ChoiceTurn(), (), True),
        (call("show"), RULES, ChoiceTurn(denied_before=2), (), True),
        (call("show"), RULES, ChoiceTurn(closing=True), (), True),
        (call("show"), policies([rule("x", block={"message": "no", "then": "stop"})]), ChoiceTurn(), (), True),
        (call("show"), policies([rule("show", defer={})]), ChoiceTurn(), (), True),
        (call("show"), policies({"rules": [], "batch": {"maxParallel": 1}}), ChoiceTurn(), (), True),
    ],
)
def test_what_waits_for_its_batch(
    one: Call, rules: PolicySet, turn: ChoiceTurn, used: tuple[str, ...], waits: bool
) -> None:
    """What could still change it, or its turn."""
    calls, deciding = queue(replace(one)), decisions(rules, *used)
    deciding.judge(0, calls)
    calls.slots[0].known = calls.slots[0].known or False
    deciding.release(0, calls, turn)
    assert (calls.order == []) is waits


def test_an_id_that_came_before_in_the_batch_waits() -> None:
    """It may have to become another."""
    calls, deciding = queue(call("show"), call("search")), decisions()
    deciding.judge(0, calls)
    for slot in calls.slots:
        slot.known = False
    deciding.release(0, calls, ChoiceTurn())
    assert calls.order == ["show"]


def test_an_id_that_the_ledger_has_waits_and_is_told() -> None:
    """Also where nothing could be held."""
    calls, deciding = queue(call("show")), decisions(policies())
    deciding.judge(0, calls)
    assert deciding.release(0, calls, ChoiceTurn()) == [LookUp((0, 0), STRONG)]
    calls.slots[0].known = True
    assert deciding.release(0, calls, ChoiceTurn()) == []
    assert calls.order == []


def test_a_batch_is_concluded_when_every_id_is_known() -> None:
    """Those of approvals and of held calls need not be."""
    approval = call("look", "mcpr_1", kind=Kind.APPROVAL)
    calls, deciding = queue(call("delete_file"), call("show", "show:1"), approval, finished=True), decisions()
    deciding.judge(0, calls)
    assert deciding.release(0, calls, ChoiceTurn()) == []
    assert deciding.conclude(0, calls, ChoiceTurn()) == [LookUp((0, 1), "show:1")]
    assert deciding.conclude(0, calls, ChoiceTurn()) == []
    calls.slots[1].known = True
    found = deciding.conclude(0, calls, ChoiceTurn())
    assert isinstance(found, tuple)
    batch, conclusion = found
    assert [judged.call.name for judged in batch] == ["delete_file", "show", "look"]
    assert (conclusion.end, conclusion.stages) == (End.SPLIT, (None, 0, 0))
    calls.number(conclusion, [None, "call_fresh", "call_fresh"])
    assert [(slot.given_id, slot.dropped, slot.goes) for slot in calls.slots] == [
        (None, True, False),
        ("call_fresh", False, True),
        (None, False, True),
    ]


def test_a_cut_batch_needs_no_ids() -> None:
    """Nothing of it enters the ledger."""
    calls, deciding = queue(call("show", "show:1"), finished=True), decisions()
    calls.cut = True
    deciding.judge(0, calls)
    found = deciding.conclude(0, calls, ChoiceTurn())
    assert isinstance(found, tuple)
    assert found[1] == Conclusion(End.CUT, (0,))


def test_what_is_known_of_a_batch_and_what_is_left_of_a_dropped_one() -> None:
    """A batch is known when it is whole; calls that have gone are not dropped."""
    calls = queue(call("show"), call("search"))
    assert calls.batch(1) is None
    calls.finished = True
    assert calls.batch(1) == Batch(2, 1, ("show", "search"))
    calls.let_go(calls.slots[0])
    calls.drop()
    assert [slot.dropped for slot in calls.slots] == [False, True]
