"""The ways in which judging a rule can fail."""

from __future__ import annotations


class EvaluationError(Exception):
    """A rule could not be evaluated; what follows is its policy's `failurePolicy`."""


class UnjudgeableError(EvaluationError):
    """A condition met a value of a type that it cannot judge; in an `allow` rule it then does not hold."""


class NotKnownError(Exception):
    """A rule asks for something that a record left out, so that nobody can say what it would decide. That is no failure
    of the rule."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it is not known: {what}")
        self.what = what
