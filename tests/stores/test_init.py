"""Which store a state URL opens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores import open_store
from proxy.stores.base import Write
from proxy.stores.memory import MemoryStore
from proxy.stores.sealed import SealedStore
from tests.stores.contract import Clock


async def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`memory:` is a store in memory, on the given clock."""
    monkeypatch.chdir(tmp_path)
    clock = Clock()
    store = await open_store("memory:", keys=[], clock=clock)
    assert isinstance(store, MemoryStore)
    await store.save([Write("a", b"1", 5)])
    clock.move(5)
    assert await store.is_empty()
    assert list(tmp_path.iterdir()) == []


async def test_sqlite_takes_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite:PATH` is a file, which opening alone does not make."""
    monkeypatch.chdir(tmp_path)
    for url, path in (("sqlite:a.db", tmp_path / "a.db"), (f"sqlite:{tmp_path}/b.db", tmp_path / "b.db")):
        store = await open_store(url, keys=[])
        assert not path.exists()
        await store.ping()
        assert path.exists()
        await store.close()


async def test_sqlite_alone_is_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite:` makes its folder when it is first needed."""
    monkeypatch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path / "state"))
    store = await open_store("sqlite:", keys=[])
    assert await store.is_empty()
    assert not (tmp_path / "state").exists()
    await store.ping()
    assert (tmp_path / "state" / "sidecall" / "state.db").exists()
    await store.close()


async def test_keys_seal_the_store() -> None:
    """With encryption keys, what opens is sealed."""
    assert isinstance(await open_store("memory:", keys=[b"secret"]), SealedStore)


@pytest.mark.parametrize("url", ["", "sqlite", "postgres://u:pass-4711@h/d", "memory:x"])
async def test_another_url_is_refused_without_being_shown(url: str) -> None:
    """A URL that names no store is an error that says what was expected and shows no password."""
    with pytest.raises(StoreError, match="expected memory:, sqlite:, sqlite:PATH or redis") as caught:
        await open_store(url, keys=[])
    assert "4711" not in str(caught.value)
