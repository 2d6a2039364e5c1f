from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Api, Owner, RequestFacts
from proxy.core.policy.comparing import Compared, compared_with_call, compared_with_request, shown
from proxy.core.policy.values import ABSENT
from proxy.core.policy.views import CallView
from tests.core.policy.engine import NO, policies, subject

FACTS = RequestFacts(model="gpt-5", api=Api.RESPONSES, headers={"x-team": "a"}, declared={"search": None})


def with_request(match: dict[str, Any]) -> list[tuple[str, str, str, bool | None]]:
    (rule,) = policies([{"name": "r", "match": match, "block": NO}]).call_rules
    return [as_tuple(one) for one in compared_with_request(rule.guard, FACTS)]


def with_call(match: dict[str, Any], arguments: Any = "{}", **more: Any) -> list[tuple[str, str, str, bool | None]]:
    (rule,) = policies([{"name": "r", "match": match, "block": NO, **more}]).call_rules
    view = CallView(FACTS, subject("search", arguments))
    return [as_tuple(one) for one in compared_with_call(rule.guard, view)]


def as_tuple(one: Compared) -> tuple[str, str, str, bool | None]:
    return one.about, one.wanted, one.found, one.holds


def test_what_a_request_has_is_compared_up_to_the_first_difference() -> None:
    """Keys come in the order in which they are looked at, and none behind the one that does not fit."""
    fits = {"apis": ["responses"], "models": ["gpt-*"], "headers": {"X-Team": "a"}}
    assert with_request(fits) == [
        ("apis", "responses", "responses", True),
        ("models", "gpt-*", "gpt-5", True),
        ("headers.x-team", "a", "a", True),
    ]
    assert with_request({**fits, "clients": ["team-*", "x"], "models": ["o*", "gpt-5"]}) == [
        ("apis", "responses", "responses", True),
        ("models", "o*, gpt-5", "gpt-5", True),
        ("clients", "team-*, x", "nothing", False),
    ]
    assert with_request({"apis": ["chat"], "models": ["o*"]}) == [("apis", "chat", "responses", False)]
    assert with_request({"headers": {"x-other": "b"}}) == [("headers.x-other", "b", "nothing", False)]


def test_what_a_call_has_is_compared_up_to_the_first_difference() -> None:
    """Owner, declaration and names before arguments."""
    assert with_call({"owner": "proxy", "tools": ["x"]}) == [("owner", "proxy", "client", False)]
    assert with_call({"declared": False}) == [("declared", "false", "true", False)]
    assert with_call({"tools": ["a*", "sea*"], "notTools": ["search"]}) == [
        ("tools", "a*, sea*", "search", True),
        ("notTools", "search", "search", False),
    ]
    assert with_call({"tools": ["x"], "notTools": ["search"]}) == [("tools", "x", "search", False)]


def test_a_name_behind_its_namespace_is_shown_with_it() -> None:
    """A glob may be for either."""
    (rule,) = policies([{"name": "r", "match": {"tools": ["docs.*"]}, "block": NO}]).call_rules
    view = CallView(FACTS, subject("find", namespace="docs", owner=Owner.UPSTREAM))
    assert [as_tuple(one) for one in compared_with_call(rule.guard, view)] == [
        ("tools", "docs.*", "find or docs.find", True)
    ]


def test_conditions_are_shown_as_they_are_written_and_the_one_that_does_not_hold_alone() -> None:
    """Of an argument with several conditions all that hold, or the first that does not."""
    match = {"args": {"path": {"notInside": "/workspace", "longerThan": 2}, "n": {"gt": 1, "lt": 5}}}
    assert with_call(match, {"path": "/etc", "n": 9}) == [
        ("args.path", "longerThan 2, notInside /workspace", '"/etc"', True),
        ("args.n", "lt 5", "9", False),
    ]
    assert with_call({"args": {"mode": {"in": ["w", 1]}}}) == [("args.mode", "in w, 1", "nothing", False)]


def test_an_expression_is_shown_with_what_it_reads() -> None:
    """White space of its own does not count."""
    assert with_call({}, {"n": 3}, when="has(args.n)\n  && args.n > 10 || model == 'x'") == [
        ("when", "has(args.n) && args.n > 10 || model == 'x'", 'args.n is 3, model is "gpt-5"', False)
    ]


@pytest.mark.parametrize(
    ("match", "when", "arguments", "expected"),
    [
        ({}, "args.n > 1", {}, ("when", "args.n > 1", "the evaluation failed: 'n' is not there", None)),
        ({"args": {"n": {"gt": 1}}}, "true", {"n": "x"}, ("args", "", "args.n (gt): the value is no number", None)),
        (
            {"args": {"n": {"gt": 1}}},
            "true",
            "[]",
            ("args", "", "the arguments are no JSON object: it is no JSON object", None),
        ),
    ],
)
def test_what_cannot_be_told_says_why(match: Any, when: str, arguments: Any, expected: Any) -> None:
    """A failure is neither yes nor no."""
    assert with_call(match, arguments, when=when) == [expected]


def test_a_rule_that_allows_takes_what_cannot_be_judged_for_a_difference() -> None:
    """As it does when it is judged."""
    (rule,) = policies([{"name": "r", "match": {"args": {"n": {"lt": 5}}}, "allow": {}}]).call_rules
    view = CallView(FACTS, subject("search", {"n": "3"}))
    assert [as_tuple(one) for one in compared_with_call(rule.guard, view)] == [("args.n", "lt 5", '"3"', False)]


def test_long_values_are_cut() -> None:
    """A line stays a line."""
    assert shown("x" * 200) == '"' + "x" * 119 + "… (202 characters)"
    assert shown(ABSENT) == "nothing"
    assert shown(None) == "null"
