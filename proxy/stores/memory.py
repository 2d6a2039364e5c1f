"""A store in the memory of one process: fast, bounded, and gone with the process.

No method awaits, so each is atomic for the tasks of one event loop. Over `max_bytes`, what would expire soonest
is evicted; each eviction of something live is counted, since a batch that was split can then not be put back
together. This module must not know what its values mean.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.errors import StoreError
from proxy.stores.base import Stored, Write
from proxy.stores.moments import deadline, micros

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
_OVERHEAD = 300
"""What Python holds for one entry beside its key and value, roughly."""
_EVENT_BYTES = 40


@dataclass(slots=True)
class _Entry:
    """Something that is kept until a moment: a value, or the moments of counted events."""

    expires: int
    size: int
    stored: Stored = field(default_factory=lambda: Stored(b"", 0))
    events: deque[int] = field(default_factory=deque)


_Name = tuple[str, str]
"""What an entry is, `value` or `count`, and its key."""


class MemoryStore:
    """`evictions` counts the live entries that had to go to make room."""

    def __init__(self, *, clock: Callable[[], float] = time.time, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.evictions = 0
        self._clock = clock
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: dict[_Name, _Entry] = {}
        self._by_expiry: list[tuple[int, _Name]] = []
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """What it holds, of `max_bytes`."""
        return self._bytes

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        now = self._now()
        live = ((key, self._live("value", key, now)) for key in keys)
        return {key: entry.stored for key, entry in live if entry is not None}

    async def save(self, writes: Sequence[Write]) -> bool:
        now = self._now()
        if any(w.version is not None and w.version != self._version(w.key, now) for w in writes):
            return False
        names = {("value", write.key) for write in writes}
        final = {w.key: w for w in writes}
        if sum(_size(w.key, w.value) for w in final.values() if w.value is not None) > self._max_bytes:
            raise StoreError("The memory store has no room for so much at once.")
        for write in writes:
            self._write(write, now)
        self._make_room(now, names)
        return True

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        now = self._now()
        expires = deadline(now, ttl)
        for key in keys:
            entry = self._live("value", key, now)
            if entry is not None and entry.expires < expires:
                self._put(("value", key), _Entry(expires, entry.size, entry.stored))
        self._make_room(now, set())

    async def count(self, key: str, limit: int, window: float) -> bool:
        now = self._now()
        name = ("count", key)
        entry = self._entries.get(name)
        events = deque[int]() if entry is None else entry.events
        while events and events[0] <= now - micros(window):
            events.popleft()
        if len(events) >= limit:
            return False
        events.append(now)
        self._put(name, _Entry(deadline(now, window), _size(key, b"") + _EVENT_BYTES * len(events), events=events))
        self._make_room(now, {name})
        return True

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        now = self._now()
        found = (key for (kind, key), e in self._entries.items() if kind == "value" and e.expires > now)
        return heapq.nsmallest(most, (key for key in found if key.startswith(prefix)))

    async def ping(self) -> None:
        self._now()

    async def is_empty(self) -> bool:
        now = self._now()
        return not any(
            kind == "value" and entry.expires > now and not key.startswith("meta:")
            for (kind, key), entry in self._entries.items()
        )

    async def close(self) -> None:
        self._closed = True
        self._entries.clear()
        self._by_expiry.clear()
        self._bytes = 0

    def _now(self) -> int:
        if self._closed:
            raise StoreError("The store is closed.")
        return micros(self._clock())

    def _live(self, kind: str, key: str, now: int) -> _Entry | None:
        entry = self._entries.get((kind, key))
        return entry if entry is not None and entry.expires > now else None

    def _version(self, key: str, now: int) -> int:
        entry = self._live("value", key, now)
        return 0 if entry is None else entry.stored.version

    def _write(self, write: Write, now: int) -> None:
        name = ("value", write.key)
        if write.value is None:
            self._drop(name)
            return
        stored = Stored(write.value, self._version(write.key, now) + 1)
        self._put(name, _Entry(deadline(now, write.ttl), _size(write.key, write.value), stored))

    def _put(self, name: _Name, entry: _Entry) -> None:
        self._drop(name)
        self._entries[name] = entry
        self._bytes += entry.size
        heapq.heappush(self._by_expiry, (entry.expires, name))

    def _drop(self, name: _Name) -> None:
        old = self._entries.pop(name, None)
        if old is not None:
            self._bytes -= old.size

    def _make_room(self, now: int, written: set[_Name]) -> None:
        """Drop what has expired, then what expires soonest, but nothing of what was just written."""
        kept: list[tuple[int, _Name]] = []
        while self._by_expiry and (self._by_expiry[0][0] <= now or self._bytes > self._max_bytes):
            expires, name = heapq.heappop(self._by_expiry)
            entry = self._entries.get(name)
            if entry is None or entry.expires != expires:
                continue  # overwritten, touched or deleted since
            if expires > now and name in written:
                kept.append((expires, name))
                continue
            self._drop(name)
            self.evictions += expires > now
        for item in kept:
            heapq.heappush(self._by_expiry, item)
        if len(self._by_expiry) > 2 * len(self._entries) + 64:
            self._by_expiry = [(entry.expires, name) for name, entry in self._entries.items()]
            heapq.heapify(self._by_expiry)


def _size(key: str, value: bytes | None) -> int:
    return _OVERHEAD + 4 * len(key) + len(value or b"")
