"""Reading audit records back, line by line: the calls in them, as rules may judge them again.

A file is either the audit's own, or a log that audit records are among. Lines are bounded, and nothing is kept of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proxy.authoring.auditfiles import opened
from proxy.core.calls import Api, CallId, Kind, Owner, RequestFacts, Tenant, ToolCall
from proxy.core.jsontext import Json, parse, render_text
from proxy.core.policy.names import NamedTool
from proxy.core.policy.recorded import NEVER_RECORDED, RecordedCall
from proxy.core.policy.verdicts import Subject

_LONGEST = 32 << 20
_MARK = b'"tool_call"'
_WITHOUT_ARGUMENTS = NEVER_RECORDED | {"args"}
_EVERY = 1000
_MOST_NAMES = 1000

Progress = Callable[[float], object]
"""Is told from time to time which part of a file has been read."""


@dataclass(slots=True)
class Lines:
    """How many lines were read, and how many of them are records that nobody can read."""

    read: int = 0
    unreadable: int = 0


def read_calls(path: str, lines: Lines, progress: Progress = lambda _: None) -> Iterator[RecordedCall]:
    """The calls that a file recorded, in its order; `-` is standard input. Raises ConfigError."""
    reader = RecordReader()
    with opened(path) as audit:
        while line := audit.line(_LONGEST):
            lines.read += 1
            if lines.read % _EVERY == 0 and audit.part:
                progress(audit.part)
            if _MARK not in line:
                continue
            try:
                call = reader.read(line)
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                lines.unreadable += 1
                continue
            if call is not None:
                yield call


class RecordReader:
    """Reads records; what it has learnt of a tool's name is kept for the next one."""

    def __init__(self) -> None:
        self._declared: dict[tuple[str, str], dict[str, Json]] = {}

    def read(self, line: bytes) -> RecordedCall | None:
        """The call of one record; None for a line that is something else. Raises what reading JSON raises for what is
        broken, or is no record of ours."""
        record: dict[str, Any] = parse(line)
        if not isinstance(record, dict) or "tool_call" not in (record.get("record"), record.get("message")):
            return None
        tool, namespace = _word(record, "tool"), _word(record, "namespace", "")
        kind = Kind(record["kind"]) if "kind" in record else Kind.FUNCTION
        is_shown = record["arguments"] == "full"
        text = _text(record["args"], kind) if is_shown else "{}"
        facts = RequestFacts(
            model=_word(record, "model", ""),
            api=Api(record["api"]),
            client=_word(record, "client", ""),
            tenant=Tenant(_word(record, "tenant", "")),
            declared=self._declares(tool, namespace) if record["declared"] else {},
            unknown=NEVER_RECORDED if is_shown else _WITHOUT_ARGUMENTS,
        )
        return RecordedCall(
            Subject(
                ToolCall(CallId(_word(record, "call_id", "")), tool, text, kind, namespace=namespace),
                Owner(record["owner"]),
            ),
            facts,
            datetime.fromisoformat(record["time"]).timestamp(),
            _word(record, "decision"),
            _word(record, "policy", ""),
            _word(record, "rule", ""),
        )

    def _declares(self, tool: str, namespace: str) -> dict[str, Json]:
        """What a request declares that declares the tool; the schema is not known."""
        key = (tool, namespace)
        if key not in self._declared:
            if len(self._declared) >= _MOST_NAMES:
                self._declared.clear()
            self._declared[key] = {NamedTool.of(tool, namespace).spellings[-1]: None}
        return self._declared[key]


def _word(record: Mapping[str, Any], key: str, without: str | None = None) -> str:
    """A field that is text; `without` where there is none."""
    found = record[key] if without is None else record.get(key, without)
    if not isinstance(found, str):
        raise TypeError(f"{key} is text")
    return found


def _text(args: Any, kind: Kind) -> str:
    """Arguments as the text of a call: an object, or what the model wrote in place of one."""
    if isinstance(args, dict):
        return str(args["input"]) if kind is Kind.CUSTOM else render_text(args)
    if not isinstance(args, str):
        raise TypeError("arguments are an object, or text")
    return args
