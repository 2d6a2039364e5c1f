"""What rules make of a result that has one text, several, or none."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core import jsontext
from proxy.core.calls import CallId, RequestFacts, ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.results import judge_texts
from proxy.core.jsontext import Path
from proxy.core.policy.verdicts import ResultOutcome
from tests.core.policy.engine import finish, policies

CALL = ToolCall(CallId("a"), "search", "{}")


def judge(**result: Any) -> Judge:
    rules = [{"name": "r", "match": {"tools": ["search"]}, "result": result}] if result else []
    return Judge(policies(rules).for_request(RequestFacts()), RequestFacts(), ())


def whole(text: str) -> dict[Path, bytes | None]:
    return {("output",): jsontext.render(text)}


def changes(texts: dict[Path, str], **result: Any) -> tuple[ResultOutcome, dict[Path, bytes | None]]:
    verdict, found = finish(judge_texts(judge(**result), CALL, texts, whole=whole))
    return verdict.outcome, found


REDACT = {"redact": [{"pattern": "secret", "with": "*"}]}


@pytest.mark.parametrize(
    ("texts", "result", "outcome", "found"),
    [
        ({("output",): "fine"}, {}, ResultOutcome.OK, {}),
        ({("output",): "fine"}, REDACT, ResultOutcome.OK, {}),
        ({("output",): "a secret"}, REDACT, ResultOutcome.REDACTED, {("output",): b'"a *"'}),
        (
            {("output", 0, "text"): "a secret", ("output", 2, "text"): "b"},
            REDACT,
            ResultOutcome.REDACTED,
            {("output", 0, "text"): b'"a *"', ("output", 2, "text"): b'"b"'},
        ),
        (
            {("output", 0, "text"): "sec", ("output", 1, "text"): "ret"},
            {"redact": [{"pattern": "sec\nret", "with": "*"}]},
            ResultOutcome.REDACTED,
            {("output",): b'"*"'},
        ),
        (
            {("output", 0, "text"): "a", ("output", 1, "text"): "b"},
            {"replace": {"content": "c"}},
            ResultOutcome.REPLACED,
            {("output",): b'"c"'},
        ),
        ({}, {"replace": {"content": "c"}}, ResultOutcome.REPLACED, {("output",): b'"c"'}),
    ],
)
def test_what_becomes_of_a_result(texts: Any, result: Any, outcome: ResultOutcome, found: Any) -> None:
    """Redacted in its own parts where that can be; else one text stands in the place of them all."""
    assert changes(texts, **result) == (outcome, found)
