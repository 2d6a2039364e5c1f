"""The turn of one choice over its rounds, and the records of it."""

from __future__ import annotations

import pytest

from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult
from proxy.core.calls import BatchId, CallId, Kind, Owner, ToolCall
from proxy.core.exchange.judging import Conclusion, End, Judged
from proxy.core.exchange.turns import Bounds, ChoiceTurn, call_records, hidden_round, ids_to_give, pending_batch
from proxy.core.policy.verdicts import Decision, Verdict

STRONG = "call_" + "a" * 20


def judged(call_id: str, decision: Decision = Decision.ALLOWED, **more: str | bool) -> Judged:
    verdict = Verdict(decision, **more)  # type: ignore[arg-type]  # the test says which
    return Judged(ToolCall(CallId(call_id), "t", "{}"), "raw " + call_id, Owner.CLIENT, verdict)


def hidden(*marks: str) -> Round:
    """A round by its results: `b` was blocked, `f` failed, `g` was good."""
    call = ToolCall(CallId("a"), "t", "{}")
    return Round("{}", tuple(RoundResult(call, "", mark == "b", mark in "bf") for mark in marks))


@pytest.mark.parametrize(
    ("rounds", "denied", "failures"),
    [
        (["b"], 3, 1),
        (["bb", "b"], 5, 2),
        (["bgb"], 1, 0),
        (["f", "f"], 0, 2),
        (["b", "g", "b"], 1, 1),
    ],
)
def test_what_a_turn_counts(rounds: list[str], denied: int, failures: int) -> None:
    """Calls refused in a row, those before the turn too; rounds in a row of errors alone."""
    turn = ChoiceTurn(2)
    for one in rounds:
        turn.add_round(hidden(*one), Bounds(40, 9, 5))
    assert (turn.denied, turn.failures, turn.asked) == (denied, failures, len(rounds))


@pytest.mark.parametrize(
    ("bounds", "rounds", "limit"),
    [
        (Bounds(2, 9, 5), ["g", "g"], ""),
        (Bounds(2, 9, 5), ["g", "g", "g"], "limit"),
        (Bounds(9, 2, 5), ["b", "g", "f"], ""),
        (Bounds(9, 2, 5), ["g", "b", "f"], "errors"),
        (Bounds(0, 9, 5), ["g"], "limit"),
    ],
)
def test_when_a_turn_is_closed(bounds: Bounds, rounds: list[str], limit: str) -> None:
    """After the calls of the limit beyond the first, or so many rounds of errors, one last call is made."""
    turn = ChoiceTurn()
    for one in rounds:
        assert not turn.closing
        turn.add_round(hidden(*one), bounds)
    assert (turn.limit(bounds), turn.closing) == (limit, bool(limit))


def test_a_turn_can_be_taken_up_from_another_try() -> None:
    """Nothing of its own rounds counts then."""
    turn = ChoiceTurn(1)
    turn.add_round(hidden("b"), Bounds(0, 1, 5))
    turn.texts.append("a")
    turn.restart()
    assert turn == ChoiceTurn(1)
    turn.texts += ["a", "b"]
    assert turn.shown == "a\n\nb"


def test_only_surfaced_calls_get_an_id_and_only_doubtful_ones_a_fresh_one() -> None:
    """In their order; two calls never get the same."""
    batch = [judged("x"), judged(STRONG), judged("held", Decision.BLOCKED), judged(STRONG), judged(STRONG + "1")]
    conclusion = Conclusion(End.SPLIT, (0, 0, None, 1, 0))
    fresh = iter(["f1", "f2", "f3"])
    ids = ids_to_give(batch, conclusion, taken={STRONG + "1"}, fresh_id=lambda: next(fresh))
    assert ids == ["f1", STRONG, None, "f2", "f3"]


def test_the_record_of_a_batch_has_every_call_as_it_was_made_and_given() -> None:
    """A held call has its result, one that a tool answers has none yet."""
    blocked = judged("b", Decision.BLOCKED, result="no")
    rewritten = judged("r", Decision.REWRITTEN, text='{"a":1}', original_history=True)
    runs = Judged(ToolCall(CallId("p"), "t", "{}", Kind.FUNCTION), "raw p", Owner.PROXY, Verdict(Decision.ALLOWED))
    records = call_records([blocked, rewritten, runs], Conclusion(End.SPLIT, (None, 0, None)), [None, "given", None])
    assert records == (
        CallRecord(blocked.call, "raw b", Owner.CLIENT, "", result="no", blocked=True),
        CallRecord(rewritten.call, "raw r", Owner.CLIENT, "given", given='{"a":1}', original=True, stage=0),
        CallRecord(runs.call, "raw p", Owner.PROXY, ""),
    )


def test_a_round_that_is_held_whole_is_a_batch_until_it_has_its_results() -> None:
    """Then it is a hidden round, in the order of its calls."""
    batch = [judged("b", Decision.BLOCKED, result="no"), judged("a", Decision.ANSWERED, result="pong")]
    pending = pending_batch(batch, Conclusion(End.CONTINUE, (None, None)), batch_id=BatchId("x"), message="{}")
    assert pending == BatchRecord(
        BatchId("x"), "{}", "", call_records(batch, Conclusion(End.CONTINUE, (None, None)), [None] * 2)
    )
    found = hidden_round("m", pending, [("no", True, True), ("pong", False, False)])
    assert found == Round(
        "m", (RoundResult(batch[0].call, "no", True, True), RoundResult(batch[1].call, "pong", False, False))
    )
