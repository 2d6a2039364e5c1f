"""Every ready policy decides the cases beside it as they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.calls import CallId, Owner, RequestFacts, ToolCall
from proxy.core.policy.verdicts import Subject, Verdict
from proxy.policyfiles import load_policies
from proxy.yamlfile import read_documents

POLICIES = Path(__file__).parent.parent.parent / "policies"
FOLDERS = sorted(path.parent for path in POLICIES.rglob("cases.yaml"))


def cases_of(folder: Path) -> list[dict[str, Any]]:
    return [
        case
        for document in read_documents(folder / "cases.yaml")
        if isinstance(document.value, dict) and isinstance(cases := document.value["cases"], list)
        for case in cases
        if isinstance(case, dict)
    ]


def decide(folder: Path, call: dict[str, Any]) -> Verdict:
    asked = ToolCall(CallId("call_x"), call["tool"], json.dumps(call["args"]))
    try:
        next(load_policies(["policy.yaml"], folder).for_request(RequestFacts()).judge(Subject(asked, Owner.CLIENT)))
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict
    raise AssertionError("a ready policy asks nothing of the world")


@pytest.mark.parametrize(
    ("folder", "case"),
    [
        pytest.param(folder, case, id=f"{folder.name}: {case['name']}")
        for folder in FOLDERS
        for case in cases_of(folder)
    ],
)
def test_a_case_is_decided_as_it_says(folder: Path, case: dict[str, Any]) -> None:
    """Decision, policy, rule and arguments are those that the case expects."""
    call, expected = case["call"], case["expect"]
    verdict = decide(folder, call)
    found = {
        "decision": verdict.decision.value,
        "policy": verdict.policy,
        "rule": verdict.rule,
        "args": json.loads(verdict.text) if verdict.text is not None else call["args"],
    }
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_rule_has_a_case_that_fires_and_one_that_does_not(folder: Path) -> None:
    """No rule goes without proof that it acts, nor without proof that it leaves others alone."""
    cases = cases_of(folder)
    assert len({case["name"] for case in cases}) == len(cases)
    fired = {case["expect"].get("rule") for case in cases} - {None}
    for document in read_documents(folder / "policy.yaml"):
        assert isinstance(document.value, dict)
        spec: Any = document.value["spec"]
        assert {rule["name"] for rule in spec["rules"]} == fired
    assert any(case["expect"]["decision"] == "allowed" for case in cases)
