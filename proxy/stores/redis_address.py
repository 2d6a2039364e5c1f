"""What a `redis` address says: where the servers are, how they belong together, and who asks them.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]                one server
    redis+sentinel://[…@]HOST[:PORT],…/SERVICE[/DB]         the master that sentinels name
    redis+cluster://[…@]HOST[:PORT],…                       a cluster, known by some of its nodes

`rediss` in the place of `redis` is TLS. User and password are percent-encoded where they hold `:`, `/`, `@` or `%`. No
message shows any part of an address, and no repr its credentials. This module must not need the Redis driver: the
configuration is checked with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import unquote

_ADDRESS = re.compile(r"(rediss?)(?:\+(sentinel|cluster))?://(?:([^@/]*)@)?([^@/?#]+)(?:/([^?#]*))?", re.ASCII)
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:,@\x00-\x20\x7f]{1,255}))(?::(\d{1,5}))?")
_DB = re.compile(r"\d{1,5}", re.ASCII)
_PORT, _SENTINEL_PORT = 6379, 26379


class Topology(StrEnum):
    """How servers belong together."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Trust:
    """The files of TLS: authorities to trust in place of the system's, a certificate to show and its key."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """`service` is what sentinels call the master; empty without sentinels."""

    topology: Topology
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    db: int = 0
    service: str = ""


def parse_redis_address(url: str) -> RedisAddress:
    """Raises ValueError, which does not show the address."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise ValueError("this is no Redis address")
    scheme, kind, credentials, hosts, path = found.groups()
    topology = Topology(kind or "single")
    parsed = tuple(_host(text, _SENTINEL_PORT if kind == "sentinel" else _PORT) for text in hosts.split(","))
    if topology is Topology.SINGLE and len(parsed) > 1:
        raise ValueError("several hosts need redis+sentinel or redis+cluster")
    service, db = _service_and_db(topology, path or "")
    user, password = _credentials(credentials)
    return RedisAddress(topology, parsed, scheme == "rediss", user, password, db, service)


def _host(text: str, default: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = int(found[3] or default) if found is not None else 0
    if found is None or not 0 < port <= 65535:
        raise ValueError("a host or a port cannot be read")
    return found[1] or found[2], port


def _credentials(text: str | None) -> tuple[str | None, str | None]:
    """User and password. An empty password is none: charts write `redis://:@host` when there is none to fill in."""
    user, _, password = (text or "").partition(":")
    if user and not password:
        raise ValueError("a user without a password")
    return _decoded(user) or None, _decoded(password) or None


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("what is percent-encoded is not UTF-8") from None


def _service_and_db(topology: Topology, path: str) -> tuple[str, int]:
    service, db = "", path
    if topology is Topology.SENTINEL:
        service, _, db = path.partition("/")
        if not service:
            raise ValueError("sentinels need the name of a service")
    if db and not _DB.fullmatch(db):
        raise ValueError("a database is a number")
    if topology is Topology.CLUSTER and int(db or 0) != 0:
        raise ValueError("a cluster has one database")
    return _decoded(service), int(db or 0)
