"""One Redis server: a bounded pool of connections to it, and a script or a command on one of them.

Rules: the driver repeats nothing by itself, since it cannot know what may be repeated. A connection that Redis has
closed while it was idle is replaced before anything is sent on it; one that cannot be made is told apart from one that
broke on the way (`NotConnectedError`); one whose server says that it cannot serve just now is given up, so that the
next is made anew, by name. With `caFile` its authorities alone are trusted. This module must not know any operation.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from redis import exceptions
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.errors import StoreError
from proxy.stores.redis_address import RedisAddress, Trust
from proxy.stores.redis_errors import FAILURES, GIVEN_UP, NotConnectedError, code_of
from proxy.stores.redis_scripts import Script

CONNECTIONS = 32
"""The most connections of one process to one server."""

Place = tuple[str, int]
"""Host and port."""


class _TlsConnection(SSLConnection):
    """One context for all connections, and not the driver's, which trusts the system's authorities too."""

    def __init__(self, *, context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ssl_context.context = context


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """How connections are made, and as whom. `seconds` bound an attempt to connect, and the wait for a reply."""

    seconds: float
    user: str | None = None
    password: str | None = None
    db: int = 0
    context: ssl.SSLContext | None = None

    def to_sentinels(self) -> Access:
        """Sentinels get the same password, as the user `default`: one that has no password takes any. They are asked
        one after the other, so none may take long."""
        return replace(self, user="default" if self.password else None, db=0, seconds=min(self.seconds, 1.0))


def access_of(address: RedisAddress, trust: Trust, *, seconds: float) -> Access:
    """Raises StoreError for files that cannot be used."""
    context = _context(trust) if address.tls else None
    return Access(seconds, address.user, address.password, address.db, context)


def _context(trust: Trust) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=trust.ca_file)
        if trust.cert_file is not None:
            context.load_cert_chain(trust.cert_file, trust.key_file)
    except OSError as error:
        raise StoreError(f"A certificate or key of the state cannot be read: {error.strerror or 'no PEM'}.") from error
    return context


class Node:
    """Nothing is connected before something is asked. `busy` is how many are asking."""

    def __init__(self, place: Place, access: Access) -> None:
        self.place = place
        self.busy = 0
        tls: dict[str, Any] = {} if access.context is None else {"context": access.context}
        self._pool = ConnectionPool(
            Connection if access.context is None else _TlsConnection,
            CONNECTIONS,
            host=place[0],
            port=place[1],
            db=access.db,
            username=access.user,
            password=access.password,
            socket_timeout=access.seconds,
            socket_connect_timeout=access.seconds,
            socket_keepalive=True,
            protocol=2,
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
            **tls,
        )

    async def run(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str], *, asking: bool = False
    ) -> Any:
        """What a script says. One that Redis does not know (any more) is sent whole. `asking`: a cluster's node is to
        answer for a slot that is on its way to it. Raises the driver's errors."""
        given = (len(keys), *keys, *arguments)
        async with self._connection() as connection:
            try:
                return await _reply(connection, "EVALSHA", script.sha, *given, asking=asking)
            except exceptions.NoScriptError:
                return await _reply(connection, "EVAL", script.text, *given, asking=asking)

    async def ask(self, *words: str) -> Any:
        """The reply to a command. Raises the driver's errors."""
        async with self._connection() as connection:
            return await _reply(connection, *words)

    async def close(self) -> None:
        await self._pool.disconnect()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AbstractConnection]:
        self.busy += 1
        try:
            try:
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call] # the driver's types have gaps
            except FAILURES as error:
                raise NotConnectedError("There is no connection.") from error
            try:
                yield connection
            except exceptions.ResponseError as error:
                if code_of(error) in GIVEN_UP:
                    await connection.disconnect(nowait=True)
                raise
            finally:
                await self._pool.release(connection)
        finally:
            self.busy -= 1


async def _reply(connection: AbstractConnection, *words: Any, asking: bool = False) -> Any:
    if asking:
        await connection.send_command("ASKING")
        await connection.read_response()
    await connection.send_command(*words)
    return await connection.read_response()
