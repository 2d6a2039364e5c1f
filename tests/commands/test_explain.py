from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.authoring.files import CONFIG, POLICY, write
from tests.commands.conftest import Run


@pytest.fixture(autouse=True)
def call() -> None:
    write(policy=POLICY, sidecall=CONFIG)
    Path("call.json").write_text('{"tool": "search", "args": {"limit": 99}}')


def test_a_call_is_explained_for_people(run: Run) -> None:
    """Every rule, and the decision."""
    assert run("explain", "--call", "call.json", "--policies", "policy.yaml") == (
        0,
        "  skipped   orders/no-deletes (block)   tools: search does not fit delete_*\n"
        "  changed   orders/cap-limit (rewrite)  limit: 99 → 10\n"
        "              tools: search fits search\n"
        "              when: has(args.limit) && args.limit > 10 is true: args.limit is 99\n"
        "decision: rewritten by orders/cap-limit\n"
        'arguments: {"limit":10}\n',
        "",
    )


def test_a_call_is_explained_for_machines(run: Run) -> None:
    """And so is a result."""
    status, told, _ = run("explain", "--call", "call.json", "--policies", "policy.yaml", "--output", "json")
    found = json.loads(told)
    assert (status, found["decision"], found["rule"]) == (0, "rewritten", "cap-limit")
    Path("call.json").write_text('{"tool": "search", "result": "x"}')
    assert json.loads(run("explain", "--call", "call.json", "--policies", "policy.yaml", "--output", "json")[1]) == {
        "outcome": "ok",
        "result": "x",
        "steps": [],
    }
    assert run("explain", "--call", "call.json", "--policies", "policy.yaml")[1] == "result: ok\n  x\n"


def test_policies_may_be_a_configurations_or_the_environments(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given goes before the environment."""
    Path("call.json").write_text('{"tool": "other"}')
    told = run("explain", "--call", "call.json", "--policies", "sidecall.yaml")[1]
    assert "decision: blocked, as no rule decided" in told
    monkeypatch.setenv("SIDECALL_POLICIES", "none.yaml")
    assert run("explain", "--call", "call.json", "--policies", "policy.yaml")[0] == 0
    monkeypatch.setenv("SIDECALL_POLICIES", "policy.yaml")
    assert "decision: allowed" in run("explain", "--call", "call.json")[1]
    monkeypatch.delenv("SIDECALL_POLICIES")
    assert run("explain", "--call", "call.json") == (
        2,
        "",
        "--policies: expected the policies to decide by, or SIDECALL_POLICIES\n",
    )
