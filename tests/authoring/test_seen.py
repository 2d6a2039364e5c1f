from __future__ import annotations

from typing import Any

import pytest

from proxy.authoring import seen
from proxy.authoring.seen import unseen
from proxy.checking import check
from tests.authoring.files import CONFIG, POLICY, record, write, write_audit


def warnings(*records: dict[str, Any], paths: tuple[str, ...] = ("policy.yaml",)) -> list[str]:
    write(policy=POLICY, sidecall=CONFIG)
    audit = write_audit("audit.jsonl", *records)
    return [str(problem) for problem in unseen(check(paths, {}).sets, [audit])]


def test_rules_without_a_call_and_tools_without_a_rule_are_told() -> None:
    """A rule where it stands, a tool with how often it was called."""
    found = warnings(record("search", {"limit": 99}), record("find"), record("find"), record("pay"))
    assert found == [
        "policy.yaml:6:7: the rule 'no-deletes' is for no call that was recorded",
        "audit.jsonl: no rule names the tool 'find' (2 calls)",
        "audit.jsonl: no rule names the tool 'pay' (1 call)",
    ]


def test_a_rule_that_two_sets_have_is_told_once() -> None:
    """And not where it is for a call in one of them."""
    found = warnings(record("delete_x"), paths=("policy.yaml", "sidecall.yaml"))
    assert found == ["policy.yaml:9:7: the rule 'cap-limit' is for no call that was recorded"]


def test_a_file_without_calls_says_nothing_of_rules() -> None:
    """It is most often the wrong one."""
    assert warnings({"message": "request"}) == ["audit.jsonl: there is no recorded call in it"]


def test_of_many_tools_the_most_called_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told of as others."""
    monkeypatch.setattr(seen, "_MOST_TOLD", 1)
    found = warnings(record("search", {"limit": 99}), record("delete_x"), record("a"), record("b"), record("b"))
    assert found == [
        "audit.jsonl: no rule names the tool 'b' (2 calls)",
        "audit.jsonl: there are more tools that no rule names",
    ]
