"""Alerts and dashboard look at metrics and labels that the proxy has."""

from __future__ import annotations

import json
import re

import pytest

from proxy.metrics import COUNTERS, GAUGES, HISTOGRAMS
from tests.kubernetes.tools import CHART

LABELS = {
    **{f"sidecall_{name}_total": set(labels) for name, (_, labels) in COUNTERS.items()},
    **{f"sidecall_{name}": set(labels) for name, (_, labels) in GAUGES.items()},
    **{
        f"sidecall_{name}_{part}": {*labels, *(["le"] if part == "bucket" else [])}
        for name, (_, labels, _) in HISTOGRAMS.items()
        for part in ("bucket", "count", "sum")
    },
}
OF_TARGETS = {"namespace", "pod"}
TEXTS = {
    "dashboard": "\n".join(
        target["expr"]
        for panel in json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
        for target in panel.get("targets", [])
    ),
    **{name: (CHART / "templates" / name).read_text() for name in ("_alerts.tpl", "prometheusrule.yaml")},
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_metric_is_one_of_the_proxys(name: str) -> None:
    """By its whole name, as Prometheus has it."""
    named = set(re.findall(r"\bsidecall_\w+(?=\{)", TEXTS[name]))
    assert named
    assert named <= LABELS.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_every_label_is_one_of_the_metrics(name: str) -> None:
    """In a selector, and in what is summed by."""
    for metric, selector in re.findall(r"\b(sidecall_\w+)\{(.*?)\}(?!\})", TEXTS[name]):
        wanted = set(re.findall(r"(\w+)=", selector))
        assert wanted <= LABELS[metric] | OF_TARGETS, (metric, wanted)
    for labels, metric in re.findall(r"by \(([\w, ]+)\) \((?:\w+\()*(sidecall_\w+)\{", TEXTS[name]):
        assert set(labels.split(", ")) <= LABELS[metric] | OF_TARGETS, (metric, labels)


def test_the_objectives_are_buckets() -> None:
    """The schema lets choose what the histogram counts."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    chosen = schema["properties"]["metrics"]["properties"]["rules"]["properties"]["overheadSeconds"]["enum"]
    assert set(chosen) <= set(HISTOGRAMS["overhead_seconds"][2])
