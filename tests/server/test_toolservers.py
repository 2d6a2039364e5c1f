"""What is told of MCP servers."""

from __future__ import annotations

import json
from typing import Any

from proxy.metrics import Metrics
from proxy.server.logs import Log
from proxy.server.toolservers import ToolServerWatch


def made(level: str = "info") -> tuple[ToolServerWatch, Metrics, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    metrics = Metrics(max_tool_names=1, clock=lambda: 0.0)
    log = Log(level=level, clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    return ToolServerWatch(metrics, log), metrics, lines


def up(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("sidecall_mcp_up", {"server": "docs"})


def told(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(value for key, value in line.items() if key != "time") for line in lines]


def test_a_gauge_says_whether_a_server_answers() -> None:
    """From when it is configured until it is not any more."""
    watch, metrics, lines = made()
    watch.down("docs", "")
    assert (up(metrics), lines) == (0, [])
    watch.up("docs", 3)
    assert (up(metrics), told(lines)) == (1, [("info", "MCP server answers", "docs", 3)])
    watch.down("docs", "it did not answer in time")
    assert up(metrics) == 0
    watch.gone("docs")
    assert up(metrics) is None


def test_a_server_that_stays_away_is_told_of_once_for_each_reason() -> None:
    """It is tried for as long as it takes."""
    watch, _, lines = made()
    for reason in ("refused", "refused", "late", "late"):
        watch.down("docs", reason)
    watch.up("docs", 1)
    watch.down("docs", "late")
    assert [line.get("reason") for line in lines] == ["refused", "late", None, "late"]


def test_a_tool_that_is_left_out_is_told_of() -> None:
    """With the reason."""
    watch, _, lines = made()
    watch.left_out("docs", "x" * 1000, "why")
    assert told(lines) == [("warning", "a tool of an MCP server is left out", "docs", "x" * 100, "why")]


def test_what_a_server_says_is_shown_to_who_looks_for_it() -> None:
    """It may quote anything."""
    watch, _, lines = made()
    watch.said("docs", "hello")
    assert lines == []
    watch, _, lines = made("debug")
    watch.said("docs", "hello")
    assert told(lines) == [("debug", "MCP server says", "docs", "hello")]
