"""A store in one SQLite file, for one process or several on one machine.

One worker thread owns the one connection; the event loop never waits for the disk. Writers take the lock before
they look (BEGIN IMMEDIATE), so that a condition still holds when the write is done, also across processes. The
file is opened by the first operation that needs it: reading a file that is not there finds nothing and makes none;
`save`, `count` and `ping` make it, once. After that, missing tables or a missing file are an error until they
are back: an empty database in their place would forget batches whose turns clients have seen.

Durability: in WAL mode `synchronous=NORMAL` outlives a killed process but may lose the last commits when power
fails; `FULL` waits for the disk at every commit and loses nothing. `save` is FULL: a lost record of a run would
let the run happen twice. Longer lives, counted events and the removal of what has expired are NORMAL.

This module must not know what its values mean.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from proxy.errors import StoreError
from proxy.stores import schema
from proxy.stores.base import Stored, Write
from proxy.stores.moments import SECOND, deadline, micros

T = TypeVar("T")

_KEYS_A_QUERY = 500
_SWEEP_EVERY = 30 * SECOND
_SWEEP_ROWS = 500
_SWEEP_PAGES = 200


def default_path(environ: Mapping[str, str]) -> Path:
    """Where `sqlite:` alone keeps its file: in the user's state folder. Raises StoreError for a user without one."""
    folder = Path(environ.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():  # the XDG rules: a relative path is to be ignored
        try:
            folder = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise StoreError("There is no home folder for the state: expected sqlite:PATH as state URL.") from error
    return folder / "sidecall" / "state.db"


class SqliteStore:
    """`make_folder`: make the file's folder when the file is first needed."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        make_folder: bool = False,
        busy_timeout: float = 5.0,
    ) -> None:
        self.evictions = 0
        self._path = path
        self._clock = clock
        self._make_folder = make_folder
        self._busy_timeout = busy_timeout
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sidecall-state")
        self._closed = False
        # What follows is touched by the worker thread alone.
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the file that was opened
        self._opened_once = False
        self._next_sweep = 0

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        return await self._run(lambda: self._load(keys)) if keys else {}

    async def save(self, writes: Sequence[Write]) -> bool:
        return await self._run(lambda: self._save(writes)) if writes else True

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        if keys:
            await self._run(lambda: self._touch(keys, ttl))

    async def count(self, key: str, limit: int, window: float) -> bool:
        return await self._run(lambda: self._count(key, limit, window))

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        return await self._run(lambda: self._scan(prefix, most))

    async def ping(self) -> None:
        """Makes the file and its tables when there is none yet."""
        await self._run(self._ping)

    async def is_empty(self) -> bool:
        return await self._run(self._is_empty)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._disconnect)
        finally:
            self._worker.shutdown(wait=True)

    # ---------------------------------------------------------------- the worker thread

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._guarded, work)

    def _guarded(self, work: Callable[[], T]) -> T:
        """The work, its errors as StoreError. After an error the next operation opens the file anew."""
        try:
            return work()
        except StoreError:
            self._disconnect()
            raise
        except (sqlite3.Error, OverflowError) as error:
            self._disconnect()
            raise StoreError(f"The state database cannot be used: {error}.") from error
        except OSError as error:  # its own text would show the path
            self._disconnect()
            raise StoreError(f"The state database cannot be used: {error.strerror}.") from error

    def _now(self) -> int:
        return micros(self._clock())

    def _open(self) -> sqlite3.Connection:
        """The connection, for an operation that needs the file."""
        if self._connection is None:
            if not self._opened_once:
                if self._make_folder:
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                schema.make_file(self._path)
            self._connection = schema.connect(self._path, self._busy_timeout, may_make_tables=not self._opened_once)
            self._file = _identity(self._path)
            self._opened_once = True
        elif _identity(self._path) != self._file:  # what is written there now would be gone with the process
            raise StoreError("The state database was removed or replaced while it was open.")
        return self._connection

    def _open_existing(self) -> sqlite3.Connection | None:
        """The connection, or None where nothing has ever been written."""
        if self._connection is None and not self._opened_once and not self._path.exists():
            return None
        return self._open()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()  # rolls back

    @contextmanager
    def _writing(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """A transaction that has the write lock from its beginning."""
        connection = self._open()
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        with _transaction(connection, "BEGIN IMMEDIATE"):
            yield connection

    # ---------------------------------------------------------------- operations

    def _load(self, keys: Sequence[str]) -> dict[str, Stored]:
        connection = self._open_existing()
        if connection is None:
            return {}
        with _transaction(connection, "BEGIN"):
            return _rows(connection, keys, self._now())

    def _save(self, writes: Sequence[Write]) -> bool:
        with self._writing(durable=True) as connection:
            now = self._now()
            seen = {key: row.version for key, row in _rows(connection, [w.key for w in writes], now).items()}
            if any(w.version is not None and w.version != seen.get(w.key, 0) for w in writes):
                return False
            for write in writes:
                if write.value is None:
                    connection.execute("DELETE FROM entries WHERE key = ?", (_bytes(write.key),))
                    seen.pop(write.key, None)
                else:
                    seen[write.key] = seen.get(write.key, 0) + 1
                    connection.execute(
                        "REPLACE INTO entries (key, value, version, expires) VALUES (?, ?, ?, ?)",
                        (_bytes(write.key), write.value, seen[write.key], deadline(now, write.ttl)),
                    )
        self._sweep_when_due()
        return True

    def _touch(self, keys: Sequence[str], ttl: float) -> None:
        if self._open_existing() is None:
            return
        with self._writing(durable=False) as connection:
            now = self._now()
            expires = deadline(now, ttl)
            connection.executemany(
                "UPDATE entries SET expires = ? WHERE key = ? AND expires > ? AND expires < ?",
                ((expires, _bytes(key), now, expires) for key in keys),
            )

    def _count(self, key: str, limit: int, window: float) -> bool:
        with self._writing(durable=False) as connection:
            now = self._now()
            (counted,) = connection.execute(
                "SELECT count(*) FROM events WHERE key = ? AND at > ?", (_bytes(key), now - micros(window))
            ).fetchone()
            if counted >= limit:
                return False
            connection.execute(
                "INSERT INTO events (key, at, expires) VALUES (?, ?, ?)", (_bytes(key), now, deadline(now, window))
            )
        self._sweep_when_due()
        return True

    def _scan(self, prefix: str, most: int) -> list[str]:
        connection = self._open_existing()
        if connection is None:
            return []
        start = _bytes(prefix)
        # No byte of UTF-8 is 0xFF: all keys with the prefix lie below it and one such byte.
        rows = connection.execute(
            "SELECT key FROM entries WHERE key >= ? AND key < ? AND expires > ? ORDER BY key LIMIT ?",
            (start, start + b"\xff", self._now(), most),
        )
        return [_text(key) for (key,) in rows]

    def _is_empty(self) -> bool:
        connection = self._open_existing()
        if connection is None:
            return True
        found = connection.execute(
            "SELECT 1 FROM entries WHERE (key < ? OR key >= ?) AND expires > ? LIMIT 1",
            (b"meta:", b"meta:\xff", self._now()),
        )
        return found.fetchone() is None

    def _ping(self) -> None:
        connection = self._open()
        for table in schema.TABLES:
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608 - the name is a constant
        self._sweep_when_due()

    # ---------------------------------------------------------------- what has expired

    def _sweep_when_due(self) -> None:
        """Have the worker remove expired rows when it has nothing older to do."""
        if self._now() >= self._next_sweep and not self._closed:
            self._next_sweep = self._now() + _SWEEP_EVERY
            self._worker.submit(self._sweep)

    def _sweep(self) -> None:
        """One small step, and another behind it when there is more, so that no operation waits for long."""
        if self._closed or self._connection is None:
            return
        try:
            with self._writing(durable=False) as connection:
                removed = [
                    connection.execute(
                        f"DELETE FROM {table} WHERE rowid IN"  # noqa: S608 - the name is a constant
                        f" (SELECT rowid FROM {table} WHERE expires <= ? LIMIT {_SWEEP_ROWS})",
                        (self._now(),),
                    ).rowcount
                    for table in schema.TABLES
                ]
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages >= _SWEEP_PAGES:  # fewer will soon be used again
                # `execute` would stop at the first page, since this statement gives rows without columns.
                connection.executescript(f"PRAGMA incremental_vacuum({_SWEEP_PAGES})")
        except (sqlite3.Error, OSError, StoreError):
            self._disconnect()  # whoever needs the store next is told
            return
        if (max(removed) == _SWEEP_ROWS or free_pages >= _SWEEP_PAGES) and not self._closed:
            self._worker.submit(self._sweep)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _rows(connection: sqlite3.Connection, keys: Sequence[str], now: int) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    rest = iter(dict.fromkeys(keys))
    while some := [_bytes(key) for key in islice(rest, _KEYS_A_QUERY)]:
        marks = ",".join("?" * len(some))
        rows = connection.execute(
            f"SELECT key, value, version FROM entries WHERE key IN ({marks}) AND expires > ?",  # noqa: S608 - marks
            (*some, now),
        )
        found.update((_text(key), Stored(value, version)) for key, value, version in rows)
    return found


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
