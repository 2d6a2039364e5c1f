from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Api, Batch, Owner, RequestFacts
from proxy.core.policy.decide import Decision, DefaultAction, Lane, Needs, RuleName, Verdict
from tests.core.policy.engine import NO, UNEVALUATED, blocked, chain, finish, judge, policies, rule, subject

FACTS = RequestFacts(model="gpt-4.1-mini", headers={"x-team": "ops"}, client="team-a", declared={"x": None})


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"models": ["gpt-4.1*"]}, True),
        ({"models": ["GPT-4.1*", "o3"]}, False),
        ({"apis": ["chat"]}, True),
        ({"apis": ["responses"]}, False),
        ({"clients": ["team-*"]}, True),
        ({"clients": ["team-b"]}, False),
        ({"headers": {"X-Team": "o*"}}, True),
        ({"headers": {"x-team": "dev"}}, False),
        ({"headers": {"x-other": "*"}}, False),
    ],
)
def test_a_request_leaves_out_what_it_rules_out(match: dict[str, Any], fits: bool) -> None:
    """A rule's and its policy's match both count."""
    for specs in ([{"name": "r", "match": match, "block": NO}], {"match": match, "rules": [rule(block=NO)]}):
        found = policies(specs)
        assert judge(found, "t", facts=FACTS).held is fits
        assert chain(found, FACTS).could_hold is fits


def test_a_caller_without_a_name_is_no_named_client() -> None:
    """A star is for clients that the configuration names."""
    rules = [{"name": "r", "match": {"clients": ["*"]}, "block": NO}]
    assert not judge(rules, "t", facts=RequestFacts()).held


@pytest.mark.parametrize(
    ("found", "holds", "ends", "results"),
    [
        (policies([]), False, False, False),
        (policies(default=DefaultAction.BLOCK), True, False, False),
        (policies([rule(allow={})]), False, False, False),
        (policies([rule(when="args.x == 1", allow={})]), True, False, False),
        (policies({"failurePolicy": "Ignore", "rules": [rule(when="args.x == 1", allow={})]}), False, False, False),
        (policies([rule(block=NO)]), True, False, False),
        (policies([rule(block={"then": "stop"})]), True, True, False),
        (policies([rule(block={"then": "fail"})]), True, True, False),
        (policies({"mode": "shadow", "rules": [rule(block={"then": "fail"})]}), False, False, False),
        (policies([rule(defer={})]), True, False, False),
        (policies([rule(hide={})]), True, False, False),
        (policies([rule(result={"block": {}})]), False, False, True),
        (policies({"batch": {"maxParallel": 1}}), True, False, False),
    ],
)
def test_a_chain_tells_what_it_could_do(found: Any, holds: bool, ends: bool, results: bool) -> None:
    """What must wait for what depends on it."""
    met = chain(found)
    assert (met.could_hold, met.ends_turns, met.has_result_rules) == (holds, ends, results)


def test_hidden_tools_are_found_by_name() -> None:
    """Enforced rules hide, whatever the spelling; a shadow rule hides nothing."""
    found = policies(
        {"mode": "shadow", "rules": [rule("s_*", name="dark", hide={})]},
        [rule("x", name="b", block=NO), rule("secret_*", name="h", hide={})],
    )
    met = chain(found)
    assert met.hidden_by("secretKey") == RuleName("p1", "h")
    assert met.hidden_by("s_x") is None
    assert met.hidden_by("x") is None
    assert chain([rule("a", hide={})]).hidden_by("b") is None


def test_a_tool_behind_a_namespace_or_label_is_hidden_by_either_name() -> None:
    """As `name` and as `namespace.name`."""
    met = chain([rule("files.read", name="one", hide={}), rule("write", name="other", hide={})])
    assert met.hidden_by("read", "files") == RuleName("p0", "one")
    assert met.hidden_by("write", "files") == met.hidden_by("write") == RuleName("p0", "other")
    assert met.hidden_by("read") is None is met.hidden_by("read", "mail")


ARGUMENTS = {"match": {"args": {"a": {"equals": 1}}}}


@pytest.mark.parametrize(
    ("parts", "needs"),
    [
        ({"block": NO}, Needs.NAME),
        ({"when": "tool == 'x'", "block": NO}, Needs.NAME),
        ({"when": "args.a == 1", "block": NO}, Needs.ARGUMENTS),
        ({"when": "rawArgs == ''", "block": NO}, Needs.ARGUMENTS),
        ({"when": "batch.size > 1", "block": NO}, Needs.BATCH),
        ({**ARGUMENTS, "block": NO}, Needs.ARGUMENTS),
        ({"rewrite": {"merge": {"a": 1}}}, Needs.ARGUMENTS),
        ({"rewrite": {"expr": "{'n': batch.size}"}}, Needs.BATCH),
        ({"validate": {"schema": True}}, Needs.ARGUMENTS),
        ({"answer": {"content": "x"}}, Needs.NAME),
        ({"answer": {"expr": "args.a"}}, Needs.ARGUMENTS),
        ({"limit": {"max": 1, "per": "1h"}}, Needs.NAME),
        ({"limit": {"max": 1, "per": "1h", "by": ["args.a"]}}, Needs.ARGUMENTS),
        ({"defer": {}}, Needs.NAME),
        ({"hide": {}}, Needs.NAME),
        ({"result": {"block": {}}}, Needs.NAME),
    ],
)
def test_what_must_be_known_before_a_call_can_be_judged(parts: dict[str, Any], needs: Needs) -> None:
    """Shadow rules count too, and rules for other tools do not."""
    for mode in ("enforce", "shadow"):
        assert chain(policies({"mode": mode, "rules": [{"name": "r", **parts}]})).needs("t", Owner.CLIENT) is needs
    assert chain(policies({"match": {"tools": ["x"]}, "rules": [{"name": "r", **parts}]})).needs("t", Owner.CLIENT) is (
        Needs.NAME
    )


def test_rules_behind_one_that_always_ends_need_nothing() -> None:
    """What is never reached is not waited for."""
    rules = [rule("t", name="a", allow={}), rule(name="b", when="batch.size > 1", block=NO)]
    assert chain(rules).needs("t", Owner.CLIENT) is Needs.NAME
    assert chain(rules).needs("T", Owner.CLIENT) is Needs.BATCH


def test_a_wrapper_needs_what_its_calls_may_need() -> None:
    """Its calls are in its arguments."""
    wrapper = "multi_tool_use.parallel"
    assert chain([]).needs(wrapper, Owner.CLIENT) is Needs.NAME
    assert chain([rule("x", block=NO)]).needs(wrapper, Owner.CLIENT) is Needs.ARGUMENTS
    assert chain([rule("x", when="batch.size > 1", block=NO)]).needs(wrapper, Owner.CLIENT) is Needs.BATCH
    assert chain(policies(default=DefaultAction.BLOCK)).needs(wrapper, Owner.CLIENT) is Needs.ARGUMENTS


def test_arguments_are_not_read_for_a_rule_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging by name alone costs no parsing."""

    def refuse(_: object) -> None:
        raise AssertionError("the arguments were read")

    monkeypatch.setattr("proxy.core.policy.views.read_arguments", refuse)
    rules = [rule("t", block=NO), rule("u", name="u", when="args.a == 1", block=NO), rule("v", name="v", defer={})]
    assert [judge(rules, name).held for name in ("t", "v", "w")] == [True, False, False]


def test_a_recheck_counts_and_changes_nothing() -> None:
    """Only match, when, validate and block are looked at again."""
    rules = [
        rule(name="count", limit={"max": 1, "per": "1h"}),
        rule(name="change", rewrite={"merge": {"a": 1}}),
        rule(name="answer", answer={"content": "x"}),
        rule("t", name="check", validate={"schema": {"required": ["a"]}}),
        rule(name="block", when="args.a == 2 && batch.size == 1", block=NO),
    ]
    batch = Batch(1, 0, ("t",))
    met = chain(rules)
    assert met.recheck(subject("t", {"a": 1}, batch=batch)) == Verdict(Decision.ALLOWED)
    assert met.recheck(subject("t", {}, batch=batch)).rule == "check"
    assert met.recheck(subject("t", {"a": 2}, batch=batch)).result == blocked("no", "p0/block")
    assert met.recheck(subject("t", {"a": 2})).result == blocked(UNEVALUATED, "p0/block")
    assert chain(policies({"mode": "shadow", "rules": [rule(block=NO)]})).recheck(subject("t")).shadows == ()
    assert chain([rule(hide={})]).recheck(subject("t")).held
    assert chain(policies(default=DefaultAction.BLOCK)).recheck(subject("t")).held


def test_lanes_are_those_of_policies_that_fit() -> None:
    """A condition that cannot be judged counts as met, and a shadow policy limits nothing."""
    found = policies(
        {"batch": {"maxParallel": 1}, "match": {"tools": ["slow_*"]}},
        {"batch": {"maxParallel": 2}, "match": {"args": {"n": {"gt": 1}}}},
        {"batch": {"maxParallel": 3}, "mode": "shadow"},
    )
    met = chain(found)
    assert met.lanes(subject("slow_x", {"n": 1})) == (Lane("p0", 1),)
    assert met.lanes(subject("x", {"n": 2})) == (Lane("p1", 2),)
    assert met.lanes(subject("x", {"n": "2"})) == (Lane("p1", 2),)
    assert met.needs("x", Owner.CLIENT) is Needs.ARGUMENTS
    assert chain([]).lanes(subject("x")) == ()


OWNED = {"match": {"owner": "upstream", "args": {"a": {"equals": 1}}}}
CLIENTS = {"match": {"tools": ["docs.*"], "owner": "client"}}
WHEN = {"when": "args.a == 1"}


@pytest.mark.parametrize(
    ("rules", "any_name", "search", "delete"),
    [
        ([], False, False, False),
        ([rule(block=NO)], True, True, True),
        ([rule("delete*", block=NO)], True, False, True),
        ([rule("docs.delete", block=NO)], True, False, True),
        ([rule("mail.delete", block=NO)], True, False, False),
        ([{"name": "r", "match": {"notTools": ["docs.*"]}, "block": NO}], False, False, False),
        ([{"name": "r", "match": {"notTools": ["docs.s*"]}, "block": NO}], True, False, True),
        ([{"name": "r", "match": {"declared": False}, "block": NO}], False, False, False),
        ([{"name": "r", "match": {"declared": True}, "block": NO}], True, True, True),
        ([{"name": "r", **OWNED, "block": NO}], True, True, True),
        ([{"name": "r", **CLIENTS, "block": NO}], False, False, False),
        ([{"name": "r", "match": {"owner": "proxy"}, "block": NO}], False, False, False),
        ([rule(answer={"content": "x"})], True, True, True),
        ([rule(rewrite={"merge": {"a": 1}})], True, True, True),
        ([rule("search", validate={"schema": True})], True, True, False),
        ([rule("search", limit={"max": 1, "per": "1h"})], True, True, False),
        ([rule("search", hide={})], True, True, False),
        ([rule(defer={})], False, False, False),
        ([rule(**WHEN, defer={})], True, True, True),
        ([rule(allow={})], False, False, False),
        ([rule(**WHEN, allow={})], True, True, True),
        ([rule(result={"block": {}})], False, False, False),
        ([rule("search", name="a", allow={}), rule(block=NO)], True, False, True),
        ([rule("docs.*", name="a", allow={}), rule(block=NO)], False, False, False),
        ([rule("docs.*", name="a", **WHEN, allow={}), rule(block=NO)], True, True, True),
        ([{"name": "a", "match": {"notTools": ["x"]}, "allow": {}}, rule(block=NO)], True, False, False),
        ([rule(name="b", block=NO), rule(name="a", allow={})], True, True, True),
    ],
)
def test_whether_a_call_of_a_hosted_server_could_be_held(
    rules: list[Any], any_name: bool, search: bool, delete: bool
) -> None:
    """What cannot be excluded could be: of any name, and of the names that the request narrows them to."""
    met = chain(rules)
    assert met.may_hold_upstream("docs", None) is met.may_hold_upstream("docs", []) is any_name
    assert met.may_hold_upstream("docs", ["search"]) is search
    assert met.may_hold_upstream("docs", ["delete"]) is delete
    assert met.may_hold_upstream("docs", ["search", "delete"]) is (search or delete)
    shadow = chain(policies({"mode": "shadow", "rules": rules}))
    assert not shadow.may_hold_upstream("docs", None)


def test_an_error_that_is_ignored_holds_nothing() -> None:
    """Where a rule can only fail, and its failure is ignored, nothing is held."""
    for parts in ({"answer": {"content": "x"}}, {"rewrite": {"merge": {"a": 1}}}, {**WHEN, "allow": {}}):
        met = chain(policies({"failurePolicy": "Ignore", "rules": [{"name": "r", **parts}]}))
        assert not met.may_hold_upstream("docs", None)
    assert chain(policies({"failurePolicy": "Ignore", "rules": [rule(block=NO)]})).may_hold_upstream("docs", None)


def test_what_no_rule_lets_go_ahead_could_be_held_by_default() -> None:
    """The default action counts where no rule ends the chain before it, and lanes never do."""
    rules = [{"name": "r", "match": {"tools": ["docs.*"], "owner": "upstream"}, "allow": {}}]
    met = chain(policies(rules, default=DefaultAction.BLOCK))
    assert not met.may_hold_upstream("docs", None)
    assert met.may_hold_upstream("mail", None)
    assert not met.may_hold_upstream("docs", ["search"])
    assert met.may_hold_upstream("mail", ["search"])
    assert not chain(policies({"batch": {"maxParallel": 1}})).may_hold_upstream("docs", None)
    shadow = policies({"mode": "shadow", "rules": rules}, default=DefaultAction.BLOCK)
    assert chain(shadow).may_hold_upstream("docs", None)


@pytest.mark.parametrize(
    "names", [("search",), ("delete",), ("", "x"), ("docs.search",), ("Search",), ("functions.delete",)]
)
@pytest.mark.parametrize("first", [rule("search", name="a", allow={}), rule("docs.*", name="a", allow={}), None])
@pytest.mark.parametrize("second", [rule("delete*", block=NO), rule("docs.search", **WHEN, block=NO), None])
@pytest.mark.parametrize("default", DefaultAction)
def test_what_could_not_be_held_is_not(names: Any, first: Any, second: Any, default: DefaultAction) -> None:
    """A call of a server that is said to be safe goes ahead, whatever its arguments."""
    found = policies([one for one in (first, second) if one], default=default)
    met = chain(found)
    held = [
        judge(found, name, arguments, owner=Owner.UPSTREAM, namespace="docs").held
        for name in names
        for arguments in ('{"a": 1}', '{"a": 2}', "[]")
    ]
    assert met.may_hold_upstream("docs", names) or not any(held)
    assert met.may_hold_upstream("docs", None) or not any(held)


def test_what_the_upstream_runs_is_in_no_lane() -> None:
    """An approval is never put off."""
    met = chain(policies({"batch": {"maxParallel": 1}}))
    assert met.lanes(subject("x")) == (Lane("p0", 1),)
    assert met.lanes(subject("x", owner=Owner.UPSTREAM)) == ()


def test_without_rules_a_result_stays() -> None:
    """Nothing is looked at."""
    assert finish(chain([]).judge_result(subject("t"), result="x", is_error=False)).text == "x"


def test_a_set_is_shared_by_requests_that_differ() -> None:
    """What one request leaves out another meets."""
    found = policies([{"name": "r", "match": {"apis": ["responses"]}, "block": NO}])
    assert not judge(found, "t").held
    assert judge(found, "t", facts=RequestFacts(api=Api.RESPONSES)).held
