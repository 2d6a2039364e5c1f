"""Log lines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.server.logs import Log, RequestLog, adopt_libraries, timestamp


class Lines:
    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def __call__(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.all.append(json.loads(line))


@pytest.fixture
def adopted() -> Iterator[Lines]:
    """The log of libraries taken over, and given back."""
    root, hook = logging.getLogger(), sys.unraisablehook
    handlers, level = root.handlers[:], root.level
    lines = Lines()
    adopt_libraries(Log(clock=lambda: 0.0, write=lines))
    yield lines
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.unraisablehook = hook
    logging.captureWarnings(False)


def test_a_request_is_one_line() -> None:
    """The line has what is known, and leaves out what is not."""
    lines = Lines()
    entry = RequestLog("id", "GET", "/v1/models", status=200, client="a", first_byte=0.5)
    Log(clock=lambda: 1.5, write=lines).request(entry, duration=1.25)
    (line,) = lines.all
    assert (line["time"], line["request_id"], line["status"], line["duration"]) == (
        "1970-01-01T00:00:01.500Z",
        "id",
        200,
        1.25,
    )
    assert (line["client"], line["first_byte"]) == ("a", 0.5)
    assert not {"tenant", "error", "trace_id"} & line.keys()


@pytest.mark.parametrize(("level", "count"), [("debug", 3), ("info", 2), ("error", 0)])
def test_the_level_decides_what_is_written(level: str, count: int) -> None:
    """Lines below the level are left out."""
    lines = Lines()
    log = Log(level=level, clock=lambda: 0.0, write=lines)
    log.event("debug", "a")
    log.event("info", "b")
    log.request(RequestLog("id", "GET", "/"), duration=0)
    assert len(lines.all) == count


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """A write that fails is let go."""

    def fail(line: bytes) -> None:
        raise BrokenPipeError

    Log(clock=lambda: 0.0, write=fail).event("error", "x")


def test_lines_of_libraries_are_json_and_quote_no_exception(adopted: Lines) -> None:
    """A library's record becomes a line with the kind of its exception alone."""
    try:
        raise ValueError("sk-secret")
    except ValueError:
        logging.getLogger("aiohttp.server").exception("Error handling request")
    logging.getLogger("asyncio").info("not shown")
    assert [(line["logger"], line["error"]) for line in adopted.all] == [("aiohttp.server", "ValueError")]
    assert "sk-secret" not in str(adopted.all)


def test_times_are_rfc_3339() -> None:
    """UTC, with milliseconds."""
    assert timestamp(1760000000.1234) == "2025-10-09T08:53:20.123Z"
