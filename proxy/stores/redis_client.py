"""The way to Redis: one server, the master that sentinels name, or a cluster; one client for all three.

Rules: the driver repeats nothing by itself, since it cannot know what may be repeated. A connection that Redis has
closed while it was idle is replaced before anything is sent on it; one that cannot be made is told apart from one that
broke on the way (`NotConnectedError`); one to a master that has become a replica is given up. With `caFile` its
authorities alone are trusted. This module must not know any operation.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff

from proxy.errors import StoreError
from proxy.stores.redis_address import RedisAddress, Topology, Trust
from proxy.stores.redis_errors import NotConnectedError, code_of, is_demoted
from proxy.stores.redis_scripts import Script

CONNECTIONS = 32
"""The most connections of one process (of a cluster: to each node)."""


class _Link(AbstractConnection):
    """A connection, with the rules above. Must stand in front of the driver's class among the bases."""

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        if self.is_connected:
            return
        try:
            await super().connect_check_health(check_health=check_health, retry_socket_connect=False)
        except (exceptions.RedisError, OSError) as error:
            raise NotConnectedError("There is no connection.") from error

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)
        except exceptions.RedisError as error:
            if is_demoted(error) or code_of(error) in ("MASTERDOWN", "LOADING"):
                await self.disconnect(nowait=True)
            raise


class _TlsLink(_Link):
    """One context for all connections, and not the driver's, which trusts the system's authorities too."""

    def __init__(self, *, context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        assert isinstance(self, SSLConnection)
        self.ssl_context.context = context


class _ClusterLink(_Link):
    """The pools of a cluster's nodes do not look at a connection before they use it."""

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self.is_connected and await self._is_stale():
            await self.disconnect(nowait=True)
        await super().send_packed_command(command, check_health=check_health)

    async def _is_stale(self) -> bool:
        try:
            return await self.can_read()
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            return True


class _Plain(_Link, Connection): ...


class _Tls(_TlsLink, SSLConnection): ...


class _Master(_Link, SentinelManagedConnection): ...


class _TlsMaster(_TlsLink, SentinelManagedSSLConnection): ...


class _Node(_ClusterLink, Connection): ...


class _TlsNode(_ClusterLink, _TlsLink, SSLConnection): ...


class RedisClient:
    """Nothing is connected before the first script. `seconds` bound a connection attempt and the wait for a reply."""

    def __init__(self, address: RedisAddress, trust: Trust, *, seconds: float) -> None:
        self._links: dict[str, Any] = {
            "username": address.user,
            "password": address.password,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "socket_keepalive": True,
            "protocol": 2,
            "driver_info": None,
        }
        if address.tls:
            self._links["context"] = _context(trust)
        self._sentinel: Sentinel | None = None
        self._client: Redis | RedisCluster
        match address.topology:
            case Topology.SINGLE:
                (host, port), *_ = address.hosts
                link = _Tls if address.tls else _Plain
                pool = ConnectionPool(link, CONNECTIONS, host=host, port=port, db=address.db, **self._once())
                self._client = Redis(connection_pool=pool)
            case Topology.SENTINEL:
                self._sentinel, self._client = self._master(address)
            case Topology.CLUSTER:
                self._client = self._cluster(address)

    def _once(self) -> dict[str, Any]:
        return {**self._links, "retry": Retry(NoBackoff(), 0)}

    def _master(self, address: RedisAddress) -> tuple[Sentinel, Redis]:
        """Sentinels are asked with the same password, as the user `default`: a sentinel without one takes any."""
        asking = {**self._once(), "username": "default" if address.password else None}
        sentinel = Sentinel([])  # type: ignore[no-untyped-call] # the driver's types are not complete here
        for host, port in address.hosts:
            pool = ConnectionPool(_Tls if address.tls else _Plain, CONNECTIONS, host=host, port=port, **asking)
            sentinel.sentinels.append(Redis(connection_pool=pool))
        pool = SentinelConnectionPool(  # type: ignore[no-untyped-call] # as above
            address.service,
            sentinel,
            connection_class=_TlsMaster if address.tls else _Master,
            max_connections=CONNECTIONS,
            db=address.db,
            **self._once(),
        )
        return sentinel, Redis(connection_pool=pool)

    def _cluster(self, address: RedisAddress) -> RedisCluster:
        """The driver would take its own class of connections, so ours is put in its place in what it makes them of."""
        client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            max_connections=CONNECTIONS,
            require_full_coverage=False,
            retry=Retry(NoBackoff(), 0),
            **{name: value for name, value in self._links.items() if name != "context"},
        )
        link = _TlsNode if address.tls else _Node
        client.connection_kwargs["connection_class"] = link
        for node in client.startup_nodes:
            node.connection_class = link
        if "context" in self._links:
            for kwargs in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
                kwargs["context"] = self._links["context"]
        return client

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> Any:
        """What a script says. One that Redis does not know (any more) is sent whole. Raises the driver's errors."""
        given = (len(keys), *keys, *arguments)
        try:
            return await self._client.execute_command("EVALSHA", script.sha, *given)
        except exceptions.NoScriptError:
            return await self._client.execute_command("EVAL", script.text, *given)

    async def close(self) -> None:
        if isinstance(self._client, RedisCluster):  # its own `aclose` leaves connections open after an error
            await self._client.nodes_manager.aclose()
            await self._client.nodes_manager.aclose("startup_nodes")
            return
        await self._client.connection_pool.disconnect()
        for sentinel in self._sentinel.sentinels if self._sentinel is not None else ():
            await sentinel.connection_pool.disconnect()


def _context(trust: Trust) -> ssl.SSLContext:
    """Raises StoreError for files that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=trust.ca_file)
        if trust.cert_file is not None:
            context.load_cert_chain(trust.cert_file, trust.key_file)
    except OSError as error:
        raise StoreError(f"A certificate or key of the state cannot be read: {error.strerror or 'no PEM'}.") from error
    return context
