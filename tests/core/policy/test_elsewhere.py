"""Rules whose decision is made elsewhere: what is asked, and what an answer does to the call."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Batch, Kind, Owner, RequestFacts, Tenant
from proxy.core.policy.consults import (
    AskCode,
    AskCodeOfResult,
    AskPerson,
    AskService,
    Course,
    NewText,
    PersonSaid,
    Reply,
    Ruling,
    Unanswered,
    Word,
)
from proxy.core.policy.decide import Decision, Needs, ResultOutcome, RuleName, Shadow, Verdict
from proxy.core.policy.judging import MOST_SHOWN
from tests.core.policy.engine import NO, UNEVALUATED, blocked, chain, finish, policies, rule, subject

URL = "http://127.0.0.1:8181/v1/data/tools"
ASK: dict[str, Any] = {"ask": {"url": URL, "timeout": "250ms"}}
CODE: dict[str, Any] = {"middleware": "house_rules:watch"}
PERSON: dict[str, Any] = {"requireApproval": {"wait": "5s", "ttl": "1m", "message": "Ask first."}}
ELSEWHERE = [ASK, CODE]
WITHHOLD: dict[str, Any] = {"result": {"block": {}}}
APPROVED, DENIED, PENDING, _ = (PersonSaid(word, "apr_1", "well") for word in Word)
FACTS = RequestFacts(tenant=Tenant("t"), client="team")


class World:
    """Gives one answer to every question, and keeps the questions."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Any] = []
        self._replies = list(replies)

    def __call__(self, asked: Any) -> Reply:
        self.asked.append(asked)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


def judged(rules: Any, reply: Reply | World, name: str = "t", arguments: Any = "{}", **more: Any) -> Verdict:
    world = reply if isinstance(reply, World) else World(reply)
    return finish(chain(rules, FACTS).judge(subject(name, arguments, **more)), world)


# ---------------------------------------------------------------- services and Python objects


@pytest.mark.parametrize("action", ELSEWHERE)
@pytest.mark.parametrize(
    ("ruling", "verdict"),
    [
        (Ruling(Course.ALLOW), Verdict(Decision.ALLOWED, "p0", "r", text=None)),
        (
            Ruling(Course.BLOCK, "Too much."),
            Verdict(Decision.BLOCKED, "p0", "r", result=blocked("Too much."), message="Too much."),
        ),
        (Ruling(Course.ANSWER, content="42"), Verdict(Decision.ANSWERED, "p0", "r", result="42")),
        (Ruling(Course.REWRITE, arguments={"a": 2}), Verdict(Decision.REWRITTEN, "p0", "r", text='{"a":2}')),
    ],
)
def test_what_a_decision_does(action: dict[str, Any], ruling: Ruling, verdict: Verdict) -> None:
    """It allows, blocks, answers or rewrites."""
    assert judged([rule(**action)], ruling, arguments='{"a":1}') == verdict


@pytest.mark.parametrize("action", ELSEWHERE)
@pytest.mark.parametrize(
    ("ruling", "reached"),
    [
        (Ruling(Course.NEXT), True),
        (Ruling(Course.REWRITE, arguments={"a": 1.0}), True),
        (Ruling(Course.REWRITE, arguments={"a": 2}), True),
        (Ruling(Course.ALLOW), False),
        (Ruling(Course.ANSWER), False),
    ],
)
def test_what_ends_the_chain(action: dict[str, Any], ruling: Ruling, reached: bool) -> None:
    """The next rule sees a call that is passed on or rewritten; what is the same by value is no change."""
    verdict = judged([rule(**action), rule(name="last", block=NO)], ruling, arguments='{"a":1}')
    assert (verdict.rule == "last") is reached


@pytest.mark.parametrize("action", ELSEWHERE)
@pytest.mark.parametrize("reply", [Unanswered("no answer"), True, NewText("x")])
def test_no_decision_is_an_error_in_evaluation(action: dict[str, Any], reply: Reply) -> None:
    """The call is blocked, unless the policy ignores that."""
    verdict = judged([rule(**action)], reply)
    assert (verdict.result, verdict.failed) == (blocked(UNEVALUATED), True)
    assert verdict.errors == (RuleName("p0", "r"),)
    ignoring = judged(policies({"failurePolicy": "Ignore", "rules": [rule(**action)]}), reply)
    assert (ignoring.decision, ignoring.errors) == (Decision.ALLOWED, (RuleName("p0", "r"),))


def test_a_service_that_may_be_missed() -> None:
    """`onError: next` passes the call on; the error is told all the same."""
    rules = [rule(ask={"url": URL, "onError": "next"})]
    verdict = judged(rules, Unanswered("no answer"))
    assert (verdict.decision, verdict.errors) == (Decision.ALLOWED, (RuleName("p0", "r"),))
    assert judged(rules, Ruling(Course.BLOCK, "no")).held


@pytest.mark.parametrize("action", ELSEWHERE)
@pytest.mark.parametrize("arguments", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}])
def test_arguments_that_are_no_json_are_not_taken(action: dict[str, Any], arguments: Any) -> None:
    """New arguments must be what JSON can say."""
    assert judged([rule(**action)], Ruling(Course.REWRITE, arguments=arguments)).failed


@pytest.mark.parametrize("action", ELSEWHERE)
@pytest.mark.parametrize("ruling", [Ruling(Course.ANSWER, content="x"), Ruling(Course.REWRITE, arguments={"a": 1})])
def test_the_upstreams_own_calls_are_not_answered(action: dict[str, Any], ruling: Ruling) -> None:
    """What the upstream runs can be allowed or blocked, and nothing else."""
    found = judged([rule(**action)], ruling, owner=Owner.UPSTREAM, kind=Kind.APPROVAL, namespace="docs")
    assert found.failed


def test_what_a_service_is_asked() -> None:
    """The call as earlier rules left it, with its batch; within the time of the rule."""
    world = World(Ruling(Course.NEXT))
    rules = [rule(name="cap", rewrite={"merge": {"n": 1}}), rule(name="ask", **ASK)]
    judged(rules, world, "functions.t", '{"n":9}', batch=Batch(1, 0, ("t",)))
    (asked,) = world.asked
    assert isinstance(asked, AskService)
    assert (asked.rule, asked.url, asked.seconds) == (RuleName("p0", "ask"), URL, 0.25)
    assert (asked.call.tool, asked.call.arguments, asked.call.raw) == ("t", {"n": 1}, '{"n":1}')
    assert (asked.call.batch, asked.call.facts) == (Batch(1, 0, ("t",)), FACTS)


def test_arguments_that_are_no_object() -> None:
    """A service is not asked of them, since it would take them for none; a Python object sees that there are none."""
    world = World(Ruling(Course.ALLOW))
    assert judged([rule(**ASK)], world, arguments="[1]").failed
    assert world.asked == []
    assert judged([rule(**CODE)], world, arguments="[1]").decision is Decision.ALLOWED
    (asked,) = world.asked
    assert isinstance(asked, AskCode)
    assert (asked.target, asked.call.arguments, asked.call.raw) == ("house_rules:watch", None, "[1]")


@pytest.mark.parametrize("action", [*ELSEWHERE, PERSON])
def test_arguments_that_can_be_read_in_two_ways(action: dict[str, Any]) -> None:
    """The owner gets the text that was decided on."""
    reply: Reply = APPROVED if action is PERSON else Ruling(Course.ALLOW)
    assert judged([rule(**action)], reply, arguments='{"a":1,"a":2}').text == '{"a":2}'


def test_what_has_to_be_known() -> None:
    """A service is told of the batch; the others need the call's arguments alone."""
    needs = [chain([rule(**action)]).needs("t", Owner.CLIENT) for action in (ASK, CODE, PERSON)]
    assert needs == [Needs.BATCH, Needs.ARGUMENTS, Needs.ARGUMENTS]
    assert all(chain([rule(**action)]).could_hold for action in (ASK, CODE, PERSON))


def test_a_recheck_asks_nobody() -> None:
    """When a held call runs, what was decided elsewhere stands."""
    rules = [rule(name=str(n), **action) for n, action in enumerate((ASK, CODE, PERSON))]
    assert chain(rules).recheck(subject("t")) == Verdict(Decision.ALLOWED)


def test_services_in_shadow_mode_are_asked() -> None:
    """What they decide is noted, and not applied."""
    shadow = policies({"mode": "shadow", "rules": [rule(**ASK)]})
    verdict = judged(shadow, Ruling(Course.BLOCK, "no"))
    assert (verdict.decision, verdict.shadows) == (Decision.ALLOWED, (Shadow("p0", "r", Decision.BLOCKED),))


# ---------------------------------------------------------------- people


def test_what_a_person_approves_goes_ahead() -> None:
    """Under the rule that asked; later rules see the call all the same."""
    verdict = judged([rule(**PERSON)], APPROVED)
    assert verdict == Verdict(Decision.APPROVED, "p0", "r", approvals=("apr_1",))
    later = judged([rule(**PERSON), rule(name="no", block=NO)], APPROVED)
    assert (later.decision, later.rule, later.approvals) == (Decision.BLOCKED, "no", ("apr_1",))
    allowed = judged([rule(**PERSON), rule(name="yes", allow={})], APPROVED)
    assert (allowed.decision, allowed.rule) == (Decision.APPROVED, "r")


def test_what_a_person_denies_is_blocked_with_the_note() -> None:
    """The model reads why."""
    verdict = judged([rule(**PERSON)], DENIED)
    message = "the call was denied: well"
    assert verdict == Verdict(Decision.DENIED, "p0", "r", result=blocked(message), message=message)


def test_what_nobody_decided_is_pending() -> None:
    """The model reads under which id."""
    verdict = judged([rule(**PERSON)], PENDING)
    assert (verdict.decision, verdict.held) == (Decision.PENDING, True)
    assert verdict.result == f"Tool call held by policy p0/r: {verdict.message}"
    assert verdict.message.startswith("Ask first. (approval is pending under the id apr_1")


def test_what_a_person_is_asked() -> None:
    """The call as earlier rules left it, and a key that only the same arguments have."""
    world = World(APPROVED)
    judged([rule(name="a", rewrite={"default": {"n": 1}}), rule(name="b", **PERSON)], world, arguments='{"to": "é"}')
    (asked,) = world.asked
    assert isinstance(asked, AskPerson)
    assert (asked.rule, asked.wait, asked.ttl, asked.message) == (RuleName("p0", "b"), 5.0, 60.0, "Ask first.")
    assert (asked.shown, asked.canonical) == ('{"to":"é","n":1}', '{"n":1e0,"to":"é"}')


def test_a_call_is_approved_once_for_all_rules() -> None:
    """Two rules ask one question, unless a rule between them changed the arguments."""
    world = World(APPROVED)
    both = [rule(name="a", **PERSON), rule(name="b", **PERSON)]
    assert judged(both, world).approvals == ("apr_1",)
    between = [both[0], rule(name="c", rewrite={"merge": {"n": 1}}), both[1]]
    verdict = judged(between, world)
    assert len(world.asked) == 3
    assert (verdict.decision, verdict.rule, verdict.approvals) == (Decision.REWRITTEN, "c", ("apr_1", "apr_1"))


def test_a_person_is_not_asked_in_shadow_mode() -> None:
    """What would wait is noted."""
    shadow, world = policies({"mode": "shadow", "rules": [rule(**PERSON)]}), World(APPROVED)
    verdict = judged(shadow, world)
    assert (verdict.decision, verdict.shadows) == (Decision.ALLOWED, (Shadow("p0", "r", Decision.PENDING),))
    assert world.asked == []
    assert (shadow.asks_people, policies([rule(**PERSON)]).asks_people) == (False, True)


@pytest.mark.parametrize("arguments", ["[1]", '{"a":1e999}', '{"a":"' + "x" * MOST_SHOWN + '"}'])
def test_what_a_person_cannot_see_is_not_asked(arguments: str) -> None:
    """Arguments that are no object, or too long to look at, are an error in evaluation."""
    world = World(APPROVED)
    assert judged([rule(**PERSON)], world, arguments=arguments).failed
    assert world.asked == []


def test_nobody_to_ask_is_an_error() -> None:
    """Whatever else is said, it is no word of a person."""
    for reply in (True, Ruling(Course.ALLOW), Unanswered("no")):
        assert judged([rule(**PERSON)], reply).failed


def test_too_much_that_waits_blocks() -> None:
    """It is no error in evaluation, which a policy might ignore."""
    ignoring = {"failurePolicy": "Ignore", "rules": [rule(**PERSON)]}
    verdict = judged(ignoring, PersonSaid(Word.UNASKED, ""))
    assert (verdict.decision, verdict.policy, verdict.rule) == (Decision.BLOCKED, "p0", "r")
    assert verdict.result == (
        "Tool call blocked by policy p0/r: too many calls wait for a person's approval already, and nobody was asked"
        " for this one"
    )


def test_calls_in_a_wrapper() -> None:
    """A person is asked for each; the wrapper is held whole, and says which approvals it had."""
    uses = [{"recipient_name": f"functions.{name}", "parameters": {}} for name in ("pay", "send", "look")]
    rules = [rule("pay", "send", **PERSON)]
    one, two = PersonSaid(Word.APPROVED, "apr_1"), PersonSaid(Word.APPROVED, "apr_2")
    held = judged(rules, World(one, PersonSaid(Word.PENDING, "apr_2")), "multi_tool_use.parallel", {"tool_uses": uses})
    assert (held.decision, held.approvals) == (Decision.PENDING, ("apr_1",))
    ahead = judged(rules, World(one, two), "multi_tool_use.parallel", {"tool_uses": uses})
    assert (ahead.decision, ahead.approvals) == (Decision.APPROVED, ("apr_1", "apr_2"))


# ---------------------------------------------------------------- results


def test_a_python_object_and_results() -> None:
    """It sees a result in its place in the chain, and gives another or leaves it."""
    rules = [rule(name="out", result={"redact": [{"pattern": "b", "with": "c"}]}), rule(name="code", **CODE)]
    rules.append(rule(name="in", result={"redact": [{"pattern": "a", "with": "aa"}]}))
    world = World(NewText("bb"))
    verdict = finish(chain(rules).judge_result(subject("t"), result="a", is_error=False), world)
    assert (verdict.text, verdict.outcome) == ("cc", ResultOutcome.REPLACED)
    (asked,) = world.asked
    assert isinstance(asked, AskCodeOfResult)
    assert (asked.result, asked.call.tool) == ("aa", "t")
    for nothing in (NewText(None), NewText("a")):
        left = finish(chain([rule(**CODE)]).judge_result(subject("t"), result="a", is_error=False), World(nothing))
        assert (left.text, left.outcome) == ("a", ResultOutcome.OK)


@pytest.mark.parametrize("reply", [Unanswered("it raised KeyError"), True, Ruling(Course.ALLOW)])
def test_a_python_object_that_fails_withholds_the_result(reply: Reply) -> None:
    """As any result rule that cannot be evaluated."""
    verdict = finish(chain([rule(**CODE)]).judge_result(subject("t"), result="a", is_error=False), World(reply))
    assert verdict.text == f"Tool result withheld by policy p0/r: {UNEVALUATED}"
    assert (verdict.outcome, verdict.errors) == (ResultOutcome.BLOCKED, (RuleName("p0", "r"),))


def test_whether_results_ask() -> None:
    """Only Python objects are asked of results."""
    asks = [chain([rule(**action)]).asks_of_results for action in (CODE, ASK, WITHHOLD)]
    assert asks == [True, False, False]
