"""Making the tables of the SQLite store."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores import schema


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Making the file twice keeps what is in it."""
    path = tmp_path / "state.db"
    schema.make_file(path)
    path.write_bytes(b"kept")
    schema.make_file(path)
    assert path.read_bytes() == b"kept"


def test_many_make_the_tables_at_once(tmp_path: Path) -> None:
    """However many open a new file at the same moment, the tables are made once and all can work."""
    for attempt in range(5):
        path = tmp_path / f"state-{attempt}.db"
        barrier = threading.Barrier(6)

        def open_it(path: Path = path, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            schema.make_file(path)
            with closing(schema.connect(path, 10, may_make_tables=True)) as database:
                return str(database.execute("PRAGMA journal_mode").fetchone()[0])

        with ThreadPoolExecutor(6) as threads:
            assert [done.result() for done in [threads.submit(open_it) for _ in range(6)]] == ["wal"] * 6


def test_tables_are_not_made_where_they_must_be(tmp_path: Path) -> None:
    """Who may not make tables is told that they are missing."""
    path = tmp_path / "state.db"
    schema.make_file(path)
    with pytest.raises(StoreError, match="no tables any more"):
        schema.connect(path, 1, may_make_tables=False)


def test_a_lock_that_stays_is_an_error_in_the_end(tmp_path: Path) -> None:
    """Who cannot make the tables within the time gets SQLite's error."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL").fetchall()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            schema.connect(path, 0.05, may_make_tables=True)
