"""The Redis store: the contract on a real server, what lies there, and what happens when the way to it breaks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores import open_store
from proxy.stores.base import Store, Stored, Write
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import parse_redis_address
from proxy.stores.sealed import SealedStore
from tests.stores.contract import HOUR, Clock, StoreContract
from tests.stores.redis_servers import RedisServer, running
from tests.stores.relay import Break, Relay, Where, relaying


class _OnRedis(StoreContract):
    url = ""

    @pytest.fixture(autouse=True)
    def _address(self, redis_server: RedisServer) -> None:
        type(self).url = f"redis://127.0.0.1:{redis_server.port}"

    def open(self, folder: Path, clock: Clock) -> Store:
        return RedisStore(parse_redis_address(self.url), clock=clock, prefix=str(folder))


class TestRedisStore(_OnRedis): ...


class TestSealedRedis(_OnRedis):
    def open(self, folder: Path, clock: Clock) -> Store:
        return SealedStore(super().open(folder, clock), [b"one", b"two"])


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path)


def opened(server: RedisServer | Relay, prefix: str, *, patience: float = 5.0) -> RedisStore:
    return RedisStore(parse_redis_address(f"redis://127.0.0.1:{server.port}"), prefix=prefix, patience=patience)


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    store = opened(redis_server, prefix)
    yield store
    await store.close()


# ---------------------------------------------------------------- what lies in Redis


async def test_a_url_opens_it(redis_server: RedisServer) -> None:
    """`open_store` gives a store on the database that the URL names; with keys it is sealed."""
    store = await open_store(f"redis://127.0.0.1:{redis_server.port}/7", keys=[b"secret-4711"])
    assert isinstance(store, SealedStore)
    await store.save([Write("a", b"value-4711", HOUR)])
    assert await store.load(["a"]) == {"a": Stored(b"value-4711", 1)}
    await store.close()
    assert "db7:keys=2" in redis_server.ask("INFO", "keyspace")
    look = "redis.call('SELECT', 7) return redis.call('GET', KEYS[1])"
    lies = redis_server.ask("EVAL", look, "1", "{sidecall}:v:a")
    assert "SC1\0" in lies
    assert "4711" not in lies


def test_the_driver_is_loaded_when_redis_is_chosen_and_not_before() -> None:
    """A proxy on another store does not pay for it."""
    code = (
        "import asyncio, sys; from proxy.stores import open_store\n"
        "asyncio.run(open_store('memory:', keys=[])); assert 'redis' not in sys.modules\n"
        "asyncio.run(open_store('redis://h', keys=[])); assert 'redis' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_moments_are_those_of_the_server(store: RedisStore, redis_server: RedisServer, prefix: str) -> None:
    """Without a clock, a value ends by Redis' own; Redis itself keeps it a minute longer."""
    await store.save([Write("a", b"x", 100)])
    seconds, rest = (int(part) for part in redis_server.ask("TIME").split("\r\n")[2::2])
    raw = redis_server.ask("GET", f"{{{prefix}}}:v:a").split("\r\n")[1]
    left = int(raw[17:33]) - (seconds * 1_000_000 + rest)
    assert 0 <= 100_000_000 - left < 5_000_000
    assert 155_000 < int(redis_server.ask("PTTL", f"{{{prefix}}}:v:a")[1:]) <= 160_000


async def test_a_value_ends_while_redis_still_has_it(store: RedisStore, redis_server: RedisServer, prefix: str) -> None:
    """The end of a record decides, not Redis' time to live; a save that follows takes it out of the index."""
    await store.save([Write("a", b"x", 0.0), Write("b", b"x", HOUR)])
    assert await store.load(["a", "b"]) == {"b": Stored(b"x", 1)}
    assert await store.scan("") == ["b"]
    assert redis_server.ask("EXISTS", f"{{{prefix}}}:v:a") == ":1\r\n"
    assert redis_server.ask("ZCARD", f"{{{prefix}}}:index") == ":2\r\n"
    await store.save([Write("c", b"x", HOUR)])
    assert redis_server.ask("ZCARD", f"{{{prefix}}}:index") == ":2\r\n"
    await store.save([Write("b", None, 0), Write("c", None, 0)])
    assert redis_server.ask("KEYS", f"{{{prefix}}}:index".replace("[", "?")) == "*0\r\n"


async def test_a_scan_takes_many_pages_and_skips_what_was_evicted(
    store: RedisStore, redis_server: RedisServer, prefix: str
) -> None:
    """The order is kept over pages; a name without its value is not live."""
    names = [f"k{number:05}*[" for number in range(2500)]
    await store.save([Write(name, b"", HOUR) for name in names])
    redis_server.ask("DEL", f"{{{prefix}}}:v:{names[1]}")
    assert await store.scan("k", 3) == [names[0], names[2]]
    assert await store.scan("k00007*[") == [names[7]]
    assert await store.scan("k", 3000) == [names[0], *names[2:]]


async def test_lives_of_any_length_are_taken(store: RedisStore) -> None:
    """A hundred years, and without an end."""
    await store.save([Write("a", b"x", 100 * 365 * 86400.0), Write("b", b"y", float("inf"))])
    await store.touch(["a"], float("inf"))
    assert (await store.load(["a", "b"])).keys() == {"a", "b"}
    assert await store.count("a", 1, float("inf"))
    assert not await store.count("a", 1, float("inf"))


async def test_a_clock_that_is_set_back_counts_on(redis_server: RedisServer, prefix: str) -> None:
    """Counted events stay in order: the limit may then hold for longer, and is never passed."""
    clock = Clock()
    store = RedisStore(parse_redis_address(f"redis://127.0.0.1:{redis_server.port}"), clock=clock, prefix=prefix)
    assert await store.count("a", 2, 60)
    clock.move(-30)
    assert await store.count("a", 2, 60)
    clock.move(89)
    assert not await store.count("a", 2, 60)
    clock.move(1)
    assert await store.count("a", 2, 60)
    await store.close()


async def test_a_record_of_a_newer_form_stays(store: RedisStore, redis_server: RedisServer, prefix: str) -> None:
    """What a newer release wrote is an error to who needs it, and is neither touched nor written over."""
    key, newer = f"{{{prefix}}}:v:a", "2" + "0" * 60
    redis_server.ask("SET", key, newer)
    with pytest.raises(StoreError, match="form that this release does not know"):
        await store.load(["a"])
    for version in (None, 0, 1):
        with pytest.raises(StoreError, match="form that this release does not know"):
            await store.save([Write("b", b"x", HOUR), Write("a", b"x", HOUR, version=version)])
    await store.touch(["a"], HOUR)
    assert redis_server.ask("GET", key) == f"${len(newer)}\r\n{newer}\r\n"
    assert await store.load(["b"]) == {}


@pytest.mark.parametrize("name", ["index", "v:a"])
async def test_a_key_of_another_kind_is_an_error_and_nothing_is_kept_half(
    name: str, store: RedisStore, redis_server: RedisServer, prefix: str
) -> None:
    """Where another program has taken a name of ours, a save writes nothing at all."""
    redis_server.ask("RPUSH", f"{{{prefix}}}:{name}", "x")
    with pytest.raises(StoreError, match="holds something else"):
        await store.save([Write("b", b"x", HOUR), Write("a", b"x", HOUR)])
    assert await store.load(["b"]) == {}
    assert redis_server.ask("EXISTS", f"{{{prefix}}}:v:b") == ":0\r\n"


async def test_of_two_stores_that_race_one_wins(store: RedisStore, redis_server: RedisServer, prefix: str) -> None:
    """Each round one of two stores gets a key that must not be there, and the other is told so."""
    other = opened(redis_server, prefix)
    for number in range(20):
        key = f"claim{number}"
        won = await asyncio.gather(
            *(to.save([Write(key, name, HOUR, version=0)]) for to, name in ((store, b"one"), (other, b"two")))
        )
        assert sorted(won) == [False, True]
        assert await store.load([key]) == {key: Stored(b"one" if won[0] else b"two", 1)}
    await other.close()


# ---------------------------------------------------------------- states of the server


@asynccontextmanager
async def setting(server: RedisServer, words: tuple[str, ...], back: tuple[str, ...]) -> AsyncIterator[None]:
    assert server.ask(*words) == "+OK\r\n"
    try:
        yield
    finally:
        assert server.ask(*back) == "+OK\r\n"


async def test_a_full_memory_is_an_error_and_keeps_nothing_half(store: RedisStore, redis_server: RedisServer) -> None:
    """Redis takes no more: a save is a StoreError, what is there can be read, and with room all is well again."""
    await store.save([Write("a", b"x", HOUR)])
    async with setting(redis_server, ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")):
        with pytest.raises(StoreError, match="its memory is full"):
            await store.save([Write("a", b"y", HOUR), Write("b", b"y", HOUR)])
        with pytest.raises(StoreError, match="its memory is full"):
            await store.count("a", 1, 60)
        assert await store.load(["a", "b"]) == {"a": Stored(b"x", 1)}
    assert await store.save([Write("a", b"y", HOUR, version=1)])


async def test_a_replica_takes_no_writes(store: RedisStore, redis_server: RedisServer) -> None:
    """A master that has become a replica is a StoreError, and well again when it is one no more."""
    await store.save([Write("a", b"x", HOUR)])
    async with setting(redis_server, ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")):
        with pytest.raises(StoreError, match="a replica that takes no writes"):
            await store.save([Write("a", b"y", HOUR)])
    assert await store.load(["a"]) == {"a": Stored(b"x", 1)}
    assert await store.save([Write("a", b"y", HOUR, version=1)])


async def test_scripts_that_redis_forgot_are_sent_again(store: RedisStore, redis_server: RedisServer) -> None:
    """A restart or a flush forgets scripts."""
    await store.save([Write("a", b"x", HOUR)])
    assert redis_server.ask("SCRIPT", "FLUSH") == "+OK\r\n"
    assert await store.save([Write("a", b"y", HOUR, version=1)])


async def test_a_killed_server_loses_nothing_that_was_acknowledged(tmp_path: Path, prefix: str) -> None:
    """Killed in the middle of writes: they fail as StoreError, at once; back again with its log, all that was
    acknowledged is there, and the same store goes on."""
    acknowledged: list[str] = []
    with running(tmp_path / "server", "appendonly yes", "appendfsync everysec") as server:
        store = opened(server, prefix)

        async def write(number: int) -> None:
            for count in range(1_000_000):
                key = f"{number}.{count}"
                await store.save([Write(key, key.encode(), HOUR, version=0)])
                acknowledged.append(key)
                if len(acknowledged) == 200:
                    server.kill()

        ended = await asyncio.gather(*(write(number) for number in range(8)), return_exceptions=True)
        assert {type(error) for error in ended} == {StoreError}
        began = time.monotonic()
        with pytest.raises(StoreError, match="the connection is refused"):
            await store.load(["0.0"])
        assert time.monotonic() - began < 2
        server.start()
        assert (await store.load(acknowledged)).keys() == set(acknowledged)
        await store.ping()
        assert await store.save([Write("more", b"x", HOUR, version=0)])
        await store.close()


# ---------------------------------------------------------------- the way to the server


@pytest.fixture
async def relay(redis_server: RedisServer) -> AsyncIterator[Relay]:
    async with relaying(redis_server.port) as relay:
        yield relay


@pytest.fixture
async def far(relay: Relay, prefix: str) -> AsyncIterator[RedisStore]:
    """The store behind the relay; its scripts are known to Redis, so that each operation is one request."""
    far = opened(relay, prefix, patience=2.0)
    await far.save([Write("first", b"x", HOUR)])
    await far.load(["first"])
    await far.touch(["first"], 1)
    assert await far.count("first", 1, 1)
    yield far
    await far.close()


@pytest.mark.parametrize("where", [Where.BEFORE, Where.BEHIND])
async def test_a_save_with_versions_that_breaks_is_applied_once(
    where: Where, far: RedisStore, relay: Relay, store: RedisStore
) -> None:
    """Whether it arrived or not: the answer is yes, and the version counts one write."""
    relay.breaks.append(Break(where))
    assert await far.save([Write("a", b"1", HOUR, version=0), Write("b", b"1", HOUR, version=0)])
    assert not relay.breaks
    assert await store.load(["a", "b"]) == {"a": Stored(b"1", 1), "b": Stored(b"1", 1)}
    relay.breaks.append(Break(where))
    assert await far.save([Write("a", None, 0, version=1), Write("b", b"2", HOUR, version=1)])
    assert await store.load(["a", "b"]) == {"b": Stored(b"2", 2)}


@pytest.mark.parametrize("where", [Where.BEFORE, Where.BEHIND])
async def test_a_save_that_breaks_and_is_overtaken_is_open(
    where: Where, far: RedisStore, relay: Relay, store: RedisStore
) -> None:
    """Another writer was faster, or wrote on top: nobody can tell which. It is a StoreError; the other's stays."""

    async def overtake() -> None:
        assert await store.save([Write("a", b"other", HOUR)])

    relay.breaks.append(Break(where, overtake))
    with pytest.raises(StoreError, match="broke while it was written to"):
        await far.save([Write("a", b"mine", HOUR, version=0)])
    assert await store.load(["a"]) == {"a": Stored(b"other", 1 if where is Where.BEFORE else 2)}


async def test_a_delete_that_breaks_behind_its_reply_is_open(far: RedisStore, relay: Relay) -> None:
    """A key that has gone does not say who took it away."""
    relay.breaks.append(Break(Where.BEHIND))
    with pytest.raises(StoreError, match="broke while it was written to"):
        await far.save([Write("first", None, 0, version=1)])
    assert await far.load(["first"]) == {}


async def test_a_save_without_versions_that_breaks_is_looked_for(
    far: RedisStore, relay: Relay, store: RedisStore
) -> None:
    """It is not repeated: where it had arrived the answer is yes, else it is a StoreError and nothing is written."""
    relay.breaks.append(Break(Where.BEHIND))
    assert await far.save([Write("a", b"1", HOUR)])
    assert await store.load(["a"]) == {"a": Stored(b"1", 1)}
    relay.breaks.append(Break(Where.BEFORE))
    with pytest.raises(StoreError, match="broke while it was written to"):
        await far.save([Write("a", b"2", HOUR), Write("b", b"2", HOUR, version=0)])
    assert await store.load(["a", "b"]) == {"a": Stored(b"1", 1)}


async def test_a_count_that_breaks_is_not_repeated(far: RedisStore, relay: Relay) -> None:
    """It may have been counted, and is so once."""
    relay.breaks.append(Break(Where.BEHIND))
    with pytest.raises(StoreError, match="the connection broke"):
        await far.count("a", 2, 60)
    assert await far.count("a", 2, 60)
    assert not await far.count("a", 2, 60)


@pytest.mark.parametrize("where", [Where.BEFORE, Where.BEHIND])
async def test_what_reads_is_repeated_once(where: Where, far: RedisStore, relay: Relay) -> None:
    """One broken connection goes by unseen, two do not."""
    for operation in (far.load(["first"]), far.touch(["first"], HOUR), far.scan(""), far.ping(), far.is_empty()):
        relay.breaks.append(Break(where))
        await operation
        assert not relay.breaks
    relay.breaks += [Break(where)] * 2
    with pytest.raises(StoreError, match="the connection broke"):
        await far.load(["first"])
    assert (await far.load(["first"])).keys() == {"first"}


async def test_connections_that_ended_while_idle_are_replaced(far: RedisStore, relay: Relay, store: RedisStore) -> None:
    """A server that was restarted, or closes what is idle, costs nothing, also where nothing may be repeated."""
    await asyncio.gather(*(far.count(f"c{number}", 1, 60) for number in range(10)))
    for number in range(2):
        assert relay.open > 1
        relay.cut()
        while relay.open:
            await asyncio.sleep(0)
        assert await asyncio.gather(*(far.count(f"d{number}", 100, 60) for _ in range(10))) == [True] * 10
        assert await far.save([Write("a", b"x", HOUR)])
    assert (await store.load(["a"]))["a"].version == 2


async def test_a_name_that_leads_to_another_master_is_followed(
    relay: Relay, prefix: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Where a failover moves the name, connections to what is a replica now are given up, and no operation fails."""
    with running(tmp_path / "old") as old:
        relay.target = old.port
        store = opened(relay, prefix)
        await asyncio.gather(*(store.load(["a"]) for _ in range(10)))
        assert old.ask("REPLICAOF", "127.0.0.1", "1") == "+OK\r\n"
        relay.target = redis_server.port
        assert await asyncio.gather(*(store.count(f"a{number}", 1, 60) for number in range(10))) == [True] * 10
        assert await asyncio.gather(*(store.save([Write(f"a{number}", b"", HOUR)]) for number in range(10)))
        assert len(await store.scan("a")) == 10
        await store.close()


async def test_silence_is_an_error_in_time(relay: Relay, prefix: str) -> None:
    """A server that takes a request and says nothing: StoreError when the patience is at its end, then well again."""
    store = opened(relay, prefix, patience=0.4)
    await store.save([Write("a", b"x", HOUR)])
    for operation in (store.save([Write("a", b"y", HOUR, version=1)]), store.load(["a"])):
        relay.breaks.append(Break(Where.SILENT))
        began = time.monotonic()
        with pytest.raises(StoreError, match="does not answer in time"):
            await operation
        assert 0.1 < time.monotonic() - began < 2
    assert await store.load(["a"]) == {"a": Stored(b"y", 2)}
    await store.close()


async def test_a_flood_on_a_silent_server_ends_in_time(relay: Relay, prefix: str) -> None:
    """Who waits for a turn that does not come waits no longer than the others."""
    store = opened(relay, prefix, patience=0.4)
    await store.load(["a"])
    relay.breaks += [Break(Where.SILENT)] * 200
    began = time.monotonic()
    found = await asyncio.gather(*(store.load(["a"]) for _ in range(200)), return_exceptions=True)
    assert {str(error) for error in found} == {"The state store cannot be used: it does not answer in time."}
    assert time.monotonic() - began < 2
    relay.breaks.clear()
    assert await store.load(["a"]) == {}
    await store.close()


async def test_a_flood_waits_for_its_turn(far: RedisStore, relay: Relay) -> None:
    """However many ask at once, there are no more than 32 connections."""
    found = await asyncio.gather(*(far.load(["first"]) for _ in range(300)))
    assert all(one.keys() == {"first"} for one in found)
    assert 2 <= relay.most <= 32


async def test_who_goes_away_leaves_the_connection_usable(far: RedisStore, relay: Relay) -> None:
    """A task that is cancelled in the middle of an operation does not hand its reply to the next one."""
    for _ in range(40):  # more than there are connections: none may be lost
        relay.breaks.append(Break(Where.SILENT))
        task = asyncio.ensure_future(far.load(["first"]))
        while relay.breaks:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await far.load(["first"])).keys() == {"first"}
    assert await far.load(["none"]) == {}


async def test_nobody_there_is_an_error_at_once(unused_tcp_port: int) -> None:
    """A refused connection takes no patience; neither the address nor the password is shown."""
    store = RedisStore(parse_redis_address(f"redis://user4711:pass4711@127.0.0.1:{unused_tcp_port}"))
    began = time.monotonic()
    for operation in (store.load(["a"]), store.save([Write("a", b"", 1)]), store.count("a", 1, 1), store.ping()):
        with pytest.raises(StoreError, match="the connection is refused") as caught:
            await operation
        assert "4711" not in str(caught.value)
        assert str(unused_tcp_port) not in str(caught.value)
    assert time.monotonic() - began < 2
    await store.close()
