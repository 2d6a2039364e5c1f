"""Reading audit records back, line by line: the calls in them, as rules may judge them again.

A file is either the audit's own, or a log that audit records are among. Lines are bounded, and nothing is kept of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from proxy.core.calls import Api, CallId, Kind, Owner, RequestFacts, Tenant, ToolCall
from proxy.core.jsontext import Json, parse, render_text
from proxy.core.policy.names import NamedTool
from proxy.core.policy.recorded import NEVER_RECORDED, RecordedCall
from proxy.core.policy.verdicts import Subject
from proxy.errors import ConfigError, Problem

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
    try:
        if path == "-":
            yield from _calls(sys.stdin.buffer, lines, lambda _: None)
            return
        with open(path, "rb") as file:
            size = Path(path).stat().st_size or 1
            yield from _calls(file, lines, lambda at: progress(min(1.0, at / size)))
    except OSError as error:
        raise ConfigError([Problem(path, 0, 0, f"the file cannot be read: {error.strerror}")]) from None


def _calls(file: BinaryIO | BufferedReader, lines: Lines, at: Callable[[int], object]) -> Iterator[RecordedCall]:
    reader = RecordReader()
    position = 0
    while line := file.readline(_LONGEST):
        position += len(line)
        lines.read += 1
        if lines.read % _EVERY == 0:
            at(position)
        if _MARK not in line:
            continue
        try:
            call = reader.read(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            lines.unreadable += 1
        else:
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
        tool, namespace = record["tool"], record.get("namespace", "")
        kind = Kind(record["kind"]) if "kind" in record else Kind.FUNCTION
        is_shown = record["arguments"] == "full"
        text = _text(record["args"], kind) if is_shown else "{}"
        facts = RequestFacts(
            model=record.get("model", ""),
            api=Api(record["api"]),
            client=record.get("client", ""),
            tenant=Tenant(record.get("tenant", "")),
            declared=self._declares(tool, namespace) if record["declared"] else {},
            unknown=NEVER_RECORDED if is_shown else _WITHOUT_ARGUMENTS,
        )
        return RecordedCall(
            Subject(
                ToolCall(CallId(record.get("call_id", "")), tool, text, kind, namespace=namespace),
                Owner(record["owner"]),
            ),
            facts,
            datetime.fromisoformat(record["time"]).timestamp(),
            record["decision"],
            record.get("policy", ""),
            record.get("rule", ""),
        )

    def _declares(self, tool: str, namespace: str) -> dict[str, Json]:
        """What a request declares that declares the tool; the schema is not known."""
        key = (tool, namespace)
        if key not in self._declared:
            if len(self._declared) >= _MOST_NAMES:
                self._declared.clear()
            self._declared[key] = {NamedTool.of(tool, namespace).spellings[-1]: None}
        return self._declared[key]


def _text(args: Any, kind: Kind) -> str:
    """Arguments as the text of a call: an object, or what the model wrote in place of one."""
    if isinstance(args, dict):
        return str(args["input"]) if kind is Kind.CUSTOM else render_text(args)
    if not isinstance(args, str):
        raise TypeError("arguments are an object, or text")
    return args
