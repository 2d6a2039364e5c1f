"""What judgements ask, answered: by whom, and what is asked again."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.calls import CallId, Owner, ToolCall
from proxy.core.policy.consults import (
    AskCode,
    AskPerson,
    Consult,
    CountCall,
    Course,
    PersonSaid,
    Reply,
    Ruling,
    Unanswered,
    Word,
)
from proxy.core.policy.decide import Decision, Subject
from proxy.core.policy.verdicts import RuleName
from proxy.errors import StoreError
from proxy.server.consulting import Consulting, settled
from tests.server.parts import Parts
from tests.server.test_deciders import seen
from tests.stores.failing import FailingStore

COUNT = CountCall(("p", "r"), 1, 60.0)
RULE = RuleName("p", "r")


def person(call_id: str = "call_1", **arguments: Any) -> AskPerson:
    text = json.dumps(arguments)
    call = seen(text=text)
    return AskPerson(RULE, call, text, text, 0.0, 60.0, "")


def consulting(parts: Parts, tenant: str = "t") -> Consulting:
    return Consulting.of(parts.services, parts.loaded, parts.ledger(tenant))


async def test_a_judgement_is_driven_to_its_end() -> None:
    """Each question is answered before the next; without one there is nothing to wait for."""

    def judging() -> Generator[Consult, Reply, list[Reply]]:
        return [(yield COUNT), (yield COUNT)]

    answers: list[Reply] = [True, False]

    async def answer(asked: Consult) -> Reply:
        assert asked is COUNT
        return answers.pop(0)

    assert await settled(judging(), answer) == [True, False]


async def test_a_limit_is_counted_in_the_ledger() -> None:
    """A rule's question is answered by the tenant's store; one that is down is an error."""
    parts = Parts()
    here = consulting(parts)
    assert [await here.answer(COUNT) for _ in range(2)] == [True, False]
    assert await here.answer_again(COUNT) is True
    parts.store = FailingStore(parts.store, lambda operation, keys: True)
    for asked in (COUNT, person()):
        failing = Parts(store=parts.store)
        with pytest.raises(StoreError):
            await consulting(failing).answer(asked)


async def test_a_person_is_asked_once() -> None:
    """What was decided before is looked up, and nobody is asked again."""
    parts = Parts()
    here = consulting(parts)
    said = await here.answer(person(a=1))
    assert isinstance(said, PersonSaid)
    assert said.word is Word.PENDING
    assert await here.answer_again(person(a=2)) == PersonSaid(Word.PENDING, "")
    assert [one.id for one in parts.announced] == [said.approval_id]


async def test_objects_are_those_of_the_requests_own_set(tmp_path: Path) -> None:
    """They were loaded with its rules; one that is not among them decides nothing."""
    policy = {
        "apiVersion": "sidecall.io/v1",
        "kind": "ToolPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "middleware": "tests.tools.house_rules:scripted"}]},
    }
    (tmp_path / "p.json").write_text(json.dumps(policy))
    parts = Parts(policies=(str(tmp_path / "p.json"),))
    here = consulting(parts)
    chain = parts.policy_set.for_request(parts.facts())
    call = ToolCall(CallId("c"), "t", '{"do": "answer"}')
    verdict = await settled(chain.judge(Subject(call, Owner.CLIENT)), here.answer)
    assert (verdict.decision, verdict.result) == (Decision.ANSWERED, "42")
    result = await settled(chain.judge_result(Subject(call, Owner.CLIENT), result="loud", is_error=False), here.answer)
    assert result.text == "LOUD"
    again = await here.answer_again(AskCode(RULE, "tests.tools.house_rules:scripted", seen(text='{"do":"allow"}')))
    assert again == Ruling(Course.ALLOW)
    assert isinstance(await here.answer(AskCode(RULE, "tests.tools.house_rules:late", seen())), Unanswered)
