"""What an error of the Redis driver means: whether anything can have been done, and what may be said of it.

The driver's own texts name hosts, keys and sometimes values, so none of them is passed on: a reply of Redis is told by
its code word, anything else by its kind. This module must not know any operation.
"""

from __future__ import annotations

import re
import ssl

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

from proxy.stores.redis_scripts import UNKNOWN_FORM

FAILURES = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
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
    UNKNOWN_FORM: "a record has a form that this release does not know",
}
# Redis 6 puts an error of a script's command behind the script's own.
_CODE = re.compile(rf"(?:^|[\s:-])({'|'.join(_WORDS)})(?=\s|$)")


class NotConnectedError(exceptions.ConnectionError):
    """There was no connection to send anything on. The cause says why."""


def code_of(error: BaseException) -> str:
    """The code word of a reply of Redis; empty where it is none of those that mean something here."""
    if isinstance(error, exceptions.BusyLoadingError):
        return "LOADING"
    status = getattr(error, "status_code", None) or ""
    if status in _WORDS:
        return str(status)
    found = _CODE.search(str(error)) if isinstance(error, exceptions.ResponseError) else None
    return found[1] if found is not None else ""


def did_nothing(error: BaseException) -> bool:
    """Whether it is certain that Redis did nothing of what it was asked."""
    return is_demoted(error) or isinstance(
        error,
        exceptions.ResponseError
        | NotConnectedError
        | exceptions.BusyLoadingError
        | exceptions.AuthenticationError
        | exceptions.AuthorizationError
        | exceptions.MaxConnectionsError
        | MasterNotFoundError
        | exceptions.RedisClusterException,
    )


def is_demoted(error: BaseException) -> bool:
    """Whether what was a master is a replica now. The driver says so in its own way where sentinels are used."""
    return code_of(error) == "READONLY" or (
        isinstance(error, exceptions.ConnectionError)
        and error.__context__ is not None
        and code_of(error.__context__) == "READONLY"
    )


def meaning(error: BaseException) -> str:
    """What happened, in words that show neither hosts nor credentials nor anything that is kept."""
    for found in _chain(error):
        if code := code_of(found):
            return _WORDS[code]
        if isinstance(found, ssl.SSLError):
            return f"TLS fails ({found.reason or 'no reason given'})"
        if isinstance(found, exceptions.AuthenticationError | exceptions.AuthorizationError):
            return _WORDS["WRONGPASS"]
        if isinstance(found, MasterNotFoundError):
            return "no sentinel names a master for the service"
        if isinstance(found, exceptions.TimeoutError):
            return "it does not answer in time"
        if isinstance(found, ConnectionRefusedError):
            return "the connection is refused"
    if isinstance(error, NotConnectedError | exceptions.RedisClusterException):
        return "it cannot be reached"
    return (
        "the connection broke"
        if isinstance(error, exceptions.ConnectionError | OSError)
        else "it does not do what it should"
    )


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
