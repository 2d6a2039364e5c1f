"""The tables of the SQLite store: made once for a file that has none, and recognised by a version in the file.

The version counts up when the tables change. A file of a newer version, or of another program, is refused. This
module must not know what is kept, nor when.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from proxy.errors import StoreError

VERSION = 1
TABLES = ("entries", "events")
_STATEMENTS = (
    # Keys are UTF-8 bytes: compared and sorted as such, whatever they hold.
    "CREATE TABLE entries"
    " (key BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, expires INTEGER NOT NULL)",
    "CREATE INDEX entries_by_expiry ON entries (expires)",
    "CREATE TABLE events (key BLOB NOT NULL, at INTEGER NOT NULL, expires INTEGER NOT NULL)",
    "CREATE INDEX events_by_key ON events (key, at)",
    "CREATE INDEX events_by_expiry ON events (expires)",
    f"PRAGMA user_version = {VERSION}",
)
_WAL_BYTES = 16 * 1024 * 1024
_RETRY_AFTER = 0.02
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def make_file(path: Path) -> None:
    """Make the file, for its owner alone, unless it is there. SQLite gives its other files the same mode.

    A file that is there is not opened: closing it again would release the locks of this process's other
    connections to it (a rule of POSIX locks).
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return


def connect(path: Path, busy_timeout: float, *, may_make_tables: bool) -> sqlite3.Connection:
    """A connection to the file, which must be there, with our tables in it. Raises StoreError, sqlite3.Error."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, timeout=busy_timeout, isolation_level=None
    )
    try:
        deadline = time.monotonic() + busy_timeout
        while not _look(connection):
            if not may_make_tables:
                raise StoreError("The state database has no tables any more.")
            _try_to_make_tables(connection, deadline)
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _look(connection: sqlite3.Connection) -> bool:
    """`_has_tables` in a transaction: version and tables are then those of one moment."""
    connection.execute("BEGIN")
    try:
        return _has_tables(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _has_tables(connection: sqlite3.Connection) -> bool:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise StoreError(
            f"The state database has version {version}, of a newer Sidecall: expected version {VERSION} or older."
        )
    if version == VERSION:
        return True
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
        raise StoreError("The state database belongs to another program: expected a file of Sidecall's, or none.")
    return False


def _try_to_make_tables(connection: sqlite3.Connection, deadline: float) -> None:
    """Make the tables, unless another process is at it: then wait a little.

    SQLite does not wait by itself where two processes change the journal mode at once.
    """
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect on an empty file alone
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        if not _has_tables(connection):
            for statement in _STATEMENTS:
                connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() >= deadline:
            raise
        time.sleep(_RETRY_AFTER)
