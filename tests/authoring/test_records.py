from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.authoring import records
from proxy.authoring.records import Lines, RecordReader, read_calls
from proxy.core.calls import Api, Kind, Owner, Tenant
from proxy.core.policy.recorded import NEVER_RECORDED, RecordedCall
from proxy.errors import ConfigError
from proxy.server.audit import Audit, AuditRecord
from proxy.server.logs import Log
from tests.authoring.files import record, write_audit

WRITTEN = AuditRecord(
    request_id="r1",
    trace_id="",
    tenant="t",
    client="team-a",
    api="responses",
    model="m",
    call_id="call_1",
    tool="functions.find",
    owner="client",
    decision="blocked",
    policy="p",
    rule="r",
    mode="enforce",
    args={"id": "o-4711", "n": 1},
    namespace="docs",
)


def read(given: dict[str, Any] | bytes) -> RecordedCall | None:
    return RecordReader().read(given if isinstance(given, bytes) else json.dumps(given).encode())


def audited(tmp_path: Path, shown: str, entry: AuditRecord, *, path: str = "audit.jsonl") -> RecordedCall:
    """A record as the audit writes it, read back."""
    file = tmp_path / path
    with Audit(str(file), shown=shown, clock=lambda: 1.5, log=Log(clock=lambda: 0.0)) as audit:
        audit.record(entry)
    found = RecordReader().read(file.read_bytes())
    assert found is not None
    return found


def test_what_the_audit_writes_is_read_back(tmp_path: Path) -> None:
    """A call, its request as far as it was recorded, when it was, and what was decided."""
    found = audited(tmp_path, "full", WRITTEN)
    assert (found.time, found.decision, found.policy, found.rule) == (1.5, "blocked", "p", "r")
    call, facts = found.subject.call, found.facts
    assert (call.name, call.namespace, call.kind, call.text) == (
        "functions.find",
        "docs",
        Kind.FUNCTION,
        '{"id":"o-4711","n":1}',
    )
    assert (facts.model, facts.api, facts.client, facts.tenant) == ("m", Api.RESPONSES, "team-a", Tenant("t"))
    assert facts.declared == {"docs.find": None}
    assert facts.unknown == NEVER_RECORDED
    assert found.subject.owner is Owner.CLIENT


@pytest.mark.parametrize("shown", ["redacted", "none"])
def test_arguments_that_are_not_shown_are_not_known(shown: str, tmp_path: Path) -> None:
    """What stands in their place is not taken for them."""
    assert audited(tmp_path, shown, WRITTEN).facts.unknown == NEVER_RECORDED | {"args"}


def test_other_kinds_of_calls_are_read_back(tmp_path: Path) -> None:
    """Free text, text that is no object, and a tool that was made up."""
    custom = audited(tmp_path, "full", replace(WRITTEN, kind="custom", args={"input": "free"}), path="1")
    assert (custom.subject.call.kind, custom.subject.call.text) == (Kind.CUSTOM, "free")
    broken = audited(tmp_path, "full", replace(WRITTEN, args="[1", declared=False), path="2")
    assert (broken.subject.call.text, broken.facts.declared) == ("[1", {})


def test_other_lines_are_no_calls() -> None:
    """Of a log that records are among, and of runs."""
    assert read({"message": "tool_call", **{k: v for k, v in record("t").items() if k != "record"}}) is not None
    assert read({"record": "tool_run", "tool": "tool_call"}) is None
    assert read(b'["tool_call"]') is None


def test_a_file_is_read_line_by_line() -> None:
    """Broken records are counted, and so is every line."""
    write_audit("a.jsonl", record("a"), {"message": "request"}, record("b"))
    with open("a.jsonl", "a") as file:
        file.write('{"record": "tool_call"\n{"record": "tool_call", "tool": "x"}\n')
        file.write(json.dumps(record("t", "x", arguments="full", owner="nobody")) + "\n\n")
        file.write(json.dumps(record("t", [1])))
    lines = Lines()
    parts: list[float] = []
    assert [call.subject.call.name for call in read_calls("a.jsonl", lines, parts.append)] == ["a", "b"]
    assert (lines.read, lines.unreadable, parts) == (8, 4, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"decision": None},
        {"decision": []},
        {"decision": 7},
        {"client": {"a": 1}},
        {"policy": None, "rule": []},
        {"tool": ["a"]},
        {"namespace": 1},
        {"model": None},
        {"tenant": 1},
        {"call_id": 7},
        {"time": 1},
        {"owner": []},
        {"kind": {}},
        {"kind": "custom", "args": {"n": 1}},
    ],
    ids=str,
)
def test_a_field_of_another_kind_makes_its_record_alone_unreadable(wrong: dict[str, Any]) -> None:
    """The others are read."""
    lines = Lines()
    path = write_audit("a.jsonl", record("a"), {**record("b"), **wrong}, record("c"))
    assert [call.subject.call.name for call in read_calls(path, lines)] == ["a", "c"]
    assert lines.unreadable == 1


def test_it_is_told_how_far_a_file_is_read() -> None:
    """From time to time."""
    write_audit("a.jsonl", *[record("a")] * 2000)
    parts: list[float] = []
    assert len(list(read_calls("a.jsonl", Lines(), parts.append))) == 2000
    assert parts == [0.5, 1.0]


def test_records_may_come_by_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose end nobody knows."""
    given = io.TextIOWrapper(io.BytesIO(json.dumps(record("a")).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert [call.subject.call.name for call in read_calls("-", Lines())] == ["a"]


def test_names_of_tools_are_kept_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models make up as many as they like."""
    monkeypatch.setattr(records, "_MOST_NAMES", 2)
    reader = RecordReader()
    names = [reader.read(json.dumps(record(name)).encode()) for name in ("a", "b", "c", "a")]
    assert [list(found.facts.declared) for found in names if found] == [["a"], ["b"], ["c"], ["a"]]


def test_a_file_that_cannot_be_read_is_told() -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=r"none\.jsonl: the file cannot be read: No such file"):
        list(read_calls("none.jsonl", Lines()))
