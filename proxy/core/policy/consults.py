"""What a judgement asks of the world, and what it is told: plain values.

A judgement yields a `Consult` and is sent a `Reply`. Who answers, and how, is not known here: a store counts, another
service or a Python object decides, a person is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.calls import Batch, Owner, RequestFacts
from proxy.core.jsontext import Object
from proxy.core.policy.verdicts import RuleName


@dataclass(frozen=True, slots=True)
class CallAsSeen:
    """A call as a rule sees it, with what earlier rules made of it. `arguments` None: they are no JSON object."""

    call_id: str
    tool: str
    namespace: str
    arguments: Object | None
    raw: str
    owner: Owner
    declared: bool
    batch: Batch | None
    facts: RequestFacts


# ---------------------------------------------------------------- what is asked


@dataclass(frozen=True, slots=True)
class CountCall:
    """May one more call be counted under this key? The caller folds the parts into text."""

    key: tuple[str, ...]
    limit: int
    window: float


@dataclass(frozen=True, slots=True)
class AskService:
    """What does another service decide? Seconds are all that it has for its answer."""

    rule: RuleName
    url: str
    seconds: float
    call: CallAsSeen


@dataclass(frozen=True, slots=True)
class AskCode:
    """What does a Python object (`package.module:attr`) decide?"""

    rule: RuleName
    target: str
    call: CallAsSeen


@dataclass(frozen=True, slots=True)
class AskCodeOfResult:
    """What does a Python object make of a result?"""

    rule: RuleName
    target: str
    call: CallAsSeen
    result: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    """May the call go ahead? `canonical` is a text that is the same for equal arguments alone, `shown` their JSON text;
    `wait` is how many seconds the answer may take now, `ttl` how long the question and an approval stand."""

    rule: RuleName
    call: CallAsSeen
    canonical: str
    shown: str
    wait: float
    ttl: float
    message: str


Consult = CountCall | AskService | AskCode | AskCodeOfResult | AskPerson


# ---------------------------------------------------------------- what is told


class Course(StrEnum):
    """What somebody else decided of a call."""

    ALLOW = "allow"
    BLOCK = "block"
    ANSWER = "answer"
    REWRITE = "rewrite"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision of a service or a Python object. `message` is a block's, `content` an answer's, `arguments` are those
    of a rewrite."""

    course: Course
    message: str = ""
    content: str = ""
    arguments: Object | None = None


class Word(StrEnum):
    """What a person said, if anything yet; or that nobody was asked, since too much waits for a person already."""

    APPROVED = "approved"
    DENIED = "denied"
    PENDING = "pending"
    UNASKED = "unasked"


@dataclass(frozen=True, slots=True)
class PersonSaid:
    """The state of a question to a person, its id, and the note of who decided."""

    word: Word
    approval_id: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class NewText:
    """What a result is from here on; None: what it was."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """There is no decision, or none that fits; `reason` names no secret."""

    reason: str


Reply = bool | Ruling | PersonSaid | NewText | Unanswered
