"""What goes to standard error: JSON lines, one a request, and one for each event of the process itself.

A request's line holds no query (it may hold credentials), no header and no body. Other libraries' log
records become JSON lines too, so that a reader never meets anything else. Knows nothing of HTTP.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from proxy.core.jsontext import Json, render

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
Write = Callable[[bytes], object]


def timestamp(seconds: float) -> str:
    """RFC 3339, in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_stderr(line: bytes) -> None:
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


class Log:
    """A stream of JSON lines."""

    def __init__(self, *, level: str = "info", clock: Callable[[], float], write: Write = _write_stderr) -> None:
        self._level = LEVELS.get(level, LEVELS["info"])
        self._clock = clock
        self._write = write

    def event(self, level: str, message: str, **fields: Json) -> None:
        """One line about the process."""
        if LEVELS[level] >= self._level:
            self.line({"level": level, "message": message, **fields})

    def line(self, fields: Mapping[str, Json]) -> None:
        try:
            self._write(render({"time": timestamp(self._clock()), **fields}) + b"\n")
        except (OSError, ValueError):
            return  # nobody reads the log any more; requests go on

    def request(self, entry: RequestLog, *, duration: float) -> None:
        """The one line of a request."""
        if LEVELS["info"] >= self._level:
            self.line({"level": "info", "message": "request", **entry.fields(), "duration": round(duration, 6)})


@dataclass(slots=True)
class RequestLog:
    """What is known of a request so far; whoever learns something fills it in.

    `waited` is the seconds that others took: the upstream, the client, a tool; the rest of the duration is
    overhead. `changed`: something of request or answer was changed. `error` is the cause, for the log alone.
    `next_event` is the number of the next event of a stream whose events are numbered; the line does not show it.
    """

    request_id: str
    method: str
    path: str
    api: str = "other"
    stream: bool = False
    status: int = 0
    client: str = ""
    tenant: str = ""
    trace: str = ""
    changed: bool = False
    governed: bool = False
    error: str = ""
    waited: float = 0.0
    first_byte: float | None = None
    calls: int = 0
    rounds: int = 0
    next_event: int | None = None

    def fields(self) -> dict[str, Json]:
        known: dict[str, Json] = {
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "api": self.api,
            "status": self.status,
            "stream": self.stream,
            "governed": self.governed,
            "changed": self.changed,
            "waited": round(self.waited, 6),
        }
        more: dict[str, Json] = {
            "client": self.client,
            "tenant": self.tenant,
            "trace_id": self.trace,
            "calls": self.calls,
            "rounds": self.rounds,
            "error": self.error,
        }
        known |= {name: value for name, value in more.items() if value}
        if self.first_byte is not None:
            known["first_byte"] = round(self.first_byte, 6)
        return known


class _JsonHandler(logging.Handler):
    """Other libraries' records as JSON lines."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Json] = {"level": record.levelname.lower(), "message": record.getMessage()}
        fields["logger"] = record.name
        if record.exc_info and record.exc_info[1] is not None:
            # The kind alone: a library's text may quote a header or a body.
            fields["error"] = type(record.exc_info[1]).__name__
        self._log.line(fields)


def adopt_libraries(log: Log) -> None:
    """Make everything that libraries log, warn of, or fail to raise a JSON line of ours. For the start of a process."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_JsonHandler(log))
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    warnings.simplefilter("ignore", ResourceWarning)

    def unraisable(found: Any) -> None:
        log.event("error", "unraisable", error=type(found.exc_value).__name__)

    sys.unraisablehook = unraisable
