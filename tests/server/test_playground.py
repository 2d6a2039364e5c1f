"""The playground: what a call would be decided to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.authoring.sources import load_set
from proxy.core.policy.decide import PolicySet
from proxy.errors import RequestError
from proxy.server.playground import answer_form, explain_body

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: orders}
spec:
  rules:
    - {name: ask, match: {tools: [pay]}, requireApproval: {}}
    - {name: cap, match: {tools: [search]}, rewrite: {clamp: {limit: {max: 10}}}}
    - {name: cards, result: {redact: [{pattern: "[0-9]{4}", with: "#"}]}}
"""


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    file: Path = tmp_path_factory.mktemp("playground") / "policy.yaml"
    file.write_text(POLICY)
    return load_set([str(file)], {})


def test_a_call_as_json_is_explained(policies: PolicySet) -> None:
    """With the keys of `sidecall explain --output json`, and its text."""
    found = explain_body(policies, b'{"tool": "search", "args": {"limit": 99, "wide": 10000000000000000000001}}')
    assert found["decision"] == "rewritten"
    assert (found["policy"], found["rule"]) == ("orders", "cap")
    assert found["args"] == '{"limit":10,"wide":10000000000000000000001}'
    assert found["result"] is None
    text = str(found["text"])
    assert text.splitlines()[-2] == "decision: rewritten by orders/cap"
    assert "skipped   orders/ask" in text


def test_the_form_asks_the_same(policies: PolicySet) -> None:
    """What is left empty is left out, and what was typed is shown again."""
    fields = {"tool": "search", "args": '{"limit": 99}', "model": "", "api": "chat", "owner": "client", "more": " "}
    answer = answer_form(policies, fields)
    assert (answer.problem, answer.heading, answer.fields) == ("", "rewritten", fields)
    assert answer.text == explain_body(policies, b'{"tool": "search", "args": {"limit": 99}}')["text"]


def test_more_says_the_rest(policies: PolicySet) -> None:
    """Answers of those who are not asked here, and a result whose lines a browser parts in its own way."""
    assert answer_form(policies, {"tool": "pay"}).heading == "pending"
    assert answer_form(policies, {"tool": "pay", "more": '{"answers": {"ask": "approved"}}'}).heading == "approved"
    answer = answer_form(policies, {"tool": "pay", "result": "a 1234\r\nb"})
    assert (answer.heading, answer.text.splitlines()[-3:]) == ("redacted", ["result: redacted", "  a #", "  b"])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tool": "x", "args": "{"}, "arguments: expected JSON: "),
        ({"tool": "x", "args": '{"a": 1, "a": 2}'}, "arguments: expected JSON that can be read in one way"),
        ({"tool": "x", "more": "[]"}, "more: expected an object with keys such as namespace"),
        ({"tool": "x", "more": '{"hedaers": {}}'}, "hedaers: unknown key 'hedaers' (did you mean 'headers'?)"),
        ({"tool": ""}, "the key 'tool' is missing"),
        ({"tool": "x", "owner": "me"}, "owner: 'me' is not known: expected 'client', 'proxy' or 'upstream'"),
        ({"tool": "pay", "more": '{"answers": {"ask": "yes"}}'}, "answers: the rule 'ask' wants approved, denied"),
        ({"tool": "x", "args": "[" * 101 + "]" * 101}, "nested too deep"),
        ({"tool": "x", "args": "[" * 5000}, "arguments: expected JSON"),
    ],
)
def test_what_cannot_be_explained_is_told(fields: dict[str, str], told: str, policies: PolicySet) -> None:
    """Instead of an answer."""
    answer = answer_form(policies, fields)
    assert told in answer.problem
    assert (answer.text, answer.fields) == ("", fields)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b'{"tool": 1}', b'{"tool": "x", "cases": []}'])
def test_a_body_that_is_no_call_is_422(body: bytes, policies: PolicySet) -> None:
    """Whatever it is."""
    with pytest.raises(RequestError) as raised:
        explain_body(policies, body)
    assert raised.value.status == 422


def test_nothing_is_counted(policies: PolicySet) -> None:
    """Each explanation begins anew."""
    asked: dict[str, Any] = {"tool": "pay", "args": {"a": 1}}
    body = json.dumps(asked).encode()
    assert explain_body(policies, body) == explain_body(policies, body)
