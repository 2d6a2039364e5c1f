"""The sealed store: the contract around two back ends, and what lies at rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write
from proxy.stores.memory import MemoryStore
from proxy.stores.sealed import SealedStore
from proxy.stores.sqlite import SqliteStore
from tests.stores.contract import Clock, StoreContract


class TestSealedMemory(StoreContract):
    def open(self, folder: Path, clock: Clock) -> Store:
        return SealedStore(MemoryStore(clock=clock), [b"one", b"two"])

    def second(self, first: Store, folder: Path, clock: Clock) -> Store:
        return first


class TestSealedSqlite(StoreContract):
    def open(self, folder: Path, clock: Clock) -> Store:
        return SealedStore(SqliteStore(folder / "state.db", clock=clock), [b"one"])


@given(st.binary(max_size=64), st.binary(min_size=1, max_size=80), st.text(max_size=8))
async def test_only_the_secret_opens_a_value(value: bytes, secret: bytes, key: str) -> None:
    """A value opens with its secret under its key, and is not what lies in the store."""
    inner = MemoryStore(clock=Clock())
    await SealedStore(inner, [secret]).save([Write(key, value, 60)])
    assert await SealedStore(inner, [b"other" + secret, secret]).load([key]) == {key: Stored(value, 1)}
    assert (await inner.load([key]))[key].value != value
    with pytest.raises(StoreError, match="not among"):
        await SealedStore(inner, [b"other" + secret]).load([key])


async def test_nothing_readable_lies_in_the_file(tmp_path: Path) -> None:
    """Neither values (those of meta keys included), nor what is counted under, nor the secret is in the files."""
    store = SealedStore(SqliteStore(tmp_path / "state.db", clock=Clock()), [b"the-secret-4711"])
    await store.save([Write("a", b"value-4711", 60), Write("meta:tenant-key", b"meta-4711", 60)])
    await store.count("card=4711", 1, 60)
    at_rest = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    await store.close()
    assert b"meta:tenant-key" in at_rest
    assert b"4711" not in at_rest


async def test_the_first_secret_writes_and_all_read() -> None:
    """A new secret in front takes over; values of the old one stay readable while it is listed."""
    inner = MemoryStore(clock=Clock())
    await SealedStore(inner, [b"old"]).save([Write("a", b"1", 60)])
    both = SealedStore(inner, [b"new", b"old"])
    await both.save([Write("b", b"2", 60)])
    assert (await both.load(["a", "b"])).keys() == {"a", "b"}
    new = SealedStore(inner, [b"new"])
    assert await new.load(["b"]) == {"b": Stored(b"2", 1)}
    with pytest.raises(StoreError):
        await new.load(["a"])


async def test_a_value_that_was_moved_to_another_key_does_not_open() -> None:
    """The store's key is authenticated with the value."""
    inner = MemoryStore(clock=Clock())
    store = SealedStore(inner, [b"s"])
    await store.save([Write("a", b"1", 60)])
    await inner.save([Write("b", (await inner.load(["a"]))["a"].value, 60)])
    with pytest.raises(StoreError, match="cannot be decrypted"):
        await store.load(["b"])


async def test_no_changed_byte_and_no_cut_goes_unseen() -> None:
    """Every changed byte and every shorter value is a StoreError."""
    inner = MemoryStore(clock=Clock())
    store = SealedStore(inner, [b"s"])
    await store.save([Write("a", b"value", 60)])
    sealed = (await inner.load(["a"]))["a"].value
    changed = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
    for broken in [*changed, *(sealed[:at] for at in range(len(sealed))), b"value"]:
        await inner.save([Write("a", broken, 60)])
        with pytest.raises(StoreError):
            await store.load(["a"])


async def test_the_same_value_is_sealed_differently_each_time() -> None:
    """Equal values cannot be told from what lies in the store."""
    inner = MemoryStore(clock=Clock())
    store = SealedStore(inner, [b"s"])
    await store.save([Write("a", b"same", 60)])
    first = (await inner.load(["a"]))["a"].value
    await store.save([Write("a", b"same", 60)])
    assert (await inner.load(["a"]))["a"].value != first


def test_an_empty_secret_is_refused() -> None:
    """An empty secret would encrypt for everyone."""
    with pytest.raises(StoreError, match="empty"):
        SealedStore(MemoryStore(clock=Clock()), [b""])


async def test_evictions_of_the_inner_store_are_seen() -> None:
    """The count of evictions passes through."""
    inner = MemoryStore(clock=Clock(), max_bytes=3000)
    store = SealedStore(inner, [b"s"])
    for number in range(10):
        await store.save([Write(f"k{number}", b"x" * 500, 60)])
    assert store.evictions == inner.evictions > 0
    assert store.held_bytes == inner.held_bytes > 0
