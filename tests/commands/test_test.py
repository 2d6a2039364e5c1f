from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from proxy.commands.test import _lines
from proxy.core.exchange.cases import Difference
from tests.authoring.files import CAPPED, CASES, POLICY, WRONG, write
from tests.commands.conftest import Run


def test_what_passes_has_a_line(run: Run) -> None:
    """With how much was run."""
    write(policy=POLICY, cases=CASES + CAPPED)
    assert run("test", ".") == (0, "2 cases in 1 file: 2 passed, 0 failed\n", "")


def test_a_failure_is_shown_with_its_reason(run: Run) -> None:
    """Where it stands, what was expected, and how the decision came about."""
    write(policy=POLICY, cases=CASES + WRONG)
    status, told, _ = run("test", ".")
    assert status == 1
    assert told.splitlines() == [
        "FAILED cases.yaml:8:5: orders: searching is blocked",
        "    decision: expected blocked, got allowed",
        "      skipped   orders/cap-limit (rewrite)  "
        "when: has(args.limit) && args.limit > 10 is false: args.limit is 1",
        "    decision: allowed, as no rule decided",
        "",
        "2 cases in 1 file: 1 passed, 1 failed",
    ]


def test_coverage_names_rules_and_fails_when_it_is_strict(run: Run) -> None:
    """Rules that no case makes act; strictly also those that no case nearly meets."""
    write(policy=POLICY, cases=CASES)
    unreached = "policy.yaml:9:7: orders/cap-limit: no case makes it act"
    status, told, _ = run("test", ".", "--coverage")
    assert (status, told.splitlines()) == (
        0,
        [unreached, "1 case in 1 file: 1 passed, 0 failed; 1 of 2 rules reached"],
    )
    status, told, _ = run("test", ".", "--coverage", "--strict")
    assert (status, told.splitlines()[:2]) == (
        1,
        [unreached, "policy.yaml:6:7: orders/no-deletes: no case nearly meets it"],
    )
    write(cases=CASES + CAPPED + WRONG.replace("blocked}", "allowed}"))
    assert run("test", ".", "--coverage", "--strict")[0] == 0


def test_no_cases_are_a_failure(run: Run) -> None:
    """A path that leads to none is most often a wrong one."""
    write(policy=POLICY)
    why = "there is no case in what was given: expected documents of kind ToolPolicyTest, beside the policies\n"
    assert run("test", ".") == (1, f"{why}0 cases in 0 files: 0 passed, 0 failed\n", "")


def test_what_cannot_be_read_is_told(run: Run) -> None:
    """With its place, and nothing is run."""
    write(policy=POLICY, cases=CASES.replace("expect:", "expct:"))
    status, told, problems = run("test", ".")
    assert (status, told) == (2, "")
    assert [line.partition(" ")[0] for line in problems.splitlines()] == ["cases.yaml:7:5:"]


def test_machines_get_json_or_junit(run: Run) -> None:
    """With the same exit status."""
    write(policy=POLICY, cases=CASES + WRONG)
    status, told, _ = run("test", ".", "--output", "json", "--coverage")
    found = json.loads(told)
    assert (status, found["passed"], found["failed"], found["coverage"]["rules"]) == (1, 1, 1, 2)
    status, told, _ = run("test", ".", "--output", "junit")
    assert (status, ElementTree.fromstring(told).get("failures")) == (1, "1")


@pytest.mark.parametrize(
    ("difference", "lines"),
    [
        (Difference("rule", "a", "b"), ["rule: expected a, got b"]),
        (Difference("contains", "x" * 70, "y"), [f"contains: expected the text to contain {'x' * 70}, got y"]),
        (
            Difference(
                "args", {"text": "x" * 60, "n": {"m": 1}, "l": [1, {"a": []}]}, {"text": "x" * 60, "n": {"m": 2}}
            ),
            [
                "args: - expected, + got",
                "   n:",
                "  -  m: 1",
                "  -l:",
                "  -  -: 1",
                "  -  -:",
                "  -    a: []",
                "  +  m: 2",
            ],
        ),
        (
            Difference("result", "one\n" + "t" * 60, "two\n" + "t" * 60),
            ["result: - expected, + got", "  -one", "  +two", "   " + "t" * 60],
        ),
    ],
)
def test_long_values_are_shown_as_a_diff(difference: Difference, lines: list[str]) -> None:
    """Short ones on one line."""
    assert [line for line, _ in _lines(difference)] == lines
