"""Audit records: one JSON line a tool call, to a file or to standard error.

What is shown of a call's arguments is a setting; headers, credentials and secrets are never part of a record.
A record that cannot be written is reported once and dropped: the log must not stop the traffic that it records.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from proxy.core.jsontext import Json, Object, render
from proxy.server.logs import Log, timestamp

_RECENT = 100


class Shown(StrEnum):
    """What records show of arguments."""

    NONE = "none"
    REDACTED = "redacted"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What became of one call. `args` is the arguments object, or their text where they are no object; `kind` is empty
    for a function, `namespace` where there is none."""

    request_id: str
    trace_id: str
    tenant: str
    client: str
    api: str
    model: str
    call_id: str
    tool: str
    owner: str
    decision: str
    policy: str
    rule: str
    mode: str
    args: Object | str
    namespace: str = ""
    kind: str = ""
    declared: bool = True


@dataclass(frozen=True, slots=True)
class Recent:
    """A record without its arguments, and when it was made (Unix seconds)."""

    at: float
    record: AuditRecord


def redact(value: Json) -> Json:
    """Keys and types of a value, and nothing of its text or numbers."""
    if isinstance(value, dict):
        return {key: redact(part) for key, part in value.items()}
    if isinstance(value, list):
        return [redact(part) for part in value[:20]]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


class Audit:
    """`path` is a file, or `-` for standard error, where a record's `message` is `tool_call`."""

    def __init__(self, path: str, *, shown: str, clock: Callable[[], float], log: Log) -> None:
        self._shown = Shown(shown)
        self._clock = clock
        self._log = log
        self._failed = False
        self._file = None if path == "-" else _open(Path(path))
        self.recent: deque[Recent] = deque(maxlen=_RECENT)

    def record(self, record: AuditRecord) -> None:
        """Write one record. Its arguments are not kept."""
        self.recent.appendleft(Recent(self._clock(), replace(record, args={})))
        self._write("tool_call", self._fields(record))

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        if self._file is None:
            self._log.line({"level": "audit", "message": kind, **fields})
            return
        try:
            os.write(self._file, render({"time": timestamp(self._clock()), "record": kind, **fields}) + b"\n")
        except OSError as error:
            if not self._failed:
                self._log.event("error", "audit record cannot be written", error=type(error).__name__)
            self._failed = True

    def ran(self, *, call_id: str, tool: str, tenant: str, duration: float, outcome: str) -> None:
        """A held call has run; its decision was recorded when it was made, perhaps many requests ago."""
        self._write(
            "tool_run",
            {"call_id": call_id, "tool": tool, "tenant": tenant, "duration": round(duration, 6), "outcome": outcome},
        )

    def _fields(self, record: AuditRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {
            name: getattr(record, name) for name in record.__slots__ if name != "args" and getattr(record, name) != ""
        }
        fields["arguments"] = str(self._shown)
        match self._shown:
            case Shown.FULL:
                fields["args"] = record.args
            case Shown.REDACTED:
                fields["args"] = redact(record.args)
            case Shown.NONE:
                pass
        return fields

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _open(path: Path) -> int:
    """Append to a file that only its owner may read. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
