"""A Store that is timed, and whose health is known: `sidecall_store_up` follows every operation.

`watch` asks a store that nobody uses whether it is there. Changes nothing of what the store does or raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from proxy.errors import StoreError
from proxy.metrics import Metrics
from proxy.stores.base import Store, Stored, Write

T = TypeVar("T")
PING_SECONDS = 1.0


class MeasuredStore:
    """`timer` gives seconds of a clock that only goes forward."""

    def __init__(self, store: Store, metrics: Metrics, *, timer: Callable[[], float]) -> None:
        self._store = store
        self._metrics = metrics
        self._timer = timer
        self._evicted = 0

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        began = self._timer()
        try:
            result = await work
        except StoreError:
            self._metrics.store_up(False)
            raise
        else:
            self._metrics.store_up(True)
            return result
        finally:
            self._metrics.store_operation(self._timer() - began, operation=operation)

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        return await self._timed("load", self._store.load(keys))

    async def save(self, writes: Sequence[Write]) -> bool:
        saved = await self._timed("save", self._store.save(writes))
        evicted: int = getattr(self._store, "evictions", 0)  # a bounded store counts them
        if evicted > self._evicted:
            self._metrics.store_eviction(evicted - self._evicted)
            self._evicted = evicted
        written = (len(write.value) for write in writes if write.value is not None)
        self._metrics.store_bytes(getattr(self._store, "held_bytes", 0), written=written)
        return saved

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        await self._timed("touch", self._store.touch(keys, ttl))

    async def count(self, key: str, limit: int, window: float) -> bool:
        return await self._timed("count", self._store.count(key, limit, window))

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        return await self._timed("scan", self._store.scan(prefix, most))

    async def ping(self) -> None:
        await self._timed("ping", self._store.ping())

    async def is_empty(self) -> bool:
        return await self._timed("is_empty", self._store.is_empty())

    async def close(self) -> None:
        await self._store.close()

    async def watch(self, is_used: Callable[[], bool]) -> None:
        """Ask the store once a second, until cancelled. One that nothing uses yet is not made for that."""
        while True:
            with suppress(StoreError):  # store_up says so
                await (self.ping() if is_used() else self.is_empty())
            await asyncio.sleep(PING_SECONDS)
