"""Every alert fires when it should and does not when it should not, by promtool; each has a runbook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.rules import BUILD, CASES, Case, alerts, groups
from tests.kubernetes.tools import CHART, ROOT, ran

RUNBOOKS = ROOT / "docs" / "runbooks"


def as_promtool(case: Case) -> dict[str, Any]:
    """A case in promtool's form. What is told in annotations is left to the test below: only labels are compared."""
    [rule] = [rule for rule in alerts() if rule["alert"] == case.alert]
    expected = []
    if case.fires is not None:
        expected = [{"exp_labels": {**rule["labels"], **case.fires}, "exp_annotations": {}}]
    series = case.series if case.alert == "SidecallAbsent" else {**BUILD, **case.series}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{case.minute}m", "alertname": case.alert, "exp_alerts": expected}],
    }


def without_annotations(found: dict[str, Any]) -> dict[str, Any]:
    for group in found["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return found


def test_every_alert_fires_and_does_not(tmp_path: Path) -> None:
    """All cases at once: promtool says which one fails, and how."""
    (tmp_path / "rules.yaml").write_text(json.dumps(without_annotations(groups())))
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [as_promtool(case) for case in CASES]}
    (tmp_path / "tests.yaml").write_text(json.dumps(tests))
    ran("promtool", "test", "rules", "tests.yaml", cwd=tmp_path)


def test_every_alert_has_both_kinds_of_case() -> None:
    """One in which it fires, and one in which it does not."""
    names = {rule["alert"] for rule in alerts()}
    assert {case.alert for case in CASES if case.fires is not None} == names
    assert {case.alert for case in CASES if case.fires is None} == names


@pytest.mark.parametrize("name", ["rules", "rules-tuned", "sidecar-whole"])
def test_prometheus_takes_the_rules(name: str, tmp_path: Path) -> None:
    """As they come, with their annotations, which it looks at as templates."""
    (tmp_path / "rules.yaml").write_text(json.dumps(groups(name)))
    said = ran("promtool", "check", "rules", "rules.yaml", cwd=tmp_path)
    assert f"{sum(len(group['rules']) for group in groups(name)['groups'])} rules found" in said


def test_annotations_name_what_is_there(tmp_path: Path) -> None:
    """Summary, description and runbook, with the labels of what fires filled in."""
    [case] = [case for case in CASES if case.alert == "SidecallStoreDown" and case.fires is not None]
    [rule] = [rule for rule in alerts() if rule["alert"] == case.alert]
    test = as_promtool(case)
    told = {**rule["annotations"]}
    told["description"] = "agents/a has not reached its store for 5 minutes; what needs it is refused."
    test["alert_rule_test"][0]["exp_alerts"][0]["exp_annotations"] = told
    (tmp_path / "rules.yaml").write_text(json.dumps(groups()))
    (tmp_path / "tests.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [test]}))
    ran("promtool", "test", "rules", "tests.yaml", cwd=tmp_path)


def test_tuned_rules_are_what_the_values_say() -> None:
    """Every threshold that is a value is in an expression."""
    text = json.dumps(groups("rules-tuned"))
    for wanted in ('le=\\"0.25\\"', "> 600", '"1h"', "> 0.25 + 2 *", "14.4 * 0.001", 'cluster=\\"one\\"'):
        assert wanted in text, wanted
    assert {rule["annotations"]["runbook_url"] for rule in alerts("rules-tuned")} == {
        f"https://runbooks.example.com/sidecall/{rule['alert']}.md" for rule in alerts()
    }


def test_only_a_gateway_has_to_be_there() -> None:
    """Sidecars come and go with their pods."""
    assert {rule["alert"] for rule in alerts()} - {rule["alert"] for rule in alerts("sidecar-whole")} == {
        "SidecallAbsent"
    }


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """Named as the alert, where the annotation says."""
    named = {rule["annotations"]["runbook_url"] for rule in alerts()}
    assert named == {str(path.relative_to(ROOT)) for path in RUNBOOKS.glob("Sidecall*.md")}
    assert "docs/runbooks/" in (CHART / "values.yaml").read_text()
