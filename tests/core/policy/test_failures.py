from __future__ import annotations

from proxy.core.policy.failures import EvaluationError, UnjudgeableError


def test_what_cannot_be_judged_is_an_evaluation_error() -> None:
    """One way to fail, of which one kind is told apart."""
    assert issubclass(UnjudgeableError, EvaluationError)
