"""Calls of a response that is read again: decided as they were, whatever the rules say by now."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from proxy.core.batch.record import CallRecord, ResponseRecord
from proxy.core.calls import CallId, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged
from proxy.core.exchange.recalling import RecalledJudge, recall, recalled_conclusion, recalled_ids
from tests.core.policy.engine import policies, rule


def call(call_id: str, name: str = "search") -> ToolCall:
    return ToolCall(CallId(call_id), name, "{}")


def known(call_id: str, name: str = "search", stage: int | None = 0, **more: Any) -> CallRecord:
    given = more.pop("given_id", call_id)
    return CallRecord(call(call_id, name), "{}", more.pop("owner", Owner.CLIENT), given, stage=stage, **more)


SHOWN, HELD, LATE = known("a"), known("b", stage=None, result="no", blocked=True), known("c", stage=1)


def test_calls_are_told_by_id_and_name() -> None:
    """Two under one id are taken in order; one of another name is unknown."""
    first, second = known("x", given_id="one"), known("x", given_id="two")
    assert recall([first, second], [call("x"), call("x"), call("x"), call("x", "other")]) == [first, second, None, None]


@pytest.mark.parametrize(
    ("record", "batch", "expected"),
    [
        ([SHOWN], ["a"], Conclusion(End.PASS, (0,))),
        ([SHOWN, HELD, LATE], ["a", "b", "c"], Conclusion(End.SPLIT, (0, None, 1))),
        ([SHOWN], ["a", "new"], Conclusion(End.SPLIT, (0, None))),
        ([], [], Conclusion(End.PASS, ())),
    ],
)
def test_how_a_turn_ended(record: list[CallRecord], batch: list[str], expected: Conclusion) -> None:
    """As it was kept; a call that nothing is known of is not shown."""
    kept = ResponseRecord("r", calls=tuple(record))
    assert recalled_conclusion(kept, [call(name) for name in batch]) == expected


def test_a_turn_that_a_rule_ended_ends_so_again() -> None:
    """With the text that was put at its end."""
    kept = ResponseRecord("r", calls=(HELD,), said="enough")
    assert recalled_conclusion(kept, [call("b")]) == Conclusion(End.STOP, (None,), "enough")


def test_ids_are_those_that_the_client_was_given() -> None:
    """None for a call that nothing is known of."""
    kept = ResponseRecord("r", calls=(known("a", given_id="fresh"), SHOWN))
    assert recalled_ids(kept, [call("a"), call("a"), call("b")]) == ["fresh", "a", None]


def decided(judging: Generator[Any, bool, Judged]) -> Judged:
    with pytest.raises(StopIteration) as stop:
        next(judging)
    found: Judged = stop.value.value
    return found


def judge(*calls: CallRecord, rules: list[Any] | None = None) -> RecalledJudge:
    chain = policies(rules or []).for_request(RequestFacts())
    return RecalledJudge(Judge(chain, RequestFacts(), ["count"]), ResponseRecord("r", calls=calls))


def test_no_rule_is_asked() -> None:
    """What was let go is let go, what was held is held, with the arguments and the owner that it had."""
    against = [rule("search", block={"message": "now it is not"}), rule("delete", name="s", allow={})]
    recalled = judge(
        known("a", given='{"n":1}'), known("b", "delete", None, result="no"), known("c", stage=1), rules=against
    )
    one, two, three = [decided(recalled.judge(call(*c), "{}", None)) for c in (("a",), ("b", "delete"), ("c",))]
    assert (one.held, one.text, one.owner) == (False, '{"n":1}', Owner.CLIENT)
    assert (two.held, two.result) == (True, "no")
    assert (three.held, three.verdict.deferred) == (False, True)


def test_a_call_of_the_record_is_used_once() -> None:
    """A second one like it is not known, and what is not known is held."""
    recalled = judge(known("a"))
    assert not decided(recalled.judge(call("a"), "{}", None)).held
    assert decided(recalled.judge(call("a"), "{}", None)).held


def test_it_could_always_hold() -> None:
    """Whatever the rules are now: events wait as they did."""
    assert judge().could_hold


def test_a_call_under_a_fresh_id_says_so() -> None:
    """It waits for its id as it did."""
    recalled = judge(known("call_1", given_id="fresh"), known("b"))
    assert [decided(recalled.judge(call(name), "{}", None)).renamed for name in ("call_1", "b")] == [True, False]
