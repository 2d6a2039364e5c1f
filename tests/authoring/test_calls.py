from __future__ import annotations

from pathlib import Path

import pytest

from proxy.authoring.calls import explain_call, read_call
from proxy.authoring.sources import load_set
from proxy.core.policy.explaining import Explanation, ResultExplanation
from proxy.errors import ConfigError
from tests.authoring.files import POLICY, write


def explained(text: str, policy: str = POLICY) -> Explanation | ResultExplanation:
    write(policy=policy)
    Path("call.json").write_text(text)
    return explain_call(load_set(["policy.yaml"], {}), read_call("call.json"), path="call.json")


def problems(text: str, policy: str = POLICY) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        explained(text, policy)
    return [str(problem) for problem in raised.value.problems]


def test_a_call_is_explained() -> None:
    """In JSON or in YAML."""
    for text in ('{"tool": "search", "args": {"limit": 99}}', "tool: search\nargs: {limit: 99}\n"):
        found = explained(text)
        assert isinstance(found, Explanation)
        assert (str(found.verdict.decision), found.verdict.text) == ("rewritten", '{"limit":10}')


def test_a_result_is_explained_by_result_rules() -> None:
    """With its call."""
    policy = POLICY + "    - name: cut\n      result: {truncate: {maxBytes: 1}}\n"
    found = explained('{"tool": "x", "result": "abc"}', policy)
    assert isinstance(found, ResultExplanation)
    assert str(found.verdict.outcome) == "truncated"


def test_answers_are_given_to_rules_that_ask() -> None:
    """One that is none is a mistake of the file."""
    policy = POLICY + "    - {name: ask, requireApproval: {}}\n"
    found = explained('{"tool": "x", "answers": {"ask": "approved"}}', policy)
    assert str(found.verdict.decision) == "approved"  # type: ignore[union-attr]  # it is a call
    assert problems('{"tool": "x", "answers": {"ask": 1}}', policy) == [
        "call.json: answers: the rule 'ask' wants approved, denied or pending"
    ]


def test_what_is_no_call_is_told_where_it_stands() -> None:
    """As everywhere."""
    assert problems('{"tol": "x"}') == [
        "call.json:1:1: the key 'tool' is missing; expected 'tool: …' here",
        problems('{"tol": "x"}')[1],
    ]
    assert problems('{"tol": "x"}')[1].startswith("call.json:1:2: unknown key 'tol' (did you mean 'tool'?)")
    assert problems("") == ["call.json:1:1: expected one call, got 0 documents"]
    with pytest.raises(ConfigError, match=r"none\.json: the file cannot be read"):
        read_call("none.json")
