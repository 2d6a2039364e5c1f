"""Every ready policy decides the cases beside it as they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.authoring.testing import Report, run_tests
from proxy.authoring.testreports import difference_line

POLICIES = Path(__file__).parent.parent.parent / "policies"
FOLDERS = sorted(path.parent for path in POLICIES.rglob("cases.yaml"))


def run(folder: Path) -> Report:
    return run_tests([str(folder)], {})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_cases_are_decided_as_they_say(folder: Path) -> None:
    """Decision, policy, rule and arguments are those that each case expects."""
    failed = {case.name: [difference_line(one) for one in case.outcome.differences] for case in run(folder).failed}
    assert failed == {}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_rule_has_a_case_that_fires_and_one_that_does_not(folder: Path) -> None:
    """No rule goes without proof that it acts, nor without proof that it leaves others alone."""
    coverage = run(folder).coverage
    assert coverage.rules
    assert coverage.unreached == ()
    assert coverage.without_near_miss == ()


def test_all_ready_policies_together_are_covered() -> None:
    """As `sidecall test policies/ --coverage --strict` says it."""
    report = run_tests([str(POLICIES)], {})
    assert report.failed == []
    assert len({case.place.file for case in report.cases}) == len(FOLDERS)
    assert (report.coverage.unreached, report.coverage.without_near_miss) == ((), ())
