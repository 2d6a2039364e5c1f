"""What the policy engine is asked and what it answers: plain values, no behaviour.

It must not know how rules are written or judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from proxy.core.calls import Batch, Owner, ToolCall


class Decision(StrEnum):
    ALLOWED = "allowed"
    REWRITTEN = "rewritten"
    BLOCKED = "blocked"
    ANSWERED = "answered"
    APPROVED = "approved"
    DENIED = "denied"
    PENDING = "pending"


class Then(StrEnum):
    """What a block does to the turn."""

    CONTINUE = "continue"
    STOP = "stop"
    FAIL = "fail"


class DefaultAction(StrEnum):
    """What a call gets that no rule decided."""

    ALLOW = "allow"
    BLOCK = "block"


class Needs(IntEnum):
    """The least that must be known of a call before it can be judged."""

    NAME = 0
    ARGUMENTS = 1
    BATCH = 2


class ResultOutcome(StrEnum):
    """What rules did to a result; of several, the one that took most away."""

    OK = "ok"
    BLOCKED = "blocked"
    REDACTED = "redacted"
    REPLACED = "replaced"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class RuleName:
    policy: str
    rule: str


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a rule in shadow mode would have decided."""

    policy: str
    rule: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class Subject:
    """A call to be judged. A rule that reads `batch` while it is None cannot be evaluated."""

    call: ToolCall
    owner: Owner
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """At most so many of the calls that this policy fits are surfaced at a time."""

    policy: str
    max_parallel: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one call was decided.

    `result` is the text that the model gets as the result of a held call. `message` is a block's own message
    (the turn's text under `then: stop`). `text` is the new `ToolCall.text` for the owner: rewritten, or
    canonical because a rule looked at a text with two readings; None leaves it as the model wrote it.
    `original_history` restores the model's own text upstream. `failed` says that the call is blocked because a
    rule could not be evaluated. `errors` names every such rule, also those that `failurePolicy: Ignore` skipped.
    `approvals` are the ids of what people approved for it; where the call does not go ahead they count for another.
    """

    decision: Decision
    policy: str = ""
    rule: str = ""
    result: str | None = None
    message: str = ""
    then: Then = Then.CONTINUE
    text: str | None = None
    original_history: bool = False
    deferred: bool = False
    failed: bool = False
    shadows: tuple[Shadow, ...] = ()
    errors: tuple[RuleName, ...] = ()
    approvals: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.decision not in _GOES_AHEAD


_GOES_AHEAD = frozenset({Decision.ALLOWED, Decision.REWRITTEN, Decision.APPROVED})


@dataclass(frozen=True, slots=True)
class ResultVerdict:
    """What the model sees of a result, and which rules could not be evaluated on it."""

    text: str
    outcome: ResultOutcome
    errors: tuple[RuleName, ...] = ()
    shadows: tuple[Shadow, ...] = ()
