from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.calls import Owner, RequestFacts, Tenant
from proxy.core.policy import recorded as recorded_calls
from proxy.core.policy.consults import CountCall
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.failures import NotKnownError
from proxy.core.policy.names import NamedTool
from proxy.core.policy.recorded import NEVER_RECORDED, RecordedCall, RecordedCounts, RecordedSet, Sightings, names_tool
from proxy.core.policy.trail import Outcome
from proxy.core.policy.verdicts import RuleName
from tests.core.policy.engine import NO, policies, rule, subject

FACTS = RequestFacts(model="gpt", client="team-a", tenant=Tenant("team-a"), unknown=NEVER_RECORDED)
BARE = replace(FACTS, unknown=NEVER_RECORDED | {"args"})


def recorded(
    name: str,
    arguments: Any = "{}",
    *,
    facts: RequestFacts = FACTS,
    decision: str = "allowed",
    by: tuple[str, str] = ("", ""),
    time: float = 0.0,
) -> RecordedCall:
    return RecordedCall(subject(name, arguments, owner=Owner.CLIENT), facts, time, decision, *by)


def decision(rules: PolicySet | list[Any], call: RecordedCall) -> str:
    return str(RecordedSet(rules if isinstance(rules, PolicySet) else policies(rules)).judge(call).decision)


def test_a_recorded_call_is_judged_by_the_same_rules() -> None:
    """As far as they ask for what a record has."""
    rules = [
        {"name": "m", "match": {"models": ["o*"]}, "block": NO},
        rule("delete_*", name="r", block=NO),
        rule("search", name="cap", when="args.n > 10", rewrite={"merge": {"n": 10}}),
    ]
    assert decision(rules, recorded("delete_x")) == "blocked"
    assert decision(rules, recorded("search", {"n": 99})) == "rewritten"
    assert decision(rules, recorded("search", {"n": 9})) == "allowed"
    assert decision(rules, recorded("x", facts=replace(FACTS, model="o3"))) == "blocked"


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"match": {"headers": {"x-a": "b"}}, "block": NO}, "headers"),
        ({"when": "'x-a' in headers", "block": NO}, "headers"),
        ({"when": "user == 'u'", "block": NO}, "user"),
        ({"when": "metadata.a == 'u'", "block": NO}, "metadata"),
        ({"when": "batch.size > 1", "block": NO}, "batch"),
        ({"when": "rawArgs == ''", "block": NO}, "rawArgs"),
        ({"validate": {"schema": "declared"}}, "declared schema"),
        ({"limit": {"max": 9, "per": "1m", "by": ["user"]}}, "user"),
        ({"ask": {"url": "http://127.0.0.1:1/"}}, "ask"),
        ({"middleware": "house_rules:watch"}, "middleware"),
    ],
)
def test_what_no_record_has_is_not_known(parts: dict[str, Any], what: str) -> None:
    """Not even a policy that ignores failures passes it by; a call that the rule is not for is decided."""
    rules = policies({"failurePolicy": "Ignore", "rules": [{"name": "r", **parts}]})
    with pytest.raises(NotKnownError) as raised:
        RecordedSet(rules).judge(recorded("t"))
    assert raised.value.what == what
    narrowed = policies({"match": {"tools": ["other"]}, "rules": [{"name": "r", **parts}]})
    assert decision(narrowed, recorded("t")) == "allowed"


@pytest.mark.parametrize(
    "parts",
    [
        {"when": "args.a == 1", "block": NO},
        {"match": {"args": {"a": {"present": True}}}, "block": NO},
        {"validate": {"schema": True}},
        {"rewrite": {"merge": {"a": 1}}},
        {"limit": {"max": 1, "per": "1m", "by": ["args.a"]}},
        {"requireApproval": {}},
    ],
)
def test_arguments_that_were_left_out_are_not_known(parts: dict[str, Any]) -> None:
    """A rule by name alone decides all the same."""
    with pytest.raises(NotKnownError, match="args"):
        RecordedSet(policies([{"name": "r", **parts}])).judge(recorded("t", facts=BARE))
    before = policies([rule("t", name="first", block=NO), {"name": "r", **parts}])
    assert decision(before, recorded("t", facts=BARE)) == "blocked"


def test_shadow_rules_decide_nothing_and_are_not_asked() -> None:
    """What they could not know does not count."""
    shadow = policies({"mode": "shadow", "rules": [{"name": "r", "when": "user == 'u'", "block": NO}]})
    assert decision(shadow, recorded("t")) == "allowed"


def test_limits_are_counted_by_the_times_of_the_records() -> None:
    """A window slides, as it does in a store."""
    counted = RecordedSet(policies([rule(name="r", limit={"max": 2, "per": "10s", "by": ["tenant"]})]))
    times = (0, 1, 2, 10.5, 10.9, 11.5)
    found = [counted.judge(recorded("t", time=time)).held for time in times]
    assert found == [False, False, True, False, True, False]
    other = replace(FACTS, tenant=Tenant("b"))
    assert not counted.judge(recorded("t", facts=other, time=11.6)).held


def test_of_very_many_keys_the_latest_are_counted() -> None:
    """Memory is bounded; the oldest key begins anew."""
    counts = RecordedCounts(most=2)
    keys = [CountCall(("p", "r", f"tenant={n}"), 1, 60.0) for n in range(3)]
    assert [counts.count(key, 0.0) for key in keys] == [True, True, True]
    assert [counts.count(key, 1.0) for key in (keys[2], keys[1])] == [False, False]
    assert counts.count(keys[0], 2.0)


@pytest.mark.parametrize(
    ("was", "by", "expected"),
    [
        ("approved", ("p0", "r"), "approved"),
        ("denied", ("p0", "r"), "denied"),
        ("pending", ("p0", "r"), "pending"),
        ("approved", ("p0", "other"), "pending"),
        ("allowed", ("", ""), "pending"),
    ],
)
def test_a_person_is_taken_to_say_what_was_said_then(was: str, by: tuple[str, str], expected: str) -> None:
    """By the same rule; to another nobody has said anything."""
    rules = [{"name": "r", "requireApproval": {}}]
    assert decision(rules, recorded("t", decision=was, by=by)) == expected


def test_the_trail_of_the_last_call_counts_nothing_anew() -> None:
    """It is found with the answers that were given."""
    judged = RecordedSet(policies([rule(name="r", limit={"max": 1, "per": "1h"})]))
    first, second = recorded("t", time=1), recorded("t", time=2)
    assert not judged.judge(first).held
    assert [step.outcome for step in judged.retrace(first).steps] == [Outcome.PASSED]
    assert judged.judge(second).held
    assert [step.outcome for step in judged.retrace(second).steps] == [Outcome.ENDED]


def seen(rules: list[Any] | dict[str, Any], *calls: RecordedCall) -> list[str]:
    sightings = Sightings(policies(rules))
    for call in calls:
        sightings.see(call)
    return [name.rule for name in sightings.unmet]


def test_rules_that_no_call_meets_are_known() -> None:
    """Each is looked at by itself: behind an end, in shadow mode, of results too; and one that fails was met."""
    rules = [
        rule("t", name="ends", block=NO),
        rule("t", name="behind", block=NO),
        rule("t", name="when", when="args.n > 1", block=NO),
        rule("t", name="fails", when="args.none > 1", block=NO),
        rule("t", name="result", when="args.n == 1 && result == ''", result={"replace": {"content": ""}}),
        rule("u", name="result-of-another", result={"replace": {"content": ""}}),
        {"name": "model", "match": {"models": ["o*"]}, "block": NO},
    ]
    assert seen(rules, recorded("t", {"n": 1})) == ["when", "model", "result-of-another"]
    assert seen({"mode": "shadow", "rules": rules}, recorded("t", {"n": 2}), recorded("u")) == ["model"]


def test_a_rule_that_asks_for_what_was_not_recorded_may_have_been_met() -> None:
    """Nobody is told of what is not known."""
    rules = [
        rule("t", name="args", when="args.n > 1", block=NO),
        {"name": "headers", "match": {"headers": {"x": "y"}}, "block": NO},
        rule("u", name="not", when="args.n > 1", block=NO),
    ]
    assert seen(rules, recorded("t", facts=BARE)) == ["not"]


def test_calls_in_a_wrapper_are_seen() -> None:
    """As far as their wrapper's arguments were recorded."""
    rules = [rule("a", name="r", block=NO)]
    uses = {"tool_uses": [{"recipient_name": "functions.a", "parameters": {}}]}
    assert seen(rules, recorded("multi_tool_use.parallel", uses)) == []
    assert seen(rules, recorded("multi_tool_use.parallel", uses, facts=BARE)) == ["r"]


def test_a_rule_for_all_tools_names_none() -> None:
    """A star names all."""
    tool = NamedTool.of("search")
    assert not names_tool(policies([{"name": "r", "block": NO}, rule("other", name="s", block=NO)]), tool)
    assert names_tool(policies([rule("sea*", name="r", block=NO)]), tool)
    assert names_tool(policies([rule("search", name="r", result={"replace": {"content": ""}})]), tool)
    assert RuleName("p0", "r") in Sightings(policies([{"name": "r", "block": NO}])).unmet


def test_the_rules_that_requests_meet_are_kept_for_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's name is the client's word: there may be any number of them."""
    monkeypatch.setattr(recorded_calls, "_MOST_REQUESTS", 2)
    judged = RecordedSet(policies([{"name": "r", "match": {"models": ["m1"]}, "block": NO}]))
    held = [judged.judge(recorded("t", facts=replace(FACTS, model=f"m{n}"))).held for n in (0, 1, 2, 1, 0)]
    assert held == [False, True, False, True, False]
