"""How long it takes to keep a split batch and to put it back, and how many bytes it takes, in each store.

    python bench/rejoin.py [--redis redis://127.0.0.1:6379] [--batches 500]

For each store: microseconds a batch, median and 99th percentile, of saving it (`split`), of finding it by the id of its
surfaced call (`find`), and the bytes of its record and its pointers. The batch has three calls, one of them surfaced,
behind one hidden round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult
from proxy.core.calls import BatchId, CallId, Owner, Tenant, ToolCall
from proxy.core.jsontext import render_text
from proxy.server.ledger import Ledger
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.sqlite import SqliteStore

RESULT = "Tool call blocked by policy orders/no-deletes: Deleting is not allowed here."
ARGUMENTS = '{"order_id":"o-1234567890","note":"as the customer asked for it on the phone"}'


def batch(number: int) -> BatchRecord:
    """A batch as a client may cause it; each with ids of its own."""

    def call(name: str, place: int, stage: int | None) -> CallRecord:
        made = ToolCall(CallId(f"call_{number:020}{place:04}"), name, ARGUMENTS)
        raw = render_text({"id": made.call_id, "type": "function", "function": {"name": name, "arguments": ARGUMENTS}})
        given = str(made.call_id) if stage is not None else ""
        return CallRecord(made, raw, Owner.CLIENT, given, stage=stage, result=None if stage is not None else RESULT)

    calls = (call("delete_order", 1, None), call("get_weather", 2, 0), call("drop_table", 3, None))
    hidden = Round('{"role":"assistant","content":null}', (RoundResult(calls[0].call, RESULT, True, True),))
    return BatchRecord(BatchId(f"batch-{number}"), '{"role":"assistant","content":null}', "", calls, (hidden,))


async def timed(count: int, work: Callable[[int], Awaitable[object]]) -> str:
    took = []
    for number in range(count):
        began = time.perf_counter()
        await work(number)
        took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    return f"{statistics.median(took):8.0f} us  p99 {took[int(len(took) * 0.99)]:8.0f} us"


async def measure(name: str, store: Store, count: int) -> None:
    async def tenant() -> Tenant:
        return Tenant("bench")

    ledger = Ledger(store, tenant, ttl=3600.0)
    records = [batch(number) for number in range(count)]
    split = await timed(count, lambda number: ledger.save_batch(records[number]))
    find = await timed(count, lambda number: ledger.know([records[number].calls[1].given_id], []))
    keys = [key for prefix in ("batch/", "call/") for key in await store.scan(prefix, 4 * count)]
    kept = await store.load(keys)
    size = sum(len(key) + len(found.value) for key, found in kept.items()) // count
    print(f"{name:8} split {split}   find {find}   {size} bytes a batch")
    await store.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", metavar="URL", help="a Redis to measure too; what is written expires in an hour")
    parser.add_argument("--batches", type=int, default=500)
    options = parser.parse_args()
    await measure("memory", MemoryStore(), options.batches)
    with tempfile.TemporaryDirectory() as folder:
        await measure("sqlite", SqliteStore(Path(folder) / "state.db"), options.batches)
    if options.redis:
        from proxy.stores.redis import RedisStore
        from proxy.stores.redis_address import parse_redis_address

        await measure("redis", RedisStore(parse_redis_address(options.redis)), options.batches)


if __name__ == "__main__":
    asyncio.run(main())
