from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Api, Kind, RequestFacts
from proxy.core.exchange.cases import Difference, call_of, facts_of, run_case
from proxy.core.policy.casemodel import CallModel, CaseModel
from tests.core.policy.engine import NO, policies, rule

RULES: list[Any] = [
    rule("delete_*", name="no-deletes", block={"message": "Not here."}),
    rule("search", name="cap", when="has(args.n) && args.n > 10", rewrite={"clamp": {"n": {"max": 10}}}),
    rule("slow", name="later", defer={}),
    rule("pay", name="person", requireApproval={}),
    rule("stop", name="stops", block={"message": "Enough.", "then": "stop"}),
    rule("fail", name="fails", block={"message": "No.", "then": "fail"}),
    {"name": "made-up", "match": {"declared": False}, "block": NO},
    rule("lookup", name="cards", result={"redact": [{"pattern": "[0-9]{4}", "with": "#"}]}),
    rule("broken", name="broken", when="args.none", block=NO),
]


def run(rules: Any = None, **case: Any) -> list[tuple[str, Any, Any]]:
    model = CaseModel.model_validate({"name": "n", **case})
    found = run_case(policies(RULES if rules is None else rules), model)
    return [(one.key, one.expected, one.got) for one in found.differences]


def test_a_call_is_compared_key_by_key() -> None:
    """What is not named may be anything."""
    call = {"tool": "delete_order", "args": {"id": 7}}
    text = "Tool call blocked by policy p0/no-deletes: Not here."
    right = {
        "decision": "blocked",
        "policy": "p0",
        "rule": "no-deletes",
        "result": text,
        "contains": ["Not here"],
        "lacks": ["secret"],
        "then": "continue",
        "failed": False,
        "errors": [],
        "shadows": [],
    }
    assert run(call=call, expect=right) == []
    wrong = {"decision": "allowed", "rule": "", "result": None, "contains": ["elsewhere"], "lacks": ["Not"]}
    assert run(call=call, expect=wrong) == [
        ("decision", "allowed", "blocked"),
        ("rule", "", "no-deletes"),
        ("result", None, text),
        ("contains", "elsewhere", text),
        ("lacks", "Not", text),
    ]


def test_arguments_are_those_that_the_call_goes_ahead_with() -> None:
    """Numbers are compared by value, and text to the byte."""
    call = {"tool": "search", "args": {"n": 99}}
    assert run(call=call, expect={"decision": "rewritten", "args": {"n": 10.0}, "rawArgs": '{"n":10}'}) == []
    assert run(call=call, expect={"args": {"n": 11}}) == [("args", {"n": 11}, {"n": 10})]
    assert run(call=call, expect={"lacks": ["10"]}) == [("lacks", "10", '{"n":10}')]
    assert run(call={"tool": "x", "rawArgs": "[1"}, expect={"args": {}}) == [("args", {}, "[1")]
    assert run(call={"tool": "x", "rawArgs": '{"a":1,"a":2}'}, expect={"rawArgs": '{"a":1,"a":2}'}) == []


def test_failures_shadows_and_deferrals_can_be_expected() -> None:
    """They are part of a verdict."""
    assert run(call={"tool": "broken"}, expect={"failed": True, "errors": ["p0/broken"]}) == []
    shadow = {"mode": "shadow", "rules": [rule(name="s", block=NO)]}
    expected = {"decision": "allowed", "shadows": [{"policy": "p0", "rule": "s", "decision": "blocked"}]}
    assert run([], call={"tool": "t"}, expect={"shadows": []}) == []
    assert run(shadow, call={"tool": "t"}, expect=expected) == []
    assert run(call={"tool": "slow"}, expect={"deferred": True, "decision": "allowed"}) == []


def test_a_case_answers_what_rules_ask() -> None:
    """And an answer that nobody asked for, or that fits nothing, fails the case."""
    pay: dict[str, Any] = {"call": {"tool": "pay"}}
    assert run(**pay, expect={"decision": "pending"}) == []
    assert run(**pay, answers={"person": "approved"}, expect={"decision": "approved", "rule": "person"}) == []
    assert run(**pay, answers={"persn": "approved"}, expect={"decision": "pending"}) == [
        ("answers.persn", "a rule that asks", "no rule asked")
    ]
    assert run(**pay, answers={"person": 3}, expect={"decision": "pending"}) == [
        ("answers", "the rule 'person' wants approved, denied or pending", None)
    ]


def test_the_request_is_what_the_case_says() -> None:
    """Tools that are called are declared unless it says otherwise."""
    rules = [
        {
            "name": "r",
            "match": {"models": ["m"], "apis": ["responses"], "clients": ["c"], "headers": {"x": "h"}},
            "block": NO,
        }
    ]
    request = {"model": "m", "api": "responses", "client": "c", "headers": {"X": "h"}}
    assert run(rules, **request, call={"tool": "t"}, expect={"decision": "blocked"}) == []
    assert run(rules, **{**request, "client": "d"}, call={"tool": "t"}, expect={"decision": "allowed"}) == []
    assert run(call={"tool": "t"}, expect={"decision": "allowed"}) == []
    assert run(call={"tool": "t"}, declared=["u"], expect={"rule": "made-up"}) == []
    schema = {"t": {"type": "object", "required": ["a"]}}
    checked = [rule(name="r", validate={"schema": "declared"})]
    assert run(checked, call={"tool": "t"}, declared=schema, expect={"decision": "blocked"}) == []


def test_a_result_is_compared_by_what_becomes_of_it() -> None:
    """A rule is expected when it acted on it."""
    given: dict[str, Any] = {"call": {"tool": "lookup"}, "result": "card 1234"}
    right = {"outcome": "redacted", "policy": "p0", "rule": "cards", "result": "card #", "lacks": ["1234"]}
    assert run(**given, expect=right) == []
    assert run(**given, expect={"outcome": "ok", "rule": "other"}) == [
        ("outcome", "ok", "redacted"),
        ("rule", "other", "cards"),
    ]
    assert run(call={"tool": "x"}, result="card 1234", expect={"outcome": "ok", "rule": "", "contains": ["1234"]}) == []
    assert run(call={"tool": "lookup"}, result="x", expect={"rule": "cards"}) == [("rule", "cards", "")]
    failing = [rule(name="r", when="result == user.x", result={"replace": {"content": "y"}})]
    assert run(failing, call={"tool": "t"}, result="x", expect={"rule": "r", "errors": ["p0/r"]}) == []


def test_a_result_may_be_an_error() -> None:
    """Rules may ask for it."""
    rules = [rule(name="r", when="isError", result={"replace": {"content": "it failed"}})]
    given: dict[str, Any] = {"call": {"tool": "t"}, "expect": {"result": "it failed"}}
    assert run(rules, **given, result={"text": "trace", "isError": True}) == []
    assert run(rules, **given, result="trace") == [("result", "it failed", "trace")]


def test_a_batch_is_sorted_as_it_would_be() -> None:
    """Each call may have expectations of its own, with the batch known to it."""
    batch: list[Any] = [
        {"tool": "slow"},
        {"tool": "search", "args": {"n": 1}},
        {"tool": "delete_x", "expect": {"decision": "blocked"}},
    ]
    assert run(batch=batch, expect={"order": [["search"], ["slow"]], "ends": "split"}) == []
    assert run(batch=batch, expect={"order": [["slow", "search"]], "ends": "pass"}) == [
        ("order", [["slow", "search"]], [["search"], ["slow"]]),
        ("ends", "pass", "split"),
    ]
    batch[2]["expect"] = {"decision": "allowed"}
    assert run(batch=batch) == [("batch.2.decision", "allowed", "blocked")]
    sized = [rule(name="r", when="batch.size == 2 && batch.index == 1", block=NO)]
    assert run(sized, batch=[{"tool": "a"}, {"tool": "b"}], expect={"order": [["a"]]}) == []


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (["search", "stop"], {"ends": "stop", "message": "Enough.", "order": []}),
        (["fail", "stop"], {"ends": "fail", "message": "No."}),
        (["delete_a", "delete_b"], {"ends": "continue", "order": []}),
        (["search"], {"ends": "pass", "order": [["search"]]}),
    ],
)
def test_a_batch_ends_as_its_turn_does(tools: list[str], expected: Any) -> None:
    """By the code that ends turns."""
    assert run(batch=[{"tool": tool} for tool in tools], expect=expected) == []


def test_at_most_so_many_calls_at_a_time() -> None:
    """A policy's batch setting counts too."""
    lanes = {"batch": {"maxParallel": 1}, "rules": []}
    assert run(lanes, batch=[{"tool": "a"}, {"tool": "b"}], expect={"order": [["a"], ["b"]]}) == []


def test_calls_are_what_their_documents_say() -> None:
    """JSON arguments, a text of one's own, or the input of a custom tool."""
    custom = call_of(CallModel.model_validate({"tool": "t", "input": "free"}))
    assert (custom.kind, custom.text) == (Kind.CUSTOM, "free")
    assert call_of(CallModel.model_validate({"tool": "t", "args": [1]})).text == "[1]"
    spaced = call_of(CallModel.model_validate({"tool": "functions.t", "namespace": "ns"}))
    facts = facts_of(CaseModel.model_validate({"name": "n", "call": {"tool": "t"}, "expect": {"rule": ""}}), [spaced])
    assert facts == RequestFacts(api=Api.CHAT, declared={"ns.t": None})


def test_a_case_keeps_its_explanations() -> None:
    """Whoever shows a failure can say why."""
    model = CaseModel.model_validate({"name": "n", "call": {"tool": "delete_x"}, "expect": {"decision": "allowed"}})
    found = run_case(policies(RULES), model)
    assert not found.passed
    assert found.differences == (Difference("decision", "allowed", "blocked"),)
    assert found.explanations[0].steps[0].rule.rule == "no-deletes"
