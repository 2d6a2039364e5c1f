"""The Store protocol: small, and it knows only bytes.

Keys are text without secrets; values are bytes with a version that counts up with each write. Writers do not
lock: they load, think, and save on the condition that the version is still the one that they saw. Times to
live are seconds. Every method raises StoreError when the store cannot be reached or used, and keeps nothing half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """A value and its version (1 for the first write of a key)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a `save`. `version` is what the writer saw: 0 for a key that must not be there, None for
    "whatever is there". `value` None deletes the key."""

    key: str
    value: bytes | None
    ttl: float
    version: int | None = None


class Store(Protocol):
    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        """The live values of these keys; keys that are not there or have expired are left out."""
        ...

    async def save(self, writes: Sequence[Write]) -> bool:
        """All writes or none: False, and nothing is written, when a version is not what its writer saw."""
        ...

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        """Let these keys live for `ttl` from now, where that is longer than they had; versions stay."""
        ...

    async def count(self, key: str, limit: int, window: float) -> bool:
        """Count one event under a key unless `limit` were counted within the last `window` seconds (a sliding
        window); whether it was counted."""
        ...

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        """Live keys that begin with a prefix, in order, `most` at the most."""
        ...

    async def ping(self) -> None:
        """Raises StoreError unless the store answers and can be read."""
        ...

    async def is_empty(self) -> bool:
        """Whether there is no live key but those that begin with `meta:`."""
        ...

    async def close(self) -> None: ...
