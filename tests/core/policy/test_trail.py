from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.policy.consults import Course, PersonSaid, Reply, Ruling, Word
from proxy.core.policy.scripted import settle
from proxy.core.policy.trail import Outcome, Step, Trail, action_name, not_for_request, unreached
from proxy.core.policy.verdicts import RuleName
from tests.core.policy.engine import NO, judge, policies, rule, subject

LIMIT: dict[str, Any] = {"limit": {"max": 1, "per": "1m"}}


def steps(rules: Any, name: str, arguments: Any = "{}", reply: Reply = True) -> list[Step]:
    trail = Trail()
    settle(policies(rules).for_request(RequestFacts()).judge(subject(name, arguments), trail=trail), lambda _: reply)
    return trail.steps


def outcomes(*args: Any, **more: Any) -> list[tuple[str, Outcome, str]]:
    return [(step.rule.rule, step.outcome, step.said) for step in steps(*args, **more)]


def test_every_rule_leaves_its_step() -> None:
    """Also those that pass the call by, and none behind the one that ends the chain."""
    rules = [
        rule("other", name="other", block=NO),
        rule(name="limit", **LIMIT),
        rule(name="cap", rewrite={"merge": {"n": 1, "x": None}}),
        rule(name="same", rewrite={"merge": {"n": 1}}),
        rule(name="fits", validate={"schema": {"type": "object"}}),
        rule(name="later", defer={}),
        rule(name="big", when="args.n > 5", block=NO),
        rule(name="end", block={"message": "stop here"}),
        rule(name="never", allow={}),
    ]
    assert outcomes(rules, "t", {"n": 9, "x": {"y": 1}}) == [
        ("other", Outcome.SKIPPED, ""),
        ("limit", Outcome.PASSED, "within the limit of 1"),
        ("cap", Outcome.CHANGED, 'n: 9 → 1; x: {"y":1} → nothing'),
        ("same", Outcome.PASSED, "there is nothing to change"),
        ("fits", Outcome.PASSED, "the arguments fit"),
        ("later", Outcome.DEFERRED, "surfaced when the others of its batch have their results"),
        ("big", Outcome.SKIPPED, ""),
        ("end", Outcome.ENDED, "blocked: stop here"),
    ]


def test_a_step_shows_the_call_as_the_rule_found_it() -> None:
    """A later rule compares what an earlier one made of the arguments."""
    rules = [rule(name="cap", rewrite={"merge": {"n": 1}}), rule(name="big", when="args.n > 5", block=NO)]
    (_, big) = steps(rules, "t", {"n": 9})
    assert big.difference is not None
    assert big.difference.found == "args.n is 1"


def test_a_failure_says_what_failed_and_what_follows() -> None:
    """By the policy's word on failures."""
    broken = [rule(name="r", when="args.n > 5", block=NO)]
    assert outcomes(broken, "t") == [
        ("r", Outcome.FAILED, "the evaluation failed: 'n' is not there; so the call is blocked")
    ]
    (step,) = _steps_of({"failurePolicy": "Ignore", "rules": broken})
    assert (step.outcome, step.said) == (Outcome.FAILED, "the evaluation failed: 'n' is not there; the rule is skipped")


def _steps_of(spec: Any) -> list[Step]:
    trail = Trail()
    settle(policies(spec).for_request(RequestFacts()).judge(subject("t"), trail=trail), lambda _: True)
    return trail.steps


def test_shadow_rules_are_marked_and_silence_their_own_policy() -> None:
    """They end the chain of their policy, and of no other."""
    spec = {"mode": "shadow", "rules": [rule(name="a", block=NO), rule(name="b", allow={})]}
    found = _steps_of(spec)
    assert [(s.rule.rule, s.shadow, s.outcome) for s in found] == [
        ("a", True, Outcome.ENDED),
        ("b", True, Outcome.UNREACHED),
    ]


@pytest.mark.parametrize(
    ("word", "outcome", "said"),
    [
        (Word.APPROVED, Outcome.APPROVED, "a person approved it"),
        (Word.DENIED, Outcome.ENDED, "denied: the call was denied"),
    ],
)
def test_a_persons_word_is_a_step(word: Word, outcome: Outcome, said: str) -> None:
    """Approval lets the call go on, and is more than passing it by."""
    found = outcomes([rule(name="r", requireApproval={})], "t", reply=PersonSaid(word, "id"))
    assert found == [("r", outcome, said)]


def test_calls_in_a_wrapper_have_trails_of_their_own() -> None:
    """Up to the one that holds the whole."""
    uses = [{"recipient_name": f"functions.{name}", "parameters": {}} for name in ("a", "b", "c")]
    trail = Trail()
    rules = policies([rule("b", name="r", block=NO)])
    call = subject("multi_tool_use.parallel", {"tool_uses": uses})
    settle(rules.for_request(RequestFacts()).judge(call, trail=trail), lambda _: True)
    assert trail.steps == []
    assert [(name, [s.outcome for s in inner.steps]) for name, inner in trail.inner] == [
        ("functions.a", [Outcome.SKIPPED]),
        ("functions.b", [Outcome.ENDED]),
    ]


def test_results_have_trails_too() -> None:
    """Last listed first: changed, nothing found, not for the call, failed."""
    rules = [
        rule(name="fails", when="args.none == 1", result={"replace": {"content": "x"}}),
        rule("other", name="other", result={"replace": {"content": "x"}}),
        rule(name="nothing", result={"redact": [{"pattern": "zzz"}]}),
        rule(name="cut", result={"truncate": {"maxBytes": 2}}),
    ]
    trail = Trail()
    chain = policies(rules).for_request(RequestFacts())
    settle(chain.judge_result(subject("t"), result="abcdef", is_error=False, trail=trail), lambda _: True)
    assert [(s.rule.rule, s.action, s.outcome, s.said) for s in trail.steps] == [
        ("cut", "result.truncate", Outcome.CHANGED, "truncated"),
        ("nothing", "result.redact", Outcome.PASSED, "there is nothing to change"),
        ("other", "result.replace", Outcome.SKIPPED, ""),
        (
            "fails",
            "result.replace",
            Outcome.FAILED,
            "the evaluation failed: 'none' is not there; so the result is withheld",
        ),
    ]


def test_rules_that_were_not_come_to_have_steps_that_say_why() -> None:
    """The request left them out, or the chain had ended."""
    (of_models,) = policies([{"name": "r", "match": {"models": ["o*"]}, "requireApproval": {}}]).call_rules
    step = not_for_request(of_models, RequestFacts(model="gpt"))
    assert (step.outcome, step.difference and step.difference.about) == (Outcome.SKIPPED, "models")
    assert unreached(of_models).outcome is Outcome.UNREACHED
    assert (step.rule, action_name(of_models)) == (RuleName("p0", "r"), "requireApproval")


def test_a_trail_changes_no_verdict() -> None:
    """Arguments that no enforced rule looked at stay as they are written, with a trail or without."""
    twice = '{"a":1,"a":2}'
    for rules in ([rule("other", name="r", block=NO)], [rule(name="r", when="args.a == 1", block=NO)]):
        trail = Trail()
        with_trail = settle(
            policies(rules).for_request(RequestFacts()).judge(subject("t", twice), trail=trail), lambda _: True
        )
        assert with_trail == judge(policies(rules), "t", twice)
        assert trail.steps


def test_a_service_that_leaves_a_call_to_the_next_rule_passes_it_on() -> None:
    """As a rule that lets it go ahead ends the chain."""
    rules = [rule(name="ask", ask={"url": "http://127.0.0.1:1/"}), rule(name="end", allow={})]
    assert outcomes(rules, "t", reply=Ruling(Course.NEXT)) == [
        ("ask", Outcome.PASSED, "it passes the call on"),
        ("end", Outcome.ENDED, "allowed"),
    ]


def test_many_changes_are_cut() -> None:
    """A line stays a line."""
    ((_, _, said),) = outcomes([rule(name="r", rewrite={"merge": {f"k{n}": n for n in range(25)}})], "t")
    assert said.startswith("k0: nothing → 0; k1: nothing → 1")
    assert said.endswith("; k19: nothing → 19; and 5 more")
