from __future__ import annotations

import pytest

from proxy.errors import BusyError, ConfigError, Problem, ProxyError, RequestError, StoreError, UpstreamError


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (ProxyError("m"), 500, "server_error", None),
        (ProxyError("m", code="c", status=418), 418, "server_error", "c"),
        (RequestError("m"), 400, "invalid_request_error", None),
        (RequestError("m", code="tool_call_blocked", status=403), 403, "invalid_request_error", "tool_call_blocked"),
        (UpstreamError("m", kind="connect"), 502, "upstream_error", None),
        (UpstreamError("m", kind="timeout", status=504, code="slow"), 504, "upstream_error", "slow"),
        (StoreError("m"), 503, "server_error", "state_unavailable"),
        (StoreError("m", code="other"), 503, "server_error", "other"),
        (BusyError("m"), 503, "server_error", "overloaded"),
    ],
)
def test_an_error_says_who_must_act(error: ProxyError, status: int, kind: str, code: str | None) -> None:
    """Status, type and code are those of the kind of error, unless this one says otherwise."""
    assert (error.status, error.type, error.code, error.param) == (status, kind, code, None)
    assert error.message == str(error) == "m"


def test_what_one_error_says_is_its_own() -> None:
    """A code or status given to one error is no other error's."""
    StoreError("m", code="other", status=500)
    assert (StoreError("m").code, StoreError("m").status) == ("state_unavailable", 503)


def test_an_upstream_error_has_a_kind_for_metrics() -> None:
    """The kind is the label under which the error is counted."""
    assert UpstreamError("m", kind="reset").kind == "reset"
    assert BusyError("m").retry_after == 1


def test_a_configuration_error_has_all_its_problems() -> None:
    """Each problem is a line of its own, with its place where there is one."""
    problems = [Problem("a.yaml", 3, 7, "unknown key"), Problem("b.yaml", 0, 0, "cannot be read")]
    error = ConfigError(problems)
    assert error.problems == problems
    assert str(error) == "a.yaml:3:7: unknown key\nb.yaml: cannot be read"
