"""The one way in which judging a rule can fail."""

from __future__ import annotations


class EvaluationError(Exception):
    """A rule could not be evaluated; what follows is its policy's `failurePolicy`."""


class UnjudgeableError(EvaluationError):
    """A condition met a value of a type that it cannot judge; in an `allow` rule it then does not hold."""
