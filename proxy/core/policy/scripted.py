"""What rules ask of the world, answered from a script: for tests of policies and for explanations.

An answer is found by the rule that asks. Nobody is asked in earnest, and nothing is counted beyond the script's life.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar, assert_never

from proxy.core.jsontext import Json
from proxy.core.policy.consults import (
    AskCode,
    AskCodeOfResult,
    AskPerson,
    AskService,
    Consult,
    CountCall,
    NewText,
    PersonSaid,
    Reply,
    Ruling,
    Unanswered,
    Word,
)
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.rulings import read_ruling
from proxy.core.policy.verdicts import RuleName

APPROVAL_ID = "an-approval"

T = TypeVar("T")


class ScriptError(Exception):
    """An answer that is none to what its rule asks."""


def settle(judgement: Generator[Consult, Reply, T], answer: Callable[[Consult], Reply]) -> T:
    """What a judgement comes to once all that it asks is answered."""
    given: Any = None
    try:
        while True:
            given = answer(judgement.send(given))
    except StopIteration as stop:
        came_to: T = stop.value
        return came_to


class Script:
    """Answers by `rule` or `policy/rule`: of a limit the number of calls that it has counted before, of an approval the
    word, of a service or a Python object what it gives back."""

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self._answers = answers
        self._counts: dict[tuple[str, ...], int] = {}
        self._asked: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """The answers that no rule asked for."""
        return [name for name in self._answers if name not in self._asked]

    def answer(self, asked: Consult) -> Reply:
        """Raises ScriptError."""
        match asked:
            case CountCall():
                return self._count(asked)
            case AskPerson():
                return self._person(asked)
            case AskService() | AskCode():
                return self._ruling(asked.rule)
            case AskCodeOfResult():
                return self._text(asked.rule)
            case _:
                assert_never(asked)

    def _find(self, rule: RuleName) -> tuple[bool, Json]:
        for name in (f"{rule.policy}/{rule.rule}", rule.rule):
            if name in self._answers:
                self._asked.add(name)
                return True, self._answers[name]
        return False, None

    def _count(self, asked: CountCall) -> bool:
        found, before = self._find(RuleName(asked.key[0], asked.key[1]))
        if found and (isinstance(before, bool) or not isinstance(before, int) or before < 0):
            raise ScriptError(f"the limit '{asked.key[1]}' wants a number of calls that were counted before")
        count = self._counts.get(asked.key, before if isinstance(before, int) else 0)
        if count >= asked.limit:
            return False
        self._counts[asked.key] = count + 1
        return True

    def _person(self, asked: AskPerson) -> PersonSaid:
        found, word = self._find(asked.rule)
        if not found:
            return PersonSaid(Word.PENDING, APPROVAL_ID)
        note = ""
        if isinstance(word, dict):
            note, word = str(word.get("note", "")), word.get("decision")
        if word not in [str(known) for known in Word if known is not Word.UNASKED]:
            raise ScriptError(f"the rule '{asked.rule.rule}' wants approved, denied or pending")
        return PersonSaid(Word(str(word)), APPROVAL_ID, note)

    def _ruling(self, rule: RuleName) -> Ruling | Unanswered:
        found, value = self._find(rule)
        if not found:
            return Unanswered("nobody is asked here")
        try:
            return read_ruling(value)
        except EvaluationError as error:
            return Unanswered(str(error))

    def _text(self, rule: RuleName) -> NewText | Unanswered:
        found, value = self._find(rule)
        if not found:
            return Unanswered("nobody is asked here")
        if value is not None and not isinstance(value, str):
            raise ScriptError(f"the rule '{rule.rule}' wants a text, or null to leave the result as it is")
        return NewText(value)
