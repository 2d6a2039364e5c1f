"""A store that is timed, and whose health is known."""

from __future__ import annotations

import asyncio

import pytest

from proxy.errors import StoreError
from proxy.metrics import Metrics
from proxy.server.measured import MeasuredStore
from proxy.stores.base import Write
from proxy.stores.memory import MemoryStore


class Switched(MemoryStore):
    """A store that can be switched off."""

    down = False

    async def ping(self) -> None:
        if self.down:
            raise StoreError("down")


def up(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("sidecall_store_up")


async def test_every_operation_is_timed() -> None:
    """Operations give what the store gives, and are counted by name."""
    metrics = Metrics(max_tool_names=1, clock=lambda: 0.0)
    store = MeasuredStore(MemoryStore(clock=lambda: 0.0), metrics, timer=lambda: 0.0)
    assert await store.is_empty()
    assert await store.save([Write("a", b"1", 60)])
    assert (await store.load(["a"]))["a"].value == b"1"
    await store.touch(["a"], 70)
    assert await store.scan("a") == ["a"]
    assert await store.count("c", 1, 60)
    await store.ping()
    for operation in ("is_empty", "save", "load", "touch", "scan", "count", "ping"):
        name = "sidecall_store_operation_duration_seconds_count"
        assert metrics.registry.get_sample_value(name, {"operation": operation}) == 1
    assert up(metrics) == 1
    await store.close()


async def test_a_store_that_is_down_is_seen_and_seen_again_when_it_is_back() -> None:
    """store_up follows what the store says."""
    metrics = Metrics(max_tool_names=1, clock=lambda: 0.0)
    inner = Switched(clock=lambda: 0.0)
    store = MeasuredStore(inner, metrics, timer=lambda: 0.0)
    inner.down = True
    with pytest.raises(StoreError):
        await store.ping()
    assert up(metrics) == 0
    inner.down = False
    watch = asyncio.create_task(store.watch(lambda: True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert up(metrics) == 1
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_how_much_is_kept_and_written() -> None:
    """The total of a bounded store, and the size of each record."""
    metrics, inner = Metrics(max_tool_names=1, clock=lambda: 0.0), MemoryStore(clock=lambda: 0.0)
    store = MeasuredStore(inner, metrics, timer=lambda: 0.0)
    await store.save([Write("a", b"x" * 300, 60), Write("b", b"x" * 5000, 60), Write("c", None, 0)])
    value = metrics.registry.get_sample_value
    assert value("sidecall_store_bytes") == inner.held_bytes > 5300
    assert value("sidecall_store_record_bytes_count") == 2
    assert value("sidecall_store_record_bytes_sum") == 5300
    assert value("sidecall_store_record_bytes_bucket", {"le": "1024.0"}) == 1
