from __future__ import annotations

from typing import Any

import pytest

from proxy.core.policy.model import ACTIONS, PolicyDocument, read_document
from proxy.core.policy.problems import PolicyProblems
from tests.core.policy.engine import source


def problems(*rules: Any, **spec: Any) -> list[tuple[str, str]]:
    """What is wrong in the rules, by path from the rules on (or from `spec`)."""
    with pytest.raises(PolicyProblems) as raised:
        read_document(source({"rules": list(rules), **spec}))
    found = []
    for problem in raised.value.problems:
        path = problem.path[2:] if problem.path[:2] == ("spec", "rules") else problem.path
        found.append((".".join(map(str, path)), problem.message))
    return found


def the_problem(**parts: Any) -> tuple[str, str]:
    found = problems({"name": "r", **parts})
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("parts", "path", "said"),
    [
        ({"whn": "true", "allow": {}}, "0.whn", "did you mean 'when'?"),
        ({"blok": {}}, "0.blok", "did you mean 'block'?"),
        ({"allow": {}, "block": {}}, "0.block", "there is 'allow' already"),
        ({}, "0", "expected one of allow, block"),
        ({"allow": None}, "0.allow", "expected a mapping, got nothing"),
        ({"rewrite": [1]}, "0.rewrite", "expected a mapping such as {key: value}, or {}, got a list"),
        ({"rewrite": {}}, "0.rewrite", "expected one of merge"),
        ({"rewrite": {"merge": {"a": float("inf")}}}, "0.rewrite.merge.a", "expected a JSON value"),
        ({"rewrite": {"clamp": {"a": {}}}}, "0.rewrite.clamp.a", "min, max or both"),
        ({"rewrite": {"clamp": {"a": {"min": 2, "max": 1}}}}, "0.rewrite.clamp.a.min", "at most max"),
        ({"rewrite": {"clamp": {"a": {"min": "2"}}}}, "0.rewrite.clamp.a.min", "expected a number"),
        ({"rewrite": {"patch": [{"op": "add", "path": "/a"}]}}, "0.rewrite.patch.0", "'value' is missing"),
        ({"rewrite": {"patch": [{"op": "move", "path": "/a"}]}}, "0.rewrite.patch.0", "'from' is missing"),
        ({"rewrite": {"patch": [{"op": "remove", "path": "a"}]}}, "0.rewrite.patch.0.path", "JSON pointer"),
        ({"rewrite": {"expr": "result"}}, "0.rewrite.expr", "result rule only"),
        ({"answer": {}}, "0.answer", "either content or expr"),
        ({"answer": {"content": "", "expr": "'a'"}}, "0.answer", "either content or expr"),
        ({"when": "args.a ==", "allow": {}}, "0.when", "Syntax error"),
        ({"when": "isError", "allow": {}}, "0.when", "'isError' is known in a result rule only"),
        ({"when": True, "allow": {}}, "0.when", "put it in quotes"),
        ({"block": {"message": 1.1}}, "0.block.message", "expected text, got the number 1.1: put it in quotes"),
        ({"block": {"message": ["x"]}}, "0.block.message", "expected text, got a list"),
        ({"block": {"message": None}}, "0.block.message", "got nothing (null)"),
        ({"block": {"then": "stopp"}}, "0.block.then", "did you mean 'stop'?"),
        ({"validate": {}}, "0.validate", "'schema' is missing"),
        ({"validate": {"schema": "declard"}}, "0.validate.schema", "expected 'declared' or a JSON Schema"),
        ({"validate": {"schema": {"type": "nope"}}}, "0.validate.schema", "no JSON Schema"),
        ({"limit": {"max": 0, "per": "1h"}}, "0.limit.max", "expected at least 1"),
        ({"ask": {}}, "0.ask", "'url' is missing"),
        ({"ask": {"url": "opa:8181"}}, "0.ask.url", "expected an http or https URL"),
        ({"ask": {"url": "http://a/", "timeout": "0s"}}, "0.ask.timeout", "expected more than 0"),
        ({"ask": {"url": "http://a/", "onError": "pass"}}, "0.ask.onError", "'fail' or 'next'"),
        ({"requireApproval": {"ttl": "0s"}}, "0.requireApproval.ttl", "expected more than 0"),
        ({"requireApproval": {"wait": 5}}, "0.requireApproval.wait", "expected a duration"),
        ({"middleware": "house_rules"}, "0.middleware", "expected a Python object such as"),
        ({"limit": {"max": 1.5, "per": "1h"}}, "0.limit.max", "expected a whole number"),
        ({"limit": {"max": 1, "per": "0s"}}, "0.limit.per", "expected more than 0"),
        ({"limit": {"max": 1, "per": "soon"}}, "0.limit.per", "expected a duration"),
        (
            {"limit": {"max": 1, "per": "1h", "by": ["args."]}},
            "0.limit.by.0",
            "expected tool, tenant, client, user or a path",
        ),
        ({"hide": {}, "when": "true"}, "0.when", "hide matches by"),
        ({"hide": {}, "match": {"owner": "proxy"}}, "0.match.owner", "hide matches by"),
        ({"hide": {}, "match": {"args": {"a": {"equals": 1}}}}, "0.match.args", "hide matches by"),
        ({"result": {}}, "0.result", "expected one of redact"),
        ({"result": {"block": {}, "replace": {"content": ""}}}, "0.result.block", "there is 'replace' already"),
        ({"result": {"redact": [{"pattern": "x*"}]}}, "0.result.redact.0.pattern", "fits the empty text"),
        ({"result": {"redact": []}}, "0.result.redact", "at least one"),
        ({"result": {"redact": [{"with": "x"}]}}, "0.result.redact.0", "expected either pattern or name"),
        ({"result": {"redact": [{"name": "jwt", "pattern": "x"}]}}, "0.result.redact.0", "either pattern or name"),
        ({"result": {"redact": [{"name": "e-mail"}]}}, "0.result.redact.0.name", "did you mean 'email'?"),
        ({"result": {"truncate": {"maxBytes": "x"}}}, "0.result.truncate.maxBytes", "expected a size"),
        ({"allow": {}, "match": {"tools": "x"}}, "0.match.tools", "expected a list, got 'x'"),
        ({"allow": {}, "match": {"tools": [""]}}, "0.match.tools.0", "expected a glob"),
        ({"allow": {}, "match": {"tols": ["x"]}}, "0.match.tols", "did you mean 'tools'?"),
        ({"allow": {}, "match": {"headers": {"a": 1}}}, "0.match.headers.a", "put it in quotes"),
        ({"allow": {}, "match": {"declared": "yes"}}, "0.match.declared", "expected true or false"),
        ({"allow": {}, "match": {"args": {"a": {"equls": 1}}}}, "0.match.args.a.equls", "did you mean 'equals'?"),
        ({"allow": {}, "match": {"args": {"a": {}}}}, "0.match.args.a", "at least one condition"),
        ({"allow": {}, "match": {"args": {"a": {"equals": None}}}}, "0.match.args.a.equals", "null"),
        ({"allow": {}, "match": {"args": {"a": {"gt": "1"}}}}, "0.match.args.a.gt", "expected a number"),
        ({"allow": {}, "match": {"args": {"a": {"inside": "x"}}}}, "0.match.args.a.inside", "absolute"),
        ({"allow": {}, "match": {"args": {"a": {"regex": "("}}}}, "0.match.args.a.regex", "RE2"),
        ({"allow": {}, "name": "a/b"}, "0.name", "expected a name"),
        ({"middleware": "x"}, "0.middleware", "expected a Python object such as"),
    ],
)
def test_a_mistake_is_named_where_it_is(parts: dict[str, Any], path: str, said: str) -> None:
    """The path leads to the key or value at fault, and the message says what was expected."""
    found = the_problem(**parts)
    assert found[0] == path
    assert said in found[1]


def test_all_mistakes_are_told_at_once() -> None:
    """One mistake does not hide another."""
    found = problems(
        {"name": "a", "whn": "x", "rewrite": [1]},
        {"name": "b", "when": "args.a ==", "allow": {}},
        {"name": "c", "allow": {}, "block": {}},
        mode="shadw",
    )
    assert [path for path, _ in found] == ["spec.mode", "0.rewrite", "0.whn", "1.when", "2.block"]


@pytest.mark.parametrize("wrong", [None, [], "text", 1])
def test_a_document_is_a_mapping(wrong: Any) -> None:
    """What is no mapping is told so."""
    with pytest.raises(PolicyProblems, match="expected a mapping"):
        read_document(wrong)


def test_a_document_says_what_it_is() -> None:
    """A missing key and a wrong version are mistakes."""
    with pytest.raises(PolicyProblems) as raised:
        read_document({"apiVersion": "sidecall.io/v2", "metadata": {"name": "x"}, "spec": {}}, 3)
    assert [(p.document, p.path) for p in raised.value.problems] == [(3, ("apiVersion",)), (3, ())]
    assert "the key 'kind' is missing" in raised.value.problems[1].message


def _described(schema: Any) -> None:
    for name, definition in schema["$defs"].items():
        for key, value in definition.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key}"


def test_the_schema_for_editors_describes_every_field() -> None:
    """The JSON Schema speaks the keys of documents, and says of each what it is for."""
    schema = PolicyDocument.model_json_schema(by_alias=True)
    _described(schema)
    rule = schema["$defs"]["RuleModel"]
    assert set(ACTIONS) <= rule["properties"].keys()
    assert [choice["required"] for choice in rule["oneOf"]] == [[action] for action in ACTIONS]


def test_one_glob_may_stand_for_a_list() -> None:
    """A condition takes one glob or several."""
    rules = [{"name": "r", "match": {"args": {"a": {"glob": "*.py", "notHost": ["private"]}}}, "allow": {}}]
    condition = read_document(source(rules)).spec.rules[0].match.args["a"]
    assert condition.given() == {"glob": ["*.py"], "notHost": ["private"]}
