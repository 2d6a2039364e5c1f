"""Audit records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.server.audit import Audit, AuditRecord, redact
from proxy.server.logs import Log

RECORD = AuditRecord(
    request_id="r1",
    trace_id="",
    tenant="t",
    client="",
    api="chat",
    model="m",
    call_id="call_1",
    tool="delete",
    owner="client",
    decision="blocked",
    policy="p",
    rule="r",
    mode="enforce",
    args={"id": "o-4711", "n": 1, "deep": [True, None, {"x": 1.5}]},
)


def written(path: Path, shown: str, record: AuditRecord = RECORD) -> dict[str, Any]:
    with Audit(str(path), shown=shown, clock=lambda: 0.0, log=Log(clock=lambda: 0.0)) as audit:
        audit.record(record)
        assert audit.recent[0].record.args == {}
    (line,) = path.read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize(
    ("shown", "args"),
    [
        ("full", RECORD.args),
        ("redacted", {"id": "string", "n": "number", "deep": ["boolean", "null", {"x": "number"}]}),
        ("none", None),
    ],
)
def test_arguments_are_shown_as_configured(shown: str, args: Any, tmp_path: Path) -> None:
    """A record has the call, what became of it, and as much of the arguments as is configured."""
    found = written(tmp_path / "audit.jsonl", shown)
    assert found.get("args") == args
    shown_parts = [found[key] for key in ("time", "record", "tool", "decision", "rule")]
    assert shown_parts == ["1970-01-01T00:00:00.000Z", "tool_call", "delete", "blocked", "r"]
    assert "client" not in found
    assert (found["arguments"], found["declared"]) == (shown, True)
    assert "kind" not in found


def test_a_run_is_a_record_of_its_own(tmp_path: Path) -> None:
    """How long a held call ran, and how it ended, comes when it has run."""
    path = tmp_path / "audit.jsonl"
    with Audit(str(path), shown="none", clock=lambda: 0.0, log=Log(clock=lambda: 0.0)) as audit:
        audit.ran(call_id="call_1", tool="price", tenant="t", duration=0.25, outcome="timeout")
    found = json.loads(path.read_text())
    assert (found["record"], found["call_id"], found["duration"], found["outcome"]) == (
        "tool_run",
        "call_1",
        0.25,
        "timeout",
    )


def test_text_in_place_of_arguments_is_redacted_too(tmp_path: Path) -> None:
    """Arguments that are no object are text, and text is not shown."""
    assert written(tmp_path / "a", "redacted", replace(RECORD, args="secret"))["args"] == "string"
    assert redact([1] * 50) == ["number"] * 20


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    """The file is nobody else's to read."""
    written(tmp_path / "a", "full")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_records_on_standard_error_can_be_told_apart() -> None:
    """With `-` a record is a log line of its own kind."""
    lines: list[dict[str, Any]] = []
    log = Log(clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    with Audit("-", shown="none", clock=lambda: 0.0, log=log) as audit:
        audit.record(RECORD)
    assert [(line["level"], line["message"], line["tool"]) for line in lines] == [("audit", "tool_call", "delete")]


def test_a_record_that_cannot_be_written_is_told_once() -> None:
    """A full disk does not stop the traffic."""
    lines: list[dict[str, Any]] = []
    log = Log(clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    with Audit("/dev/full", shown="none", clock=lambda: 0.0, log=log) as audit:
        audit.record(RECORD)
        audit.record(RECORD)
    assert [line["message"] for line in lines] == ["audit record cannot be written"]
