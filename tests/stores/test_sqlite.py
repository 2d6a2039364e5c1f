"""The SQLite store: the contract, the file, several processes, and a database that fails and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write
from proxy.stores.sqlite import SqliteStore, default_path
from tests.stores.contract import Clock, StoreContract


class TestSqliteStore(StoreContract):
    def open(self, folder: Path, clock: Clock) -> Store:
        return SqliteStore(folder / "state.db", clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=Clock(), busy_timeout=0.05)
    yield store
    await store.close()


OPERATIONS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "load": lambda store: store.load(["a"]),
    "save": lambda store: store.save([Write("a", b"2", 60)]),
    "touch": lambda store: store.touch(["a"], 60),
    "count": lambda store: store.count("c", 9, 60),
    "scan": lambda store: store.scan(""),
    "ping": lambda store: store.ping(),
    "is_empty": lambda store: store.is_empty(),
}


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


@contextmanager
def taken_away(path: Path) -> Iterator[None]:
    """The tables of the database have other names for a while."""

    def rename(names: dict[str, str]) -> None:
        with closing(sqlite3.connect(path, timeout=5)) as database:
            for old, new in names.items():
                database.execute(f"ALTER TABLE {old} RENAME TO {new}")
            database.commit()

    names = {name: f"gone_{name}" for name in tables(path)}
    rename(names)
    try:
        yield
    finally:
        rename({new: old for old, new in names.items()})


# ---------------------------------------------------------------- the file


async def test_looking_makes_no_file(store: SqliteStore, tmp_path: Path) -> None:
    """While nothing was written, reading finds nothing and leaves nothing behind."""
    assert await store.load(["a"]) == {}
    assert await store.scan("") == []
    assert await store.is_empty()
    await store.touch(["a"], 60)
    await store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["save", "count", "ping"])
async def test_the_first_use_makes_a_file_for_its_owner_alone(name: str, store: SqliteStore, tmp_path: Path) -> None:
    """The file and those beside it are made by the first operation that needs them, with mode 0600."""
    before = os.umask(0)
    try:
        await OPERATIONS[name](store)
        await store.save([Write("a", b"1", 60)])
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("state.db", "state.db-shm", "state.db-wal"), 0o600)


async def test_the_folder_is_made_only_where_asked(tmp_path: Path) -> None:
    """The default path's folder is made when first needed; a folder that somebody named must be there."""
    store = SqliteStore(tmp_path / "x" / "y" / "state.db", make_folder=True)
    assert await store.is_empty()
    assert list(tmp_path.iterdir()) == []
    await store.ping()
    assert stat.S_IMODE((tmp_path / "x" / "y").stat().st_mode) == 0o700
    await store.close()
    other = SqliteStore(tmp_path / "z" / "state.db")
    with pytest.raises(StoreError, match="No such file or directory") as caught:
        await other.ping()
    assert str(tmp_path) not in caught.value.message
    await other.close()


def test_the_default_path_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite:` alone lies in the user's state folder."""
    monkeypatch.setenv("HOME", "/home/x")
    assert default_path({"XDG_STATE_HOME": "/state"}) == Path("/state/sidecall/state.db")
    for environ in ({}, {"XDG_STATE_HOME": "relative"}, {"XDG_STATE_HOME": ""}):
        assert default_path(environ) == Path("/home/x/.local/state/sidecall/state.db")


async def test_values_outlive_the_store(path: Path) -> None:
    """What was saved is there for the next process, with its version."""
    for version in range(3):
        store = SqliteStore(path)
        assert await store.save([Write("a", b"%d" % version, 60, version)])
        await store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.db"]


async def test_paths_are_taken_literally(tmp_path: Path) -> None:
    """A path may hold what means something in a URI."""
    path = tmp_path / "a?b#c%20 d.db"
    store = SqliteStore(path)
    await store.ping()
    await store.close()
    assert path.exists()


async def test_a_file_of_a_newer_version_is_refused(path: Path, store: SqliteStore) -> None:
    """A version that this program does not know is named, and the file is left as it is."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
    for operation in OPERATIONS.values():
        with pytest.raises(StoreError, match="version 2, of a newer Sidecall: expected version 1"):
            await operation(store)
    assert tables(path) == []


async def test_the_file_of_another_program_is_refused(path: Path, store: SqliteStore) -> None:
    """No tables are made in a database that has others already, nor in what is no database."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (x)")
    with pytest.raises(StoreError, match="another program"):
        await store.ping()
    assert tables(path) == ["notes"]
    path.write_bytes(b"no database at all, but a text that is long enough to be looked at" * 9)
    with pytest.raises(StoreError, match="not a database"):
        await store.ping()


async def test_an_empty_file_gets_its_tables(path: Path, store: SqliteStore) -> None:
    """A file that somebody made and nobody used is used."""
    path.touch()
    assert await store.load(["a"]) == {}
    assert tables(path) == ["entries", "events"]


# ---------------------------------------------------------------- what fails, and comes back


async def test_missing_tables_are_an_error_until_they_are_back(path: Path, store: SqliteStore) -> None:
    """Without its tables every operation is a StoreError and makes no new ones; then all is as it was."""
    await store.save([Write("a", b"1", 60)])
    with taken_away(path):
        for _ in range(2):
            for operation in OPERATIONS.values():
                with pytest.raises(StoreError, match="no such table"):
                    await operation(store)
        assert tables(path) == ["gone_entries", "gone_events"]
    assert await store.load(["a"]) == {"a": Stored(b"1", 1)}
    for operation in OPERATIONS.values():
        await operation(store)


async def test_a_new_process_makes_no_tables_in_place_of_missing_ones(path: Path) -> None:
    """Who opens the file while its tables are away gets an error too, and finds them when they are back."""
    first = SqliteStore(path)
    await first.save([Write("a", b"1", 60)])
    await first.close()
    second = SqliteStore(path)
    with taken_away(path), pytest.raises(StoreError):
        await second.save([Write("a", b"2", 60)])
    assert await second.load(["a"]) == {"a": Stored(b"1", 1)}
    await second.close()


async def test_a_removed_file_is_noticed_and_not_made_again(path: Path, store: SqliteStore) -> None:
    """Whoever needs it is told; nothing is kept in an empty one in its place; the old one is welcome back."""
    await store.save([Write("a", b"1", 60)])
    kept = path.parent / "kept"
    with closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM INTO ?", (str(kept),))
    for file in path.parent.glob("state.db*"):
        file.unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.save([Write("b", b"2", 60)])
    for operation in OPERATIONS.values():
        with pytest.raises(StoreError, match="unable to open"):
            await operation(store)
    path.touch()
    with pytest.raises(StoreError, match="no tables any more"):
        await store.ping()
    kept.replace(path)
    assert await store.load(["a"]) == {"a": Stored(b"1", 1)}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_no_operation_uses_a_file_that_was_replaced(
    operation: Callable[[Store], Awaitable[object]], path: Path, store: SqliteStore, tmp_path: Path
) -> None:
    """What would be written to the old one is gone with the process; the new one is used from then on."""
    await store.save([Write("a", b"1", 60)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM INTO ?", (str(tmp_path / "kept"),))
    (tmp_path / "kept").replace(path)
    with pytest.raises(StoreError, match="removed or replaced"):
        await operation(store)


async def test_a_locked_database_is_an_error_for_writers_alone(path: Path, store: SqliteStore) -> None:
    """Who holds the lock too long stops writers, not readers, and only while he holds it."""
    await store.save([Write("a", b"1", 60)])
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.save([Write("a", b"2", 60)])
        assert await store.load(["a"]) == {"a": Stored(b"1", 1)}
        database.execute("ROLLBACK")
    assert await store.save([Write("a", b"2", 60)])


async def test_a_writer_waits_for_a_lock_that_is_soon_given_back(path: Path) -> None:
    """A short transaction of another process delays a write and does not fail it."""
    store = SqliteStore(path)
    await store.ping()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        saving = asyncio.ensure_future(store.save([Write("a", b"1", 60)]))
        done, _ = await asyncio.wait([saving], timeout=0.05)
        assert not done
        database.execute("ROLLBACK")
        assert await saving
    await store.close()


@pytest.mark.parametrize(
    "kind",
    [
        *("a folder", "below a file"),
        pytest.param("read-only", marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")),
    ],
)
async def test_a_file_that_cannot_be_written_is_a_clear_error(kind: str, path: Path) -> None:
    """It says why, and not where: the path may be nobody's business."""
    if kind == "read-only":
        first = SqliteStore(path)
        await first.save([Write("a", b"1", 60)])
        await first.close()
        path.chmod(0o400)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.write_text("")
        path = path / "state.db"
    store = SqliteStore(path)
    for name in ("save", "count", "ping"):
        with pytest.raises(StoreError, match=r"^The state database cannot be used: \w") as raised:
            await OPERATIONS[name](store)
        assert str(path) not in str(raised.value)
    await store.close()


async def test_a_save_that_fails_leaves_nothing_half(path: Path, store: SqliteStore) -> None:
    """A save that fails in its middle writes none of its values."""
    await store.ping()
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON entries WHEN NEW.key = CAST('c' AS BLOB)"
            " BEGIN SELECT RAISE(ABORT, 'no more room'); END"
        )
    with pytest.raises(StoreError, match="no more room"):
        await store.save([Write("a", b"1", 60), Write("c", b"1", 60), Write("d", b"1", 60)])
    assert await store.scan("") == []


async def test_the_worker_thread_ends_with_the_store(path: Path) -> None:
    """No thread is started before it is needed, and none is left behind."""

    def workers() -> int:
        return sum(thread.name.startswith("sidecall-state") for thread in threading.enumerate())

    store = SqliteStore(path)
    assert workers() == 0
    await store.ping()
    assert workers() == 1
    await store.close()
    assert workers() == 0


# ---------------------------------------------------------------- what has expired


async def test_expired_rows_are_removed_in_steps(path: Path) -> None:
    """Rows that nobody can load any more go from the file, and the file shrinks."""
    clock = Clock()
    store = SqliteStore(path, clock=clock)
    await store.save([Write(f"k{number}", b"x" * 2000, 10) for number in range(1200)])
    await store.count("c", 1, 10)
    await store.save([Write("stays", b"1", 1000)])
    clock.move(60)

    def rows() -> int:
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT (SELECT count(*) FROM entries) + (SELECT count(*) FROM events)")
            return int(found.fetchone()[0])

    assert rows() == 1202
    for _ in range(20):  # each ping waits behind a step at least
        await store.ping()
    assert rows() == 1
    assert await store.load(["stays"]) == {"stays": Stored(b"1", 1)}
    await store.close()
    assert path.stat().st_size < 1_200_000  # of 3 MB


# ---------------------------------------------------------------- several processes

WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.stores.sqlite import SqliteStore
from proxy.stores.base import Stored, Write

async def add(store):
    while True:
        seen = (await store.load(["n"])).get("n", Stored(b"0", 0))
        if await store.save([Write("n", b"%d" % (int(seen.value) + 1), 3600, seen.version)]):
            return int(seen.value) + 1

async def main(path, rounds):
    store = SqliteStore(Path(path))
    counted = 0
    for _ in range(rounds):
        counted += await store.count("c", 30, 3600)
        print(await add(store), flush=True)
    print("counted", counted, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def writer(path: Path, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(rounds)], stdout=subprocess.PIPE, text=True)


async def test_processes_share_one_file(path: Path) -> None:
    """Processes that make the file at once lose no update, and share the count of a limit."""
    processes = [writer(path, 20) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(int(number) for output in outputs for number in output[:20]) == list(range(1, 61))
    assert sum(int(output[-1]) for output in outputs) == 30
    store = SqliteStore(path)
    assert await store.load(["n"]) == {"n": Stored(b"60", 60)}
    await store.close()


async def test_what_a_killed_process_saved_is_there(path: Path) -> None:
    """After SIGKILL every save that returned is kept, the file is whole, and others go on at once."""
    process = writer(path, 1_000_000)
    assert process.stdout is not None
    for _ in range(20):
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.stdout.close()
    process.wait()
    store = SqliteStore(path)
    kept = (await store.load(["n"]))["n"]
    assert kept.version == int(kept.value) in (said, said + 1)
    assert await store.save([Write("n", b"next", 60, kept.version)])
    await store.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
