"""Errors, sorted by who must act.

The message is what the client (or the person at the terminal) may read; the cause (`raise … from`) is for
the log. A denial or a deferral is a decision, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass


class ProxyError(Exception):
    """An error of Sidecall's own. `status` is the HTTP status that a client gets for it."""

    status = 500
    type = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class RequestError(ProxyError):
    """The client must send something else (4xx)."""

    status = 400
    type = "invalid_request_error"


class UpstreamError(ProxyError):
    """The upstream did not answer as it should (502, or 504 for a timeout). `kind` is a metric label."""

    status = 502
    type = "upstream_error"

    def __init__(self, message: str, *, kind: str, code: str | None = None, status: int | None = None) -> None:
        super().__init__(message, code=code, status=status)
        self.kind = kind


class StoreError(ProxyError):
    """The store cannot be reached, read or written (503)."""

    status = 503
    type = "server_error"
    code = "state_unavailable"


class BusyError(ProxyError):
    """Too much is buffered already (503; the client may try again soon)."""

    status = 503
    type = "server_error"
    code = "overloaded"
    retry_after = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file. `line` and `column` count from 1; 0 where there is no place to name."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class ConfigError(ProxyError):
    """The configuration or the policies cannot be used: all their problems at once."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
