"""What one rule does to one call: it ends the chain, changes the arguments, puts the call off, or does nothing."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.jsontext import Object
from proxy.core.policy.verdicts import Decision, Then


@dataclass(frozen=True, slots=True)
class End:
    """The chain ends here."""

    decision: Decision
    result: str | None = None
    message: str = ""
    then: Then = Then.CONTINUE
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The call goes on with other arguments."""

    arguments: Object
    text: str
    original_history: bool


@dataclass(frozen=True, slots=True)
class Deferral:
    """The call goes on, and is surfaced later."""


Effect = End | Change | Deferral | None
