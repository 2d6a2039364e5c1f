"""The memory store: the contract, and its bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write
from proxy.stores.memory import MemoryStore
from tests.stores.contract import Clock, StoreContract


class TestMemoryStore(StoreContract):
    def open(self, folder: Path, clock: Clock) -> Store:
        return MemoryStore(clock=clock)

    def second(self, first: Store, folder: Path, clock: Clock) -> Store:
        return first


async def test_the_soonest_to_expire_is_evicted_and_counted() -> None:
    """Over the bound, live values go in the order of their ends; those of the save itself stay."""
    store = MemoryStore(clock=Clock(), max_bytes=4000)
    await store.save([Write("late", b"x" * 700, 30), Write("soon", b"x" * 700, 10), Write("mid", b"x" * 700, 20)])
    assert store.evictions == 0
    await store.save([Write("new", b"x" * 1800, 5)])
    assert await store.scan("") == ["late", "new"]
    assert store.evictions == 2


async def test_a_touch_saves_from_eviction() -> None:
    """What was touched last is judged by its new end."""
    store = MemoryStore(clock=Clock(), max_bytes=3000)
    await store.save([Write("a", b"x" * 700, 10), Write("b", b"x" * 700, 20)])
    await store.touch(["a"], 60)
    await store.save([Write("c", b"x" * 700, 30)])
    assert await store.scan("") == ["a", "c"]


async def test_what_has_expired_makes_room_uncounted() -> None:
    """Removing what nobody can load any more is no eviction."""
    clock = Clock()
    store = MemoryStore(clock=clock, max_bytes=2000)
    await store.save([Write("a", b"x" * 1200, 10)])
    clock.move(10)
    await store.save([Write("b", b"x" * 1200, 10)])
    assert store.evictions == 0
    assert await store.scan("") == ["b"]


async def test_a_save_beyond_the_whole_bound_is_refused() -> None:
    """A save that could never fit is a StoreError and changes nothing."""
    store = MemoryStore(clock=Clock(), max_bytes=2000)
    await store.save([Write("a", b"one", 10)])
    with pytest.raises(StoreError, match="no room"):
        await store.save([Write("b", b"x" * 1000, 10), Write("c", b"x" * 1000, 10)])
    assert await store.load(["a", "b", "c"]) == {"a": Stored(b"one", 1)}
    assert store.evictions == 0


async def test_counters_are_bounded_too() -> None:
    """Counting under ever new keys does not grow without end."""
    store = MemoryStore(clock=Clock(), max_bytes=20_000)
    for number in range(1000):
        assert await store.count(f"k{number}", 1, 60)
    assert store.evictions > 900
    assert not await store.count("k999", 1, 60)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 1500), st.integers(1, 9)), max_size=40))
async def test_the_bound_holds_after_any_saves(saves: list[tuple[str, int, int]]) -> None:
    """However values come, what is held stays within the bound and the last one is there."""
    clock = Clock()
    store = MemoryStore(clock=clock, max_bytes=4000)
    for key, size, ttl in saves:
        assert await store.save([Write(key, b"x" * size, ttl)])
        clock.move(0.5)
        live = await store.load(list("abcdef"))
        assert len(live[key].value) == size
        assert sum(len(stored.value) for stored in live.values()) <= 4000
