"""What a stream's filter asks of the shell."""

from __future__ import annotations

from proxy.core.exchange.steps import too_long


def test_a_limit_that_is_reached_is_the_upstreams_fault() -> None:
    """The client gets a clear error, with a code of its own and the limit in words."""
    error = too_long("An event of the stream", 300)
    assert (error.status, error.code, error.kind) == (502, "limit_exceeded", "protocol")
    assert error.message == "An event of the stream is longer than the limit of 300."
