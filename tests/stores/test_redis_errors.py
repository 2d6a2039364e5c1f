"""What errors of the driver mean."""

from __future__ import annotations

import ssl

import pytest
from redis import exceptions

from proxy.stores.redis_errors import (
    FAILURES,
    NoMasterError,
    NotConnectedError,
    code_of,
    did_nothing,
    is_elsewhere,
    is_lost,
    meaning,
)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


READONLY = "ERR Error running script (call to f_1): @user_script:30: @user_script: 30: -READONLY You can't write."


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (exceptions.BusyLoadingError("Redis is loading"), "LOADING", "still loading"),
        (exceptions.ReadOnlyError("You can't", status_code="READONLY"), "READONLY", "takes no writes"),
        (exceptions.ResponseError(READONLY), "READONLY", "takes no writes"),
        (exceptions.ResponseError("OOM command not allowed"), "OOM", "memory is full"),
        (exceptions.OutOfMemoryError("command", status_code="OOM"), "OOM", "memory is full"),
        (exceptions.ResponseError("ERR Error running script: -OOM command not allowed."), "OOM", "memory is full"),
        (exceptions.ResponseError("MISCONF Redis is configured to save"), "MISCONF", "cannot write to its disk"),
        (exceptions.ResponseError("NOREPLICAS Not enough"), "NOREPLICAS", "fewer replicas"),
        (exceptions.ResponseError("BUSY Redis is busy"), "BUSY", "busy with a script"),
        (exceptions.MasterDownError("Link", status_code="MASTERDOWN"), "MASTERDOWN", "master is down"),
        (exceptions.AuthenticationError("Authentication required.", status_code="NOAUTH"), "NOAUTH", "needs a user"),
        (exceptions.ResponseError("Protocol error: unauthenticated multibulk length"), "NOAUTH", "needs a user"),
        (exceptions.AuthenticationError("invalid password"), "", "does not accept"),
        (exceptions.ResponseError("ERR unknown command 'EVALSHA', with args: 'v-4711'"), "", "does not do what"),
        (exceptions.ResponseError("ERR v-READONLY4711"), "", "does not do what"),
        (exceptions.TimeoutError("Timeout reading from h-4711:1"), "", "does not answer in time"),
        (exceptions.ConnectionError("Error while reading from h-4711:1"), "", "the connection broke"),
        (OSError(5, "x-4711"), "", "the connection broke"),
        (exceptions.InvalidResponse("4711"), "", "does not do what"),
        (NotConnectedError("no"), "", "cannot be reached"),
        (NoMasterError("no"), "", "no sentinel names a master"),
        (caused(NotConnectedError("no"), exceptions.AuthenticationError("4711")), "", "does not accept"),
        (caused(NotConnectedError("no"), exceptions.BusyLoadingError("Loading")), "", "still loading"),
        (caused(NotConnectedError("no"), ConnectionRefusedError(111, "4711")), "", "connection is refused"),
        (caused(NotConnectedError("no"), TimeoutError()), "", "does not answer in time"),
        (caused(NotConnectedError("no"), ssl.SSLError(1, "4711")), "", "TLS fails (no reason given)"),
    ],
)
def test_an_error_is_told_without_its_text(error: Exception, code: str, said: str) -> None:
    """Nothing of the driver's or the server's own text is shown: it may hold hosts, names and values."""
    assert isinstance(error, FAILURES)
    assert code_of(error) == code
    assert said in meaning(error)
    assert "4711" not in meaning(error)


def test_a_circle_of_causes_has_an_end() -> None:
    """Errors that name each other as their cause."""
    one, other = exceptions.ConnectionError(), exceptions.ConnectionError()
    one.__cause__, other.__cause__ = other, one
    assert meaning(one) == "the connection broke"


@pytest.mark.parametrize(
    ("error", "nothing", "elsewhere", "lost"),
    [
        (NotConnectedError(), True, True, True),
        (NoMasterError(), True, True, True),
        (exceptions.BusyLoadingError(), True, False, True),
        (exceptions.AuthenticationError(), True, False, True),
        (exceptions.ResponseError(READONLY), True, True, True),
        (exceptions.MasterDownError("x", status_code="MASTERDOWN"), True, False, True),
        (exceptions.ClusterDownError("x", status_code="CLUSTERDOWN"), True, False, True),
        (exceptions.ResponseError("OOM"), True, False, False),
        (exceptions.ConnectionError(), False, False, True),
        (exceptions.TimeoutError(), False, False, True),
        (exceptions.InvalidResponse(), False, False, True),
        (ConnectionResetError(), False, False, True),
    ],
)
def test_what_is_certain_after_an_error(error: Exception, nothing: bool, elsewhere: bool, lost: bool) -> None:
    """A connection that broke leaves the outcome open; a reply and a connection that was never made do not."""
    assert (did_nothing(error), is_elsewhere(error), is_lost(error)) == (nothing, elsewhere, lost)
