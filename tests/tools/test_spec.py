"""What a proxy tool is, and what comes of it."""

from __future__ import annotations

from proxy.tools.spec import RunKind, ToolOutcome, ToolRunError, failure


def test_an_error_result_names_the_tool_and_what_failed() -> None:
    """There is one form of it."""
    expected = ToolOutcome("Tool status failed: it timed out after 5s", is_error=True, kind=RunKind.TIMEOUT)
    assert failure("status", RunKind.TIMEOUT, "it timed out after 5s") == expected


def test_the_reason_of_a_failed_run_is_its_message() -> None:
    """For the log it reads the same as for the model."""
    error = ToolRunError(RunKind.HTTP, "its server answered with HTTP status 503")
    assert (str(error), error.kind) == (error.reason, "http")
