"""What an error of the Redis driver means: whether anything can have been done, and what may be said of it.

The driver's own texts name hosts, keys and sometimes values, so none of them is passed on: a reply of Redis is told by
its code word, anything else by its kind. This module must not know any operation.
"""

from __future__ import annotations

import re
import ssl

from redis import exceptions

from proxy.stores.redis_scripts import UNKNOWN_FORM

FAILURES = (exceptions.RedisError, OSError)
"""All that the driver raises."""

_WORDS = {
    "LOADING": "it is still loading",
    "READONLY": "it is a replica that takes no writes",
    "OOM": "its memory is full",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "it has fewer replicas than it needs to take writes",
    "NOPERM": "its user lacks a permission",
    "NOAUTH": "it needs a user or a password",
    "WRONGPASS": "it does not accept the user or the password",
    "WRONGTYPE": "a key of ours holds something else",
    "BUSY": "it is busy with a script",
    "CLUSTERDOWN": "the cluster is down",
    "MASTERDOWN": "its master is down",
    "CROSSSLOT": "it is a cluster: expected a redis+cluster:// address",
    "MOVED": "it is a cluster: expected a redis+cluster:// address",
    "TRYAGAIN": "its cluster is moving our keys from one node to another",
    UNKNOWN_FORM: "a record has a form that this release does not know",
}
# Redis 6 puts an error of a script's command behind the script's own.
_CODE = re.compile(rf"(?:^|[\s:-])({'|'.join(_WORDS)})(?=\s|$)")


GIVEN_UP = ("READONLY", "MASTERDOWN", "CLUSTERDOWN")
"""Replies of a server that is not, or not just now, the one to ask."""


class NotConnectedError(exceptions.ConnectionError):
    """There was no connection to send anything on. The cause says why."""


class NoMasterError(NotConnectedError):
    """Sentinels answer, and none knows a master of the service."""


def code_of(error: BaseException) -> str:
    """The code word of a reply of Redis; empty where it is none of those that mean something here."""
    if isinstance(error, exceptions.BusyLoadingError):
        return "LOADING"
    status = getattr(error, "status_code", None) or ""
    if status in _WORDS:
        return str(status)
    text = str(error) if isinstance(error, exceptions.ResponseError) else ""
    if "Protocol error: unauthenticated" in text:  # who has not said who it is may ask in few words only
        return "NOAUTH"
    found = _CODE.search(text)
    return found[1] if found is not None else ""


def did_nothing(error: BaseException) -> bool:
    """Whether it is certain that Redis did nothing of what it was asked."""
    return isinstance(
        error,
        exceptions.ResponseError
        | NotConnectedError
        | exceptions.BusyLoadingError
        | exceptions.AuthenticationError
        | exceptions.AuthorizationError,
    )


def is_elsewhere(error: BaseException) -> bool:
    """Whether nothing was done since what was asked is no master, or not there: another one may be by now."""
    return isinstance(error, NotConnectedError) or code_of(error) == "READONLY"


def is_lost(error: BaseException) -> bool:
    """Whether the server may have been given up for another one: where that is has to be found out anew."""
    return not isinstance(error, exceptions.ResponseError) or code_of(error) in (
        "READONLY",
        "MASTERDOWN",
        "CLUSTERDOWN",
    )


def meaning(error: BaseException) -> str:
    """What happened, in words that show neither hosts nor credentials nor anything that is kept."""
    for found in _chain(error):
        if code := code_of(found):
            return _WORDS[code]
        if isinstance(found, ssl.SSLError):
            return f"TLS fails ({getattr(found, 'reason', None) or 'no reason given'})"
        if isinstance(found, exceptions.AuthenticationError | exceptions.AuthorizationError):
            return _WORDS["WRONGPASS"]
        if isinstance(found, NoMasterError):
            return "no sentinel names a master for the service"
        if isinstance(found, exceptions.TimeoutError | TimeoutError):
            return "it does not answer in time"
        if isinstance(found, ConnectionRefusedError):
            return "the connection is refused"
    if isinstance(error, NotConnectedError):
        return "it cannot be reached"
    if isinstance(error, exceptions.ConnectionError | OSError):
        return "the connection broke"
    return "it does not do what it should"


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
