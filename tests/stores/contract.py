"""What holds for every store. Each store's test module subclasses `StoreContract` and says how it is opened."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

HOUR = 3600.0


class Clock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.25

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class Model:
    """What a store must do, said in the simplest way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, tuple[bytes, int, float]] = {}
        self._events: dict[str, list[float]] = {}

    def live(self) -> dict[str, Stored]:
        return {k: Stored(v, n) for k, (v, n, until) in self._values.items() if until > self._clock.now}

    def save(self, writes: list[Write]) -> bool:
        seen = self.live()
        if any(w.version is not None and w.version != (seen[w.key].version if w.key in seen else 0) for w in writes):
            return False
        for write in writes:
            version = self.live()[write.key].version if write.key in self.live() else 0
            self._values.pop(write.key, None)
            if write.value is not None:
                self._values[write.key] = (write.value, version + 1, self._clock.now + write.ttl)
        return True

    def touch(self, keys: list[str], ttl: float) -> None:
        for key in keys:
            if key in self.live():
                value, version, until = self._values[key]
                self._values[key] = (value, version, max(until, self._clock.now + ttl))

    def count(self, key: str, limit: int, window: float) -> bool:
        events = self._events.setdefault(key, [])
        if sum(at > self._clock.now - window for at in events) >= limit:
            return False
        events.append(self._clock.now)
        return True


_keys = st.sampled_from(["", "a", "ab", "b\0", "ä", "meta:x", "\ud800"])
_ttls = st.sampled_from([1.0, 5.0, 8.0])
_writes = st.builds(
    Write,
    key=_keys,
    value=st.none() | st.binary(max_size=6),
    ttl=_ttls,
    version=st.none() | st.integers(min_value=0, max_value=3),
)
_steps = st.one_of(
    st.tuples(st.just("save"), st.lists(_writes, max_size=3)),
    st.tuples(st.just("touch"), st.lists(_keys, max_size=3), _ttls),
    st.tuples(st.just("count"), _keys, st.integers(min_value=0, max_value=3), st.just(8.0)),
    st.tuples(st.just("move"), st.sampled_from([0.5, 1.0, 3.0, 8.0])),
)


class StoreContract:
    """`open` gives a store; two that were opened for one folder share their state."""

    def open(self, folder: Path, clock: Clock) -> Store:
        raise NotImplementedError

    def second(self, first: Store, folder: Path, clock: Clock) -> Store:
        """Another writer's way to the state of the first."""
        return self.open(folder, clock)

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
        store = self.open(tmp_path, clock)
        yield store
        await store.close()

    async def test_what_was_saved_is_loaded_with_its_version(self, store: Store) -> None:
        """Values come back as they were; versions count the writes from one; other keys are left out."""
        assert await store.save([Write("a", b"\0one", HOUR), Write("b", b"", HOUR, version=0)])
        assert await store.save([Write("a", b"two", HOUR, version=1)])
        assert await store.load(["a", "b", "c", "a"]) == {"a": Stored(b"two", 2), "b": Stored(b"", 1)}

    async def test_all_writes_or_none(self, store: Store) -> None:
        """One version that is not what its writer saw keeps back every write of the save."""
        assert await store.save([Write("a", b"one", HOUR)])
        for version in (0, 2):
            assert not await store.save([Write("new", b"x", HOUR), Write("a", b"two", HOUR, version=version)])
        assert not await store.save([Write("b", b"x", HOUR, version=1)])
        assert await store.load(["a", "new", "b"]) == {"a": Stored(b"one", 1)}

    async def test_a_delete_obeys_versions_too(self, store: Store) -> None:
        """A key is deleted when its version fits, and starts anew."""
        assert await store.save([Write("a", b"one", HOUR)])
        assert not await store.save([Write("a", None, 0, version=2)])
        assert await store.save([Write("a", None, 0, version=1), Write("nothing", None, 0)])
        assert await store.load(["a"]) == {}
        assert await store.save([Write("a", b"again", HOUR, version=0)])
        assert await store.load(["a"]) == {"a": Stored(b"again", 1)}

    async def test_a_value_lives_for_its_time_to_the_edge(self, store: Store, clock: Clock) -> None:
        """A value is there until its time is up and gone at that moment; it then counts as never written."""
        await store.save([Write("a", b"one", 10)])
        clock.move(9.999)
        assert "a" in await store.load(["a"])
        clock.move(0.001)
        assert await store.load(["a"]) == {}
        assert await store.scan("") == []
        assert await store.is_empty()
        assert not await store.save([Write("a", b"two", 10, version=1)])
        assert await store.save([Write("a", b"two", 10, version=0)])
        assert await store.load(["a"]) == {"a": Stored(b"two", 1)}

    async def test_a_touch_makes_a_life_longer_and_never_shorter(self, store: Store, clock: Clock) -> None:
        """A touch counts from now, keeps value and version, and does nothing for what is gone."""
        await store.save([Write("a", b"one", 10)])
        clock.move(5)
        await store.touch(["a", "none"], 1)
        clock.move(4)
        await store.touch(["a"], 10)
        clock.move(9)
        assert await store.load(["a"]) == {"a": Stored(b"one", 1)}
        clock.move(1)
        await store.touch(["a"], 10)
        assert await store.load(["a", "none"]) == {}

    async def test_a_window_slides_and_is_exact_at_its_edges(self, store: Store, clock: Clock) -> None:
        """No window of the given length ever holds more than the limit; an event leaves it on the dot."""
        assert await store.count("a", 2, 60)
        clock.move(59)
        assert await store.count("a", 2, 60)
        assert not await store.count("a", 2, 60)
        clock.move(0.999999)
        assert not await store.count("a", 2, 60)
        clock.move(0.000001)
        assert await store.count("a", 2, 60)
        assert not await store.count("a", 2, 60)
        assert await store.count("b", 1, 60)
        assert not await store.count("c", 0, 60)

    async def test_a_scan_gives_keys_in_order(self, store: Store) -> None:
        """A scan gives the keys with the prefix, sorted, at most so many; the prefix is taken literally."""
        names = ["p:b", "p:a", "p:\U0010ffffx", "p", "q:a", "p%a", "p:ä", "o:z"]
        await store.save([Write(name, b"x", HOUR) for name in names])
        assert await store.scan("p:") == ["p:a", "p:b", "p:ä", "p:\U0010ffffx"]
        assert await store.scan("p:", 2) == ["p:a", "p:b"]
        assert await store.scan("p%") == ["p%a"]
        assert await store.scan("") == sorted(names)

    async def test_empty_means_nothing_but_meta_keys(self, store: Store) -> None:
        """Keys that begin with `meta:` and counted events do not fill a store; any other live key does."""
        assert await store.is_empty()
        await store.save([Write("meta:key", b"x", HOUR)])
        await store.count("counted", 1, HOUR)
        assert await store.is_empty()
        for name in ("a", "meta", "meta;", "zebra"):
            await store.save([Write(name, b"x", HOUR)])
            assert not await store.is_empty()
            await store.save([Write(name, None, 0)])
        assert await store.is_empty()

    async def test_many_keys_are_loaded_at_once(self, store: Store) -> None:
        """The number of keys of one call has no limit of the back end's."""
        names = [f"k{number}" for number in range(1200)]
        assert await store.save([Write(name, name.encode(), HOUR) for name in names])
        assert {k: v.value for k, v in (await store.load(names)).items()} == {k: k.encode() for k in names}

    async def test_nothing_asked_is_nothing_done(self, store: Store) -> None:
        """Calls with no keys and no writes are answered, and change nothing."""
        assert await store.load([]) == {}
        assert await store.save([])
        await store.touch([], 5)
        assert await store.is_empty()

    async def test_writers_that_race_lose_no_update(self, store: Store, tmp_path: Path, clock: Clock) -> None:
        """Of writers that saw the same version one wins; with retries every one's change is kept."""
        other = self.second(store, tmp_path, clock)

        async def add(to: Store) -> None:
            while True:
                seen = (await to.load(["n"])).get("n", Stored(b"0", 0))
                if await to.save([Write("n", b"%d" % (int(seen.value) + 1), HOUR, seen.version)]):
                    return

        await asyncio.gather(*(add(to) for to in (store, other) for _ in range(10)))
        assert await other.load(["n"]) == {"n": Stored(b"20", 20)}
        if other is not store:
            await other.close()

    async def test_counters_that_race_never_pass_the_limit(self, store: Store, tmp_path: Path, clock: Clock) -> None:
        """Two that count at once share one limit."""
        other = self.second(store, tmp_path, clock)
        counted = await asyncio.gather(*(to.count("a", 7, 60) for _ in range(10) for to in (store, other)))
        assert sum(counted) == 7
        if other is not store:
            await other.close()

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        """After the end every operation is a StoreError, and closing again is no error."""
        await store.close()
        for operation in (
            store.load(["a"]),
            store.save([Write("a", b"", 1)]),
            store.touch(["a"], 1),
            store.count("a", 1, 1),
            store.scan(""),
            store.ping(),
            store.is_empty(),
        ):
            with pytest.raises(StoreError, match="closed"):
                await operation
        await store.close()

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(st.lists(_steps, max_size=25))
    def test_any_run_of_operations_is_as_in_the_model(self, steps: list[tuple[Any, ...]]) -> None:
        """Whatever is done in whatever order, the store says what the model says."""
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(self._follow(Path(folder), steps))

    async def _follow(self, folder: Path, steps: list[tuple[Any, ...]]) -> None:
        clock = Clock()
        store, model = self.open(folder, clock), Model(clock)
        keys = ["", "a", "ab", "b\0", "ä", "meta:x", "\ud800"]
        try:
            for name, *arguments in steps:
                if name == "move":
                    clock.move(*arguments)
                else:
                    assert await getattr(store, name)(*arguments) == getattr(model, name)(*arguments)
                live = model.live()
                assert await store.load(keys) == live
                assert await store.scan("") == sorted(live)
                assert await store.scan("a") == sorted(k for k in live if k.startswith("a"))
                assert await store.is_empty() == (not live.keys() - {"meta:x"})
        finally:
            await store.close()
