"""A store in Redis or Valkey, for any number of processes on any number of machines.

Each operation is one script, so that it is atomic; nobody locks. All values and the index share one hash tag, so that a
cluster keeps them in one slot: a save may name any keys, and must be all or nothing. A cluster thus adds failover and
no room, save for counted events, which need no tag. Moments come from Redis' own clock, which all replicas of the proxy
share; a clock that is given (tests move one) takes its place.

**What is repeated.** A reply that is an error means that nothing was done: a StoreError, and at once. So does a server
that cannot be reached, or has become a replica; since another may be in its place by now, that is tried once more, on a
new connection. When a connection breaks behind what was sent, the outcome is open:

- what reads, and `touch`, are asked again, once: twice is as good as once;
- a save whose writes all have versions is asked again, once. Each save has a random token that lies in what it wrote:
  where that is found, the first try was applied, and the answer is yes. Where the versions fit, it was not, and the
  second is (should the first arrive late, its versions fit no more). Otherwise another writer was faster, or wrote over
  ours: StoreError;
- a save of which a write has no version is only looked for by its token: repeated, it could take back what another
  has written on top of it meanwhile;
- `count` is not asked again: an event would be counted twice.

When time runs out the outcome is open as well, and nothing is asked again: the time is spent. Whoever gets a StoreError
from a save reads again before it acts.

This module must not know what its values mean.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import TimeoutError as ReplyTimeoutError

from proxy.errors import StoreError
from proxy.stores import redis_scripts as scripts
from proxy.stores.base import Stored, Write
from proxy.stores.moments import micros
from proxy.stores.redis_address import RedisAddress, Trust
from proxy.stores.redis_client import open_client
from proxy.stores.redis_errors import FAILURES, did_nothing, is_elsewhere, meaning
from proxy.stores.redis_node import CONNECTIONS
from proxy.stores.redis_scripts import Script

PREFIX = "sidecall"
_GLOB = re.compile(rb"[*?\[\]\\]")


class RedisStore:
    """`patience`: the seconds that an operation may take, waiting for a connection and a second try included; a
    connection attempt and a reply may take half of them."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        trust: Trust | None = None,
        clock: Callable[[], float] | None = None,
        prefix: str = PREFIX,
        patience: float = 5.0,
    ) -> None:
        self._client = open_client(address, trust or Trust(), seconds=patience / 2)
        self._clock = clock
        self._patience = patience
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._index = b"{%s}:index" % prefix.encode()
        self._values = b"{%s}:v:" % prefix.encode()
        self._counts = b"%s:c:" % prefix.encode()
        self._closed = False

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        names = list(dict.fromkeys(keys))
        if not names:
            return {}
        found = await self._read(scripts.LOAD, [self._value(name) for name in names], [self._now()])
        return {name: scripts.read_record(raw) for name, raw in zip(names, found, strict=True) if raw is not None}

    async def save(self, writes: Sequence[Write]) -> bool:
        if not writes:
            return True
        keys = [self._index, *(self._value(write.key) for write in writes)]
        token = secrets.token_hex(scripts.TOKEN_CHARS // 2)
        tail = [part for write in writes for part in _write(write)]
        then = scripts.LOOK if any(write.version is None for write in writes) else scripts.AGAIN
        said = await self._run(
            scripts.SAVE,
            keys,
            [self._now(), token, scripts.FIRST, *tail],
            then=[self._now(), token, then, *tail],
        )
        if said == scripts.UNSURE:
            raise StoreError("The state store cannot be used: the connection broke while it was written to.")
        return bool(said == scripts.APPLIED)

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        names = list(dict.fromkeys(keys))
        if names:
            known = [self._index, *(self._value(name) for name in names)]
            await self._read(scripts.TOUCH, known, [self._now(), _span(ttl), *map(_bytes, names)])

    async def count(self, key: str, limit: int, window: float) -> bool:
        arguments = [self._now(), str(limit), _span(window)]
        return bool(await self._run(scripts.COUNT, [self._counts + _bytes(key)], arguments, then=None))

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        """Walks the index, page by page, and holds no more than `most` names and a page."""
        glob = _GLOB.sub(rb"\\\g<0>", _bytes(prefix)) + b"*"
        first: list[bytes] = []
        cursor: bytes | str = "0"
        async with self._in_time():
            while True:
                cursor, *names = await self._read(scripts.PAGE, [self._index], [self._now(), cursor, glob])
                first = heapq.nsmallest(most, {*first, *names})
                if cursor == b"0":
                    break
            there = await self._read(scripts.THERE, [self._values + name for name in first], []) if first else []
        return [_text(name) for name, is_there in zip(first, there, strict=True) if is_there]

    async def ping(self) -> None:
        await self.is_empty()

    async def is_empty(self) -> bool:
        return bool(await self._read(scripts.EMPTY, [self._index], [self._now()]))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(self._patience):
                await self._client.close()
        except (*FAILURES, TimeoutError):  # what is left of the connections goes with the process
            return

    # ---------------------------------------------------------------- asking

    def _now(self) -> str:
        return "" if self._clock is None else str(micros(self._clock()))

    def _value(self, name: str) -> bytes:
        return self._values + _bytes(name)

    async def _read(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> Any:
        return await self._run(script, keys, arguments, then=arguments)

    async def _run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes | str],
        *,
        then: Sequence[bytes | str] | None,
    ) -> Any:
        """`then`: the arguments to ask with when it is open whether Redis did what it was asked."""
        if self._closed:
            raise StoreError("The store is closed.")
        try:
            async with self._in_time(), self._turns:
                return await self._try(script, keys, arguments, then=then)
        except FAILURES as error:
            raise StoreError(f"The state store cannot be used: {meaning(error)}.") from error

    async def _try(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes | str],
        *,
        then: Sequence[bytes | str] | None,
    ) -> Any:
        try:
            return await self._client.run(script, keys, arguments)
        except FAILURES as error:
            if is_elsewhere(error):
                then = arguments
            elif did_nothing(error) or then is None or isinstance(error, ReplyTimeoutError):
                raise
        return await self._client.run(script, keys, then)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError as error:
            raise StoreError("The state store cannot be used: it does not answer in time.") from error


def _write(write: Write) -> tuple[bytes | str, ...]:
    """What the script is told of a write: name, version, span, content."""
    version = "" if write.version is None else str(write.version)
    if write.value is None:
        return _bytes(write.key), version, "", b""
    return _bytes(write.key), version, _span(write.ttl), write.value


def _span(seconds: float) -> str:
    """A span of life in microseconds, short enough for moments to stay exact."""
    return str(micros(min(max(seconds, 0.0), scripts.LONGEST / 1e6)))


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
