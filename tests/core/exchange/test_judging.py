"""Whose a call is, what its decision needs, and how a decided batch is sorted."""

from __future__ import annotations

import pytest

from proxy.core.calls import Batch, CallId, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, batch_kind, conclude, is_blocked
from proxy.core.policy.verdicts import Decision, Lane, Needs, Then, Verdict
from tests.core.policy.engine import policies, rule


def judged(
    decision: Decision = Decision.ALLOWED, *, owner: Owner = Owner.CLIENT, lanes: tuple[Lane, ...] = (), **more: object
) -> Judged:
    verdict = Verdict(decision, **more)  # type: ignore[arg-type]  # the test says which
    return Judged(ToolCall(CallId("a"), "t", "{}"), "{}", owner, verdict, lanes)


FREE, RUNS, ANSWERED = judged(), judged(owner=Owner.PROXY), judged(Decision.ANSWERED, result="pong")
BLOCKED = judged(Decision.BLOCKED, result="no", message="no")
STOPS = judged(Decision.BLOCKED, then=Then.STOP, message="Stop.")
FAILS = judged(Decision.BLOCKED, then=Then.FAIL, message="Fail.")
DEFERRED, LANE = judged(deferred=True), judged(lanes=(Lane("p", 1),))


@pytest.mark.parametrize(
    ("batch", "end", "stages", "message"),
    [
        ([], End.PASS, (), ""),
        ([FREE, FREE], End.PASS, (0, 0), ""),
        ([FREE, BLOCKED], End.SPLIT, (0, None), ""),
        ([FREE, RUNS], End.SPLIT, (0, None), ""),
        ([FREE, DEFERRED], End.SPLIT, (0, 1), ""),
        ([DEFERRED, BLOCKED], End.SPLIT, (0, None), ""),
        ([LANE, LANE, FREE], End.SPLIT, (0, 1, 0), ""),
        ([BLOCKED, ANSWERED, RUNS], End.CONTINUE, (None, None, None), ""),
        ([FREE, STOPS], End.STOP, (None, None), "Stop."),
        ([STOPS, FAILS], End.FAIL, (None, None), "Fail."),
    ],
)
def test_how_a_batch_is_sorted(batch: list[Judged], end: End, stages: tuple[int | None, ...], message: str) -> None:
    """What a rule ends comes first; then what is held, put off or surfaced says how it goes on."""
    assert conclude(batch, cut=False, closing=False, denied=0, stop_after=5) == Conclusion(end, stages, message)


def test_a_turn_that_was_cut_short_is_not_gone_on_with() -> None:
    """Held calls are left out all the same, whatever the rules would end."""
    found = conclude([FREE, BLOCKED, RUNS, STOPS, DEFERRED], cut=True, closing=False, denied=9, stop_after=5)
    assert found == Conclusion(End.CUT, (0, None, None, None, 0))


def test_the_last_round_takes_no_calls() -> None:
    """They are dropped, even those that a rule would let go ahead; no calls are no matter."""
    assert conclude([FREE], cut=False, closing=True, denied=0, stop_after=5) == Conclusion(End.CLOSED, (None,))
    assert conclude([], cut=False, closing=True, denied=0, stop_after=5) == Conclusion(End.PASS, ())


@pytest.mark.parametrize(("denied", "end"), [(4, End.CONTINUE), (5, End.STOP), (6, End.STOP)])
def test_a_block_after_too_many_ends_the_turn(denied: int, end: End) -> None:
    """With that rule's message; an answer is no refusal."""
    found = conclude([ANSWERED, BLOCKED], cut=False, closing=False, denied=denied, stop_after=5)
    assert (found.end, found.message) == (end, "no" if end is End.STOP else "")
    assert conclude([ANSWERED], cut=False, closing=False, denied=denied, stop_after=5).end is End.CONTINUE


def test_what_counts_as_a_refusal() -> None:
    """Blocked, denied by a person, and not decided in time."""
    refusals = {decision for decision in Decision if is_blocked(judged(decision))}
    assert refusals == {Decision.BLOCKED, Decision.DENIED, Decision.PENDING}


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        ([FREE], "single"),
        ([FREE, FREE], "parallel"),
        ([FREE, RUNS], "mixed"),
        ([BLOCKED], "held"),
        ([RUNS, RUNS], "held"),
    ],
)
def test_the_label_of_a_batch(batch: list[Judged], kind: str) -> None:
    """By what is held of it."""
    assert batch_kind(batch) == kind


def test_a_tool_that_the_request_declares_is_the_clients() -> None:
    """Also where a proxy tool has its name, or the model puts a prefix before it."""
    judge = Judge(
        policies([]).for_request(RequestFacts()), RequestFacts(declared={"both": None, "x.y": None}), {"both", "own"}
    )
    owners = {name: judge.owner(name) for name in ("both", "functions.both", "own", "functions.own", "x.y", "other")}
    proxys = {name for name, owner in owners.items() if owner is Owner.PROXY}
    assert proxys == {"own", "functions.own"}
    assert judge.could_hold


def test_a_wrapper_is_decided_with_its_batch() -> None:
    """Any other call as soon as its rules allow."""
    set_ = policies(
        [rule("a", name="a", block={"message": "no"}), rule("b", name="b", when="args.x == 1", block={"message": "no"})]
    )
    judge = Judge(set_.for_request(RequestFacts()), RequestFacts(), ())
    found = [judge.needs(name) for name in ("a", "b", "c", "multi_tool_use.parallel")]
    assert found == [Needs.NAME, Needs.ARGUMENTS, Needs.NAME, Needs.BATCH]


def test_judging_gives_the_call_its_owner_verdict_and_arguments() -> None:
    """As its owner gets them."""
    cap = rule("search", rewrite={"clamp": {"limit": {"max": 10}}})
    judge = Judge(policies([cap]).for_request(RequestFacts()), RequestFacts(), ())
    judging = judge.judge(ToolCall(CallId("a"), "search", '{"limit":50}'), "raw", Batch(1, 0, ("search",)))
    with pytest.raises(StopIteration) as stop:
        next(judging)
    found: Judged = stop.value.value
    assert (found.raw, found.owner, found.text, found.held, found.runs) == (
        "raw",
        Owner.CLIENT,
        '{"limit":10}',
        False,
        False,
    )
    assert FREE.text == "{}"
    assert RUNS.runs
    assert RUNS.held
