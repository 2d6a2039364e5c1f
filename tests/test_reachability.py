"""Rules that no call can reach."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.reachability import unreachable_rules

BLOCK: dict[str, Any] = {"block": {}}
ALLOW: dict[str, Any] = {"allow": {}}


def policy(*rules: dict[str, Any], name: str = "p", **spec: Any) -> dict[str, Any]:
    named = [{"name": f"r{number}", **rule} for number, rule in enumerate(rules)]
    return {"metadata": {"name": name}, "spec": {**spec, "rules": named}}


def rule(action: dict[str, Any], when: str | None = None, **match: Any) -> dict[str, Any]:
    return {**({"match": match} if match else {}), **({"when": when} if when else {}), **action}


def found(*documents: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The rules that are not reached, each with the policy and the rule that it is behind."""
    return [(u.rule.name, u.behind.policy, u.behind.name) for u in unreachable_rules(documents)]


def reached(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    return not found(policy(earlier, later))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (rule(BLOCK), rule(ALLOW)),
        (rule(ALLOW), rule(BLOCK, tools=["x"])),
        (rule({"answer": {"content": "x"}}), rule({"rewrite": {}}, "true")),
        (rule(BLOCK, tools=["*"]), rule(ALLOW)),
        (rule(BLOCK, tools=["delete_*"]), rule(ALLOW, tools=["delete_all"])),
        (rule(BLOCK, tools=["delete_*"]), rule(ALLOW, tools=["delete_*"], args={"x": {"gt": 1}})),
        (rule(BLOCK, tools=["delete_*"]), rule(ALLOW, tools=["delete_a*", "Delete-B"])),
        (rule(BLOCK, tools=["a", "b"]), rule(ALLOW, tools=["b"])),
        (rule(BLOCK, tools=["a?c"]), rule(ALLOW, tools=["abc"])),
        (rule(BLOCK, tools=["[ab]c"]), rule(ALLOW, tools=["ac"])),
        (rule(ALLOW, tools=["get_*"]), rule(ALLOW, tools=["get_x"])),
        (rule(ALLOW, tools=["*"]), rule(BLOCK, tools=["x"])),
        (rule(BLOCK, models=["gpt-*"]), rule(ALLOW, models=["gpt-5", "gpt-6*"])),
        (rule(BLOCK, apis=["chat"]), rule(ALLOW, apis=["chat"], tools=["x"])),
        (rule(BLOCK, owner="proxy"), rule(ALLOW, owner="proxy")),
        (rule(BLOCK, declared=False), rule(ALLOW, declared=False)),
        (rule(BLOCK, notTools=["a"]), rule(ALLOW, notTools=["a", "b"])),
        (rule(BLOCK, headers={"x": "1"}), rule(ALLOW, headers={"x": "1", "y": "2"})),
        (rule(BLOCK, clients=["team-*"]), rule(ALLOW, clients=["team-a"])),
    ],
)
def test_a_rule_behind_one_that_takes_all_its_calls_is_not_reached(
    earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    """Whatever the later rule says besides."""
    assert not reached(earlier, later)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (rule({"rewrite": {}}), rule(BLOCK)),
        (rule({"validate": {}}), rule(BLOCK)),
        (rule({"limit": {}}), rule(BLOCK)),
        (rule({"requireApproval": {}}), rule(BLOCK)),
        (rule({"ask": {}}), rule(BLOCK)),
        (rule({"hide": {}}), rule(BLOCK)),
        (rule({"result": {}}), rule(BLOCK)),
        (rule(BLOCK), rule({"hide": {}}, tools=["x"])),
        (rule(BLOCK), rule({"result": {"block": {}}}, tools=["x"])),
        (rule(BLOCK, "args.x > 1"), rule(ALLOW)),
        (rule(BLOCK, args={"x": {"gt": 1}}), rule(ALLOW)),
        (rule(BLOCK, tools=["a"]), rule(ALLOW)),
        (rule(BLOCK, tools=["a"]), rule(ALLOW, tools=["a", "b"])),
        (rule(BLOCK, tools=["delete_*"]), rule(ALLOW, tools=["del*"])),
        (rule(BLOCK, tools=["delete_*"]), rule(ALLOW, tools=["deleteAll"])),  # deleteall is another name
        (rule(BLOCK, tools=["a_*b"]), rule(ALLOW, tools=["a_*c"])),
        (rule(ALLOW, tools=["get_*"]), rule(BLOCK, tools=["get_x"])),  # getX is blocked, and not allowed before
        (rule(BLOCK, apis=["chat"]), rule(ALLOW)),
        (rule(BLOCK, apis=["chat"]), rule(ALLOW, apis=["chat", "responses"])),
        (rule(BLOCK, owner="proxy"), rule(ALLOW, owner="client")),
        (rule(BLOCK, notTools=["a", "b"]), rule(ALLOW, notTools=["a"])),
        (rule(BLOCK, headers={"x": "1"}), rule(ALLOW, headers={"x": "2"})),
        (rule(BLOCK, models=["gpt-5"]), rule(ALLOW, models=["GPT-5"])),
    ],
)
def test_a_rule_that_a_call_may_reach_is_not_told(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    """What is told is certain."""
    assert reached(earlier, later)


def test_rules_are_told_across_policies() -> None:
    """A set is one chain."""
    assert found(policy(rule(BLOCK), name="a"), policy(rule(ALLOW), rule(ALLOW), name="b")) == [
        ("r0", "a", "r0"),
        ("r1", "a", "r0"),
    ]


def test_the_match_of_a_policy_narrows_its_rules() -> None:
    """On both sides."""
    narrow: dict[str, Any] = {"match": {"tools": ["orders_*"]}}
    assert found(policy(rule(BLOCK), **narrow), policy(rule(ALLOW), name="q")) == []
    assert found(policy(rule(BLOCK), **narrow), policy(rule(ALLOW), name="q", **narrow)) == [("r0", "p", "r0")]
    assert found(policy(rule(BLOCK, tools=["orders_*"])), policy(rule(ALLOW), name="q", **narrow)) == [
        ("r0", "p", "r0")
    ]


def test_a_shadow_policy_ends_nothing_and_is_always_reached() -> None:
    """It tells what it would have done."""
    shadow = policy(rule(BLOCK), rule(ALLOW), name="s", mode="shadow")
    assert found(shadow, policy(rule(BLOCK))) == found(policy(rule(BLOCK)), shadow) == []


def test_a_policy_without_rules_says_nothing() -> None:
    """Nor does one without a spec."""
    assert found(policy(), {"metadata": {"name": "x"}}) == []
