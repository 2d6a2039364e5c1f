"""Arguments that policies read although they may not be there."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.argumentreads import suspicious_reads

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "limit": {"type": "integer"},
        "filter": {"type": "object", "properties": {"by": {}}, "required": ["by"]},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {}}}},
        "free": {"type": "object"},
        "any": {"anyOf": [{"type": "object"}]},
    },
    "required": ["id", "filter"],
}
SCHEMAS = {"get_order": SCHEMA, "find_order": {"type": "object", "properties": {"query": {}}, "required": ["query"]}}


def found(rule: dict[str, Any], match: dict[str, Any] | None = None) -> list[str]:
    spec = {"rules": [{"name": "r", "match": {"tools": ["get_order"]}, **rule}], **({"match": match} if match else {})}
    documents = [{"metadata": {"name": "p"}, "spec": spec}]
    return [f"{'.'.join(map(str, s.path[3:]))}: {s.message}" for s in suspicious_reads(documents, SCHEMAS)]


def reads(when: str, **more: Any) -> list[str]:
    return [line.removeprefix("when: ").partition(" is read")[0] for line in found({"when": when, **more})]


@pytest.mark.parametrize(
    ("when", "unasked"),
    [
        ("args.limit > 10", ["args.limit"]),
        ("args['limit'] > 10", ["args.limit"]),
        ("has(args.limit) && args.limit > 10", []),
        ("'limit' in args && args.limit > 10", []),
        ("args.id == 'x' && args.filter.by == 'y'", []),
        ("has(args.free.x) && args.free.x == 1", ["args.free"]),
        ("has(args.free) && has(args.free.x) && args.free.x == 1", []),
        ("args.items.exists(i, i.price > 3)", ["args.items"]),
        ("headers['x-team'] == 'a'", ["headers['x-team']"]),
        ("'x-team' in headers && headers['x-team'] == 'a'", []),
        ("metadata.trace == 'a'", ["metadata['trace']"]),
        ("tool == 'x' && size(args) > 1 && user == 'u'", []),
    ],
)
def test_what_an_expression_reads_without_asking_is_told(when: str, unasked: list[str]) -> None:
    """What the schema requires need not be asked for; nor what is asked for anywhere in the expression."""
    assert reads(when) == unasked


def test_the_advice_says_what_to_write() -> None:
    """With what happens otherwise."""
    assert found({"when": "args.limit > 10"}) == [
        "when: args.limit is read without has(args.limit): where it is absent, the rule cannot be evaluated"
    ]
    assert found({"when": "headers['x-a'] == ''"}) == [
        "when: headers['x-a'] is read without 'x-a' in headers: where it is absent, the rule cannot be evaluated"
    ]


def test_a_plain_condition_asks_too() -> None:
    """One that holds for nothing does not."""
    match = {"tools": ["get_order"], "args": {"limit": {"gt": 1}, "free.x": {"present": True}}}
    assert reads("args.limit > 10 && args.free.x == 1", match=match) == []
    for condition in ({"notIn": [1]}, {"present": False}):
        match = {"tools": ["get_order"], "args": {"limit": condition}}
        assert reads("args.limit > 10", match=match) == ["args.limit"]
    assert reads("headers['x-team'] == 'a'", match={"headers": {"X-Team": "*"}}) == []
    assert found({"when": "args.limit > 1"}, match={"args": {"limit": {"gt": 0}}}) == []


def test_answers_and_rewrites_read_too() -> None:
    """Each at its own place."""
    assert [line.partition(" ")[0] for line in found({"answer": {"expr": "args.limit"}})] == ["answer.expr:"]
    assert [line.partition(" ")[0] for line in found({"rewrite": {"expr": "{'a': args.limit}"}})] == ["rewrite.expr:"]


def test_what_is_not_known_is_required_by_nobody() -> None:
    """Of tools that no configuration declares, and of globs, nothing is known."""
    for tools in (["other"], ["get_*"], ["get_order", "other"]):
        assert reads("args.id == ''", match={"tools": tools}) == ["args.id"]
    assert reads("args.id == ''", match={"tools": ["get_order", "find_order"]}) == ["args.id"]
    assert reads("args.id == ''", match={"tools": ["GetOrder"]}) == []


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ({"match": {"tools": ["get_order"], "args": {"limt": {"gt": 1}}}}, "limt"),
        ({"match": {"tools": ["get_order"], "args": {"filter.bye": {"gt": 1}}}}, "filter.bye"),
        ({"match": {"tools": ["get_order"], "args": {"items.0.prise": {"gt": 1}}}}, "items.0.prise"),
        ({"rewrite": {"clamp": {"limt": {"max": 1}}}}, "limt"),
        ({"limit": {"max": 1, "per": "1m", "by": ["tool", "args.limt"]}}, "limt"),
        ({"when": "has(args.limt)"}, "limt"),
    ],
)
def test_a_path_that_no_schema_has_is_told(rule: dict[str, Any], path: str) -> None:
    """Wherever a rule names one."""
    (line,) = found(rule)
    assert line.endswith(f": the schema of the tool has no argument '{path}'")


@pytest.mark.parametrize("path", ["limit", "filter.by", "items.0.price", "free.x.y", "any.x"])
def test_a_path_that_a_schema_may_have_is_not(path: str) -> None:
    """What its properties leave open may be there."""
    assert found({"match": {"tools": ["get_order"], "args": {path: {"present": True}}}}) == []
    assert found({"match": {"tools": ["get_*"], "args": {"limt": {"present": True}}}}) == []
    assert found({"match": {"tools": ["get_order", "find_order"], "args": {"query": {"present": True}}}}) == []
