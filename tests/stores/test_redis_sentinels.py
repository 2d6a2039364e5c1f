"""A master that sentinels name: the contract through it, and a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import Trust, parse_redis_address
from tests.server.certificates import Authority
from tests.stores.contract import HOUR, Clock, StoreContract
from tests.stores.redis_servers import RedisServer, opened, running, wait_until, works
from tests.stores.relay import relaying


@dataclass
class Watched:
    """Two servers, the second a replica of the first, and a sentinel that names the first `main`."""

    first: RedisServer
    second: RedisServer
    sentinel: RedisServer

    @property
    def url(self) -> str:
        return f"redis+sentinel://:pass-4711@127.0.0.1:1,127.0.0.1:{self.sentinel.port}/main"


PASSWORD = ("requirepass pass-4711", "masterauth pass-4711")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as stack:
        first = stack.enter_context(running(folder / "first", *PASSWORD))
        second = stack.enter_context(running(folder / "second", *PASSWORD, f"replicaof 127.0.0.1 {first.port}"))
        sentinel = stack.enter_context(running(folder / "sentinel", *sentinel_of(first), sentinel=True))
        yield Watched(first, second, sentinel)


def sentinel_of(server: RedisServer) -> tuple[str, ...]:
    return f"sentinel monitor main 127.0.0.1 {server.port} 1", "sentinel auth-pass main pass-4711"


class TestThroughSentinels(StoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, watched: Watched) -> None:
        type(self).url = watched.url

    url = ""

    def open(self, folder: Path, clock: Clock) -> Store:
        return RedisStore(parse_redis_address(self.url), clock=clock, prefix=str(folder))


async def test_a_service_that_no_sentinel_knows(watched: Watched, tmp_path: Path) -> None:
    """The error says so; sentinels that are gone are passed over."""
    store = opened(watched.url.replace("/main", "/other"), tmp_path)
    with pytest.raises(StoreError, match="no sentinel names a master for the service"):
        await store.ping()
    await store.close()


async def test_a_sentinel_may_have_the_same_password(watched: Watched, tmp_path: Path) -> None:
    """Sentinels with a password of their own get that of the address."""
    folder = tmp_path / "sentinel"
    with running(folder, *sentinel_of(watched.first), "requirepass pass-4711", sentinel=True) as sentinel:
        await works(opened(f"redis+sentinel://:pass-4711@127.0.0.1:{sentinel.port}/main", tmp_path))


async def test_a_failover_is_followed(watched: Watched, tmp_path: Path) -> None:
    """The first server becomes a replica of the second: its connections are given up, and all goes on with the second.

    The sentinel is told so in place of finding out, which takes it many seconds.
    """
    first, second, sentinel = watched.first, watched.second, watched.sentinel
    store = opened(watched.url, tmp_path)
    await asyncio.gather(*(store.save([Write(f"a{number}", b"x", HOUR)]) for number in range(20)))
    wait_until(lambda: second.ask("DBSIZE", auth="pass-4711") == first.ask("DBSIZE", auth="pass-4711"), "a copy")
    second.ask("REPLICAOF", "NO", "ONE", auth="pass-4711")
    first.ask("REPLICAOF", "127.0.0.1", str(second.port), auth="pass-4711")
    assert sentinel.ask("SENTINEL", "REMOVE", "main") == "+OK\r\n"
    assert sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", str(second.port), "1") == "+OK\r\n"
    assert sentinel.ask("SENTINEL", "SET", "main", "auth-pass", "pass-4711") == "+OK\r\n"
    saved = await asyncio.gather(
        *(store.save([Write(f"a{number}", b"y", HOUR, version=1)]) for number in range(20)), return_exceptions=True
    )
    assert saved == [True] * 20
    assert await store.load(["a7"]) == {"a7": Stored(b"y", 2)}
    await store.close()
    assert "role:master" in second.ask("INFO", "replication", auth="pass-4711")


async def test_sentinels_with_tls(redis_server: RedisServer, authority: Authority, tmp_path: Path) -> None:
    """Sentinels and the master are both asked with our own trust."""
    context = authority.issue("127.0.0.1").server_context()
    async with relaying(redis_server.port, context) as master:
        monitor = f"sentinel monitor main 127.0.0.1 {master.port} 1"
        with running(tmp_path / "sentinel", monitor, sentinel=True) as sentinel:
            async with relaying(sentinel.port, context) as relay:
                url = f"rediss+sentinel://127.0.0.1:{relay.port}/main"
                await works(opened(url, tmp_path, Trust(str(authority.file))))
                assert relay.most > 0
                assert master.most > 0
                store = opened(url, tmp_path)
                with pytest.raises(StoreError, match=r"TLS fails|no sentinel"):
                    await store.ping()
                await store.close()
