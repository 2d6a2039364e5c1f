"""Monitors and rules are what the Prometheus operator's schemas say, and have no key that is misspelt."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.charts import SETS, Document, documents, rendered
from tests.kubernetes.tools import HERE, TOOLS

# The published schemas let unknown keys pass, so these are all that the chart may use.
KEYS = {
    "PodMonitor": {"selector", "namespaceSelector", "podMetricsEndpoints"},
    "podMetricsEndpoints": {"port", "path", "interval"},
    "ServiceMonitor": {"selector", "endpoints"},
    "endpoints": {"port", "path", "interval"},
    "selector": {"matchLabels"},
    "namespaceSelector": {"matchNames"},
    "PrometheusRule": {"groups"},
    "groups": {"name", "rules"},
    "rules": {"record", "alert", "expr", "for", "labels", "annotations"},
}
FREE = {"matchLabels", "labels", "annotations"}
FOUND = [
    document
    for name in (SETS if TOOLS is not None else ())
    for document in documents(rendered("helm4", name))
    if document["apiVersion"] == "monitoring.coreos.com/v1"
]


def judged(found: list[Document]) -> list[str]:
    """What the published schemas have against documents."""
    assert TOOLS is not None
    if not (TOOLS / "node_modules").is_dir() or shutil.which("node") is None:
        pytest.skip("the operator's schemas could not be had")
    done = subprocess.run(
        ["node", str(HERE / "operator.mjs"), str(TOOLS)],
        input=json.dumps(found),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    wrong: list[str] = json.loads(done.stdout)
    return wrong


def unknown(value: Any, place: str) -> Iterator[str]:
    """The keys below a place that are not in the table."""
    if isinstance(value, list):
        for one in value:
            yield from unknown(one, place)
    elif isinstance(value, dict):
        for key, below in value.items():
            if key not in KEYS[place]:
                yield f"{place}.{key}"
            elif key not in FREE:
                yield from unknown(below, key)


def test_they_are_valid() -> None:
    """Every monitor and every rule of every value set."""
    assert {document["kind"] for document in FOUND} == {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert judged(FOUND) == []
    assert [key for document in FOUND for key in unknown(document["spec"], document["kind"])] == []


def test_what_is_wrong_is_seen() -> None:
    """A value of a wrong form, and a key that is misspelt."""
    [monitor] = [document for document in FOUND if document["kind"] == "PodMonitor"][:1]
    wrong = json.loads(json.dumps(monitor))
    wrong["spec"]["podMetricsEndpoints"][0]["interval"] = "5x"
    assert len(judged([wrong])) == 1
    wrong["spec"]["podMetricsEndpoints"][0]["intervall"] = "5s"
    assert list(unknown(wrong["spec"], "PodMonitor")) == ["podMetricsEndpoints.intervall"]
