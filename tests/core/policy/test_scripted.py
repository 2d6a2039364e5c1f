from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.policy.compile import Handled, compile_policies
from proxy.core.policy.decide import DefaultAction, PolicySet
from proxy.core.policy.scripted import Script, ScriptError, settle
from proxy.core.policy.verdicts import ResultVerdict, Verdict
from tests.core.policy.engine import documents, policies, rule, subject

ASK: dict[str, Any] = {"ask": {"url": "http://127.0.0.1:1/v1/data/x"}}


def judged(parts: dict[str, Any], script: Script, arguments: Any = "{}") -> Verdict:
    chain = policies([rule(name="r", **parts)]).for_request(RequestFacts())
    return settle(chain.judge(subject("t", arguments)), script.answer)


def test_a_limit_counts_on_from_what_was_counted_before() -> None:
    """By its key, as long as the script lives."""
    limit = {"limit": {"max": 3, "per": "1m", "by": ["args.a"]}}
    script = Script({"p0/r": 2})
    decisions = [str(judged(limit, script, {"a": a}).decision) for a in (1, 1, 2, 2)]
    assert decisions == ["allowed", "blocked", "allowed", "blocked"]
    fresh = Script({})
    assert [judged(limit, fresh).held for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("answer", "decision", "told"),
    [
        ("approved", "approved", None),
        ("denied", "denied", "Tool call blocked by policy p0/r: the call was denied"),
        (
            {"decision": "denied", "note": "too much"},
            "denied",
            "Tool call blocked by policy p0/r: the call was denied: too much",
        ),
    ],
)
def test_a_person_says_what_the_script_says(answer: Any, decision: str, told: str | None) -> None:
    """With a note where there is one."""
    verdict = judged({"requireApproval": {}}, Script({"r": answer}))
    assert (str(verdict.decision), verdict.result) == (decision, told)


def test_nobody_who_is_not_in_the_script_says_anything() -> None:
    """An approval is pending then, and a service has not answered."""
    assert str(judged({"requireApproval": {}}, Script({})).decision) == "pending"
    assert judged(ASK, Script({})).failed


def test_a_service_gives_back_what_the_script_says() -> None:
    """In the form of its own answers; one that does not fit is none."""
    assert str(judged(ASK, Script({"r": {"action": "answer", "content": "pong"}})).result) == "pong"
    assert str(judged(ASK, Script({"r": False})).decision) == "blocked"
    assert judged(ASK, Script({"r": {"action": "perhaps"}})).failed


@pytest.mark.parametrize(
    ("parts", "answer", "message"),
    [
        ({"limit": {"max": 1, "per": "1m"}}, "approved", "the limit 'r' wants a number of calls"),
        ({"limit": {"max": 1, "per": "1m"}}, True, "the limit 'r' wants a number of calls"),
        ({"requireApproval": {}}, "yes", "the rule 'r' wants approved, denied or pending"),
    ],
)
def test_an_answer_to_something_else_is_a_mistake(parts: dict[str, Any], answer: Any, message: str) -> None:
    """It is not taken for anything."""
    with pytest.raises(ScriptError, match=message):
        judged(parts, Script({"r": answer}))


def test_answers_that_nobody_asked_for_are_known() -> None:
    """They are most often a slip in a name."""
    script = Script({"r": "approved", "other": 1, "p0/r": "denied"})
    assert str(judged({"requireApproval": {}}, script).decision) == "denied"
    assert script.unused == ["r", "other"]


def code(parts: dict[str, Any], name: str = "r") -> PolicySet:
    """A rule that asks a Python object about calls and results; nothing is imported."""
    read = documents([rule(name=name, middleware="house_rules:watch", **parts)])
    return compile_policies(read, default_action=DefaultAction.ALLOW, handles=lambda _: Handled(True, True))


def test_a_python_object_gives_back_what_the_script_says() -> None:
    """Of a call in the form of a service's answer, of a result its new text; null leaves it as it is."""
    chain = code({}).for_request(RequestFacts())
    blocked = settle(chain.judge(subject("t")), Script({"r": {"action": "block", "message": "no"}}).answer)
    assert (str(blocked.decision), blocked.message) == ("blocked", "no")

    def result(script: Script) -> ResultVerdict:
        return settle(chain.judge_result(subject("t"), result="old", is_error=False), script.answer)

    assert result(Script({"r": "new"})).text == "new"
    assert result(Script({"r": None})).text == "old"
    assert str(result(Script({})).outcome) == "blocked"
    with pytest.raises(ScriptError, match="the rule 'r' wants a text"):
        result(Script({"r": 3}))
