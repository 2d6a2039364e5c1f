"""Redis that is killed and started again in the middle of traffic over two processes: who notices, and who does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import processes
from tests.e2e.sidecall import policy, rule
from tests.e2e.traffic import AS_SENT, DONE, KINDS, REFUSED, Traffic, model
from tests.fake_upstream import FakeUpstream
from tests.stores.redis_servers import RedisServer, running

CLIENTS = 20


@asynccontextmanager
async def outage(upstream: FakeUpstream, folder: Path, unavailable: str) -> AsyncIterator[tuple[Traffic, RedisServer]]:
    """Traffic over two processes on one Redis that loses nothing that it acknowledged; it has begun."""
    upstream.always(model)
    traffic = Traffic(upstream, [])
    given: dict[str, Any] = {
        "policies": [policy(folder, rule("no", "delete", block={"message": "no"}))],
        "tools": [upstream.tool("count", traffic.count)],
    }
    with running(folder / "redis", "appendonly yes", "appendfsync always") as redis:
        given["state"] = {"url": f"redis://127.0.0.1:{redis.port}", "onUnavailable": unavailable}
        async with processes(folder, upstream, **given) as traffic.ways:
            async with traffic.of(CLIENTS):
                yield traffic, redis
            await traffic.every_batch_comes_back()


@pytest.mark.parametrize(("unavailable", "meanwhile"), [("refuse", REFUSED), ("pass", AS_SENT)])
async def test_traffic_while_redis_is_killed_and_comes_back(
    unavailable: str, meanwhile: str, upstream: FakeUpstream, tmp_path: Path
) -> None:
    """No request without tool calls failed, no batch that a client saw was lost, and every other one was refused; with
    `pass`, requests with calls in their history pass as they came, save for those that Redis left in the middle of a
    run. No tool ran twice."""

    def is_busy(now: Counter[str]) -> bool:
        return all(now[f"{kind} {DONE}"] >= CLIENTS for kind in KINDS)

    async with outage(upstream, tmp_path, unavailable) as (traffic, redis):
        await traffic.until(is_busy)
        assert traffic.now.keys() == {f"{kind} {DONE}" for kind in KINDS}
        redis.kill()
        traffic.begin()
        await traffic.until(lambda now: min(now[f"plain {DONE}"], now[f"first {REFUSED}"]) >= 2 * CLIENTS)
        for number, conversation in enumerate(traffic.seen[:4]):
            assert await traffic.come_back(conversation, traffic.ways[number % 2]) == meanwhile
        await asyncio.to_thread(redis.start)
        traffic.begin()
        await traffic.until(is_busy)
    assert set(traffic.plain) == {DONE}
    assert set(traffic.first) == {DONE, REFUSED}
    assert set(traffic.second) <= {DONE, REFUSED, meanwhile}
    assert traffic.second[REFUSED] <= CLIENTS, "each was under way when Redis was killed"
    assert set(map(len, traffic.runs.values())) == {1}
