"""A store that fails when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

Fails = Callable[[str, Sequence[str]], bool]
"""Of an operation's name and its keys: whether it fails."""


class FailingStore:
    """`fails` may be changed at any time; `saved` are the keys that were written."""

    def __init__(self, store: Store, fails: Fails = lambda operation, keys: False) -> None:
        self.fails = fails
        self.saved: list[str] = []
        self._store = store

    def _check(self, operation: str, keys: Sequence[str] = ()) -> None:
        if self.fails(operation, keys):
            raise StoreError(f"{operation} fails, as the test says")

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        self._check("load", keys)
        return await self._store.load(keys)

    async def save(self, writes: Sequence[Write]) -> bool:
        self._check("save", [write.key for write in writes])
        done = await self._store.save(writes)
        self.saved += [write.key for write in writes] if done else []
        return done

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        self._check("touch", keys)
        await self._store.touch(keys, ttl)

    async def count(self, key: str, limit: int, window: float) -> bool:
        self._check("count", [key])
        return await self._store.count(key, limit, window)

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        self._check("scan")
        return await self._store.scan(prefix, most)

    async def ping(self) -> None:
        self._check("ping")
        await self._store.ping()

    async def is_empty(self) -> bool:
        self._check("is_empty")
        return await self._store.is_empty()

    async def close(self) -> None:
        await self._store.close()
