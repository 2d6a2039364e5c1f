from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.calls import Kind, Owner, RequestFacts
from proxy.core.policy.decide import Decision
from tests.core.policy.engine import blocked, judge, rule

PATCH = {"a": 1, "list": ["x", "y"], "o": {"k": 1}}


def rewritten(rewrite: dict[str, Any], arguments: Any) -> Any:
    verdict = judge([rule(rewrite=rewrite)], "t", arguments)
    assert verdict.decision is Decision.REWRITTEN, verdict
    assert verdict.text is not None
    return json.loads(verdict.text)


@pytest.mark.parametrize(
    ("rewrite", "before", "after"),
    [
        (
            {"merge": {"b": 2, "a": None, "o": {"x": {"y": 1, "z": None}}}},
            {"a": 1, "o": 5},
            {"b": 2, "o": {"x": {"y": 1}}},
        ),
        ({"merge": {"o": {"b": None}}}, {"o": {"a": 1, "b": 2}}, {"o": {"a": 1}}),
        ({"default": {"limit": 10, "x": 1}}, {"limit": None}, {"limit": None, "x": 1}),
        ({"clamp": {"o.n": {"max": 10}, "m": {"min": 1}}}, {"o": {"n": 99}}, {"o": {"n": 10}}),
        ({"clamp": {"xs.1": {"min": 1, "max": 10}}}, {"xs": [0, 0]}, {"xs": [0, 1]}),
        ({"merge": {"n": 50}, "clamp": {"n": {"max": 10}}, "expr": '{"m": args.n}'}, {}, {"m": 10}),
        ({"expr": '{"query": args.q + "!", "safe": true}'}, {"q": "caf\u00e9"}, {"query": "caf\u00e9!", "safe": True}),
    ],
)
def test_arguments_are_changed(rewrite: dict[str, Any], before: Any, after: Any) -> None:
    """Merge patch, defaults, clamps and expressions, one after another where several are given."""
    assert rewritten(rewrite, before) == after


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        ({"op": "add", "path": "/list/-", "value": "z"}, {**PATCH, "list": ["x", "y", "z"]}),
        ({"op": "add", "path": "/list/0", "value": "z"}, {**PATCH, "list": ["z", "x", "y"]}),
        ({"op": "add", "path": "", "value": {"new": 1}}, {"new": 1}),
        ({"op": "add", "path": "/a~1b~0", "value": 1}, {**PATCH, "a/b~": 1}),
        ({"op": "remove", "path": "/o/k"}, {**PATCH, "o": {}}),
        ({"op": "remove", "path": "/list/1"}, {**PATCH, "list": ["x"]}),
        ({"op": "replace", "path": "/list/1", "value": None}, {**PATCH, "list": ["x", None]}),
        ({"op": "move", "from": "/o/k", "path": "/k"}, {"a": 1, "list": ["x", "y"], "o": {}, "k": 1}),
        ({"op": "copy", "from": "/list/0", "path": "/o/k"}, {**PATCH, "o": {"k": "x"}}),
    ],
)
def test_json_patch(operation: dict[str, Any], after: Any) -> None:
    """Every operation of RFC 6902 that changes something."""
    assert rewritten({"patch": [{"op": "test", "path": "/a", "value": 1.0}, operation]}, PATCH) == after


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/no", "value": 1},
        {"op": "remove", "path": "/no"},
        {"op": "remove", "path": "/list/2"},
        {"op": "remove", "path": "/list/01"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/no", "value": 1},
        {"op": "replace", "path": "", "value": [1]},
        {"op": "add", "path": "/no/where", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "copy", "from": "/list/x", "path": "/b"},
        {"op": "copy", "from": "/a/b", "path": "/b"},
        {"op": "move", "from": "/o", "path": "/o/k"},
    ],
)
def test_a_patch_that_does_not_apply_is_an_error(operation: dict[str, Any]) -> None:
    """What cannot be changed as it says is an evaluation error."""
    assert judge([rule(rewrite={"patch": [operation]})], "t", PATCH).failed


@pytest.mark.parametrize(
    ("rewrite", "arguments"),
    [
        ({"clamp": {"n": {"max": 1}}}, {"n": "5"}),
        ({"clamp": {"n": {"max": 1}}}, {"n": None}),
        ({"merge": {"a": 1}}, "[1]"),
        ({"merge": {"a": 1}}, "{"),
        ({"expr": "{'a': args.no}"}, {}),
    ],
)
def test_what_cannot_be_rewritten_is_an_error(rewrite: dict[str, Any], arguments: Any) -> None:
    """Values of another type, and arguments that are no object, are evaluation errors."""
    assert judge([rule(rewrite=rewrite)], "t", arguments).failed


def test_numbers_that_are_not_changed_keep_their_spelling() -> None:
    """Only what changes is written anew."""
    text = '{"big":12345678901234567890123,"small":1e-7,"limit":99,"pi":3.141592653589793238}'
    verdict = judge([rule(rewrite={"merge": {"limit": 10}})], "t", text)
    assert verdict.text == text.replace("99", "10")


def test_arguments_that_stay_equal_stay_as_written() -> None:
    """A change to what is there already is none."""
    verdict = judge([rule(rewrite={"merge": {"limit": 10}})], "t", '{ "limit" : 10.0 }')
    assert (verdict.decision, verdict.rule, verdict.text) == (Decision.ALLOWED, "", None)


def test_a_change_that_is_undone_is_none() -> None:
    """Only what the owner gets in the end counts."""
    rules = [rule(rewrite={"merge": {"limit": 10}}), rule(name="s", rewrite={"merge": {"limit": 5}})]
    verdict = judge(rules, "t", '{ "limit" : 5 }')
    assert (verdict.decision, verdict.text) == (Decision.ALLOWED, None)


@pytest.mark.parametrize(
    ("text", "new"), [('"{\\"n\\":1}"', '"{\\"n\\":2}"'), ("", '{"n":2}'), ('{"n":1,"n":3} x', '{"n":2}')]
)
def test_the_wrapping_is_kept(text: str, new: str) -> None:
    """Arguments that came twice encoded go on so."""
    assert judge([rule(rewrite={"merge": {"n": 2}})], "t", text).text == new


def test_a_custom_tools_input_goes_back_to_free_text() -> None:
    """Free text stays free text, and nothing else fits into it."""
    quiet, more = rule(rewrite={"merge": {"input": "QUIET"}}), rule(rewrite={"merge": {"x": 1}})
    assert judge([quiet], "t", "LOUD", kind=Kind.CUSTOM).text == "QUIET"
    assert judge([more], "t", "LOUD", kind=Kind.CUSTOM).failed


@pytest.mark.parametrize(("before", "failed"), [({"count": 5}, True), ({"count": "five"}, False)])
def test_new_arguments_must_fit_the_declared_schema_where_the_old_did(before: Any, failed: bool) -> None:
    """A rewrite does not break what was right, and need not mend what was wrong."""
    facts = RequestFacts(declared={"t": {"properties": {"count": {"type": "integer"}}}})
    assert judge([rule(rewrite={"merge": {"count": "ten"}})], "functions.t", before, facts=facts).failed is failed


def test_a_schema_that_cannot_be_used_does_not_stop_a_rewrite() -> None:
    """A client's own mistake, or trick, is no reason to block."""
    facts = RequestFacts(declared={"t": {"$ref": "http://127.0.0.1:9/x"}})
    assert judge([rule(rewrite={"merge": {"a": 1}})], "t", facts=facts).decision is Decision.REWRITTEN


def test_the_original_history_is_asked_for() -> None:
    """`history: original` counts when the rule changed something."""
    rules = [rule(rewrite={"merge": {"limit": 10}, "history": "original"})]
    assert judge(rules, "t", {"limit": 99}).original_history
    assert not judge(rules, "t", {"limit": 10}).original_history


def test_a_call_that_the_upstream_runs_is_not_changed() -> None:
    """A rule that would change or answer it cannot be evaluated; one that changes nothing can."""
    rules = [rule(rewrite={"merge": {"a": 1}})]
    assert judge(rules, "t", {}, owner=Owner.UPSTREAM).result == blocked("the rule could not be evaluated")
    assert not judge(rules, "t", {"a": 1}, owner=Owner.UPSTREAM).held
    assert judge([rule(answer={"content": "x"})], "t", owner=Owner.UPSTREAM).failed
