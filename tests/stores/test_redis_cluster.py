"""A cluster of three nodes: the contract through it, and what happens when slots move and nodes go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import Trust, parse_redis_address
from tests.server.certificates import Authority
from tests.stores.contract import HOUR, Clock, StoreContract
from tests.stores.redis_servers import RedisServer, free_port, opened, running, wait_until, works
from tests.stores.relay import relaying


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """Three nodes without replicas, each with a third of the slots."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(running(folder / str(number), "cluster-enabled yes", "appendonly yes"))
            for number in range(3)
        ]
        for number, node in enumerate(nodes):
            slots = range(number * 16384 // 3, (number + 1) * 16384 // 3)
            assert node.ask("CLUSTER", "ADDSLOTS", *map(str, slots)) == "+OK\r\n"
            assert node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1)) == "+OK\r\n"
        for node in nodes[1:]:
            assert nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", str(node.port)) == "+OK\r\n"
        wait_until(lambda: all(is_whole(node) for node in nodes), "a cluster of three")
        yield nodes


def is_whole(node: RedisServer) -> bool:
    state = node.ask("CLUSTER", "INFO")
    return "cluster_state:ok" in state and "cluster_known_nodes:3" in state and "cluster_size:3" in state


def url_of(nodes: list[RedisServer]) -> str:
    return f"redis+cluster://127.0.0.1:1,127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}"


class TestThroughACluster(StoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, cluster: list[RedisServer]) -> None:
        type(self).url = url_of(cluster)

    url = ""

    def open(self, folder: Path, clock: Clock) -> Store:
        return RedisStore(parse_redis_address(self.url), clock=clock, prefix=str(folder))


async def test_records_share_a_slot_and_counts_are_spread(cluster: list[RedisServer]) -> None:
    """A save may name any keys, so all records lie on one node; what is counted lies on every one."""
    address = parse_redis_address(url_of(cluster))
    store = RedisStore(address)
    assert await store.save([Write(f"batch/{number}/x", b"x", HOUR) for number in range(50)])
    assert all(await asyncio.gather(*(store.count(f"limit/{number}", 1, HOUR) for number in range(50))))
    await store.close()
    found = [(node.ask("KEYS", "{sidecall}:*"), node.ask("KEYS", "sidecall:c:*")) for node in cluster]
    assert sorted(int(values[1 : values.index("\r")]) for values, _ in found) == [0, 0, 51]
    assert all(int(counts[1 : counts.index("\r")]) > 0 for _, counts in found)


async def test_a_user_with_the_rights_that_the_docs_name(cluster: list[RedisServer]) -> None:
    """It needs the map of slots beside what one server asks for."""
    rights = "~{sidecall}:* ~sidecall:c:* +@read +@write +@scripting +time +cluster|slots"
    for node in cluster:
        assert node.ask("ACL", "SETUSER", "proxy", "on", ">own-4711", *rights.split()) == "+OK\r\n"
    store = RedisStore(parse_redis_address(url_of(cluster).replace("//", "//proxy:own-4711@", 1)))
    assert await store.save([Write("mine", b"x", HOUR)])
    assert await store.count("mine", 1000, 60)
    assert await store.scan("mine") == ["mine"]
    await store.close()


async def test_one_server_of_a_cluster_says_what_was_expected(cluster: list[RedisServer]) -> None:
    """With redis:// in the place of redis+cluster:// some keys are elsewhere."""
    said = set()
    for node in cluster:
        store = RedisStore(parse_redis_address(f"redis://127.0.0.1:{node.port}"))
        try:
            await store.ping()
        except StoreError as error:
            said.add(str(error))
        await store.close()
    assert said == {"The state store cannot be used: it is a cluster: expected a redis+cluster:// address."}


async def test_no_cluster_where_one_is_expected(redis_server: RedisServer, tmp_path: Path) -> None:
    """A single server cannot be used as a cluster."""
    store = opened(f"redis+cluster://127.0.0.1:{redis_server.port}", tmp_path)
    with pytest.raises(StoreError, match="it is no cluster: expected redis://"):
        await store.ping()
    await store.close()


async def test_slots_that_move_are_followed(cluster: list[RedisServer]) -> None:
    """A slot that another node has now: the operation goes there, and none fails."""
    store = RedisStore(parse_redis_address(url_of(cluster)), prefix="moves")
    assert await store.save([Write("a", b"x", HOUR, version=0)])
    slot = cluster[0].ask("CLUSTER", "KEYSLOT", "{moves}:index")[1:].strip()
    owner = next(node for node in cluster if node.ask("KEYS", "{moves}:*") != "*0\r\n")
    target = next(node for node in cluster if node is not owner)
    names = [node.ask("CLUSTER", "MYID").split("\r\n")[1] for node in (owner, target)]
    assert target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0]) == "+OK\r\n"
    assert owner.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1]) == "+OK\r\n"
    for key in ("{moves}:index", "{moves}:v:a"):
        assert owner.ask("MIGRATE", "127.0.0.1", str(target.port), key, "0", "5000") == "+OK\r\n"
        if key == "{moves}:index":  # half of the keys are there: what needs both has to wait
            with pytest.raises(StoreError, match="its cluster is moving our keys"):
                await store.save([Write("a", b"z", HOUR)])
            assert await store.scan("") == ["a"]
    assert await store.load(["a"]) == {"a": Stored(b"x", 1)}  # asked at the new node
    for node in (target, owner, *cluster):
        assert node.ask("CLUSTER", "SETSLOT", slot, "NODE", names[1]) == "+OK\r\n"
    assert await store.save([Write("a", b"y", HOUR, version=1)])
    assert await store.load(["a"]) == {"a": Stored(b"y", 2)}
    await store.close()


async def test_a_node_that_is_killed_and_comes_back(cluster: list[RedisServer]) -> None:
    """While the node with the records is down there is a StoreError; then all is well, also where nothing repeats."""
    store = RedisStore(parse_redis_address(url_of(cluster)), prefix="killed")
    await asyncio.gather(*(store.save([Write(f"a{number}", b"x", HOUR)]) for number in range(10)))
    owner = next(node for node in cluster if node.ask("KEYS", "{killed}:*") != "*0\r\n")
    owner.kill()
    for operation in (store.load(["a1"]), store.save([Write("a1", b"y", HOUR)]), store.ping()):
        with pytest.raises(StoreError, match="cannot be used"):
            await operation
    owner.start()
    wait_until(lambda: all(is_whole(node) for node in cluster), "a cluster of three")
    assert await store.save([Write("a1", b"y", HOUR)])
    assert await store.load(["a1"]) == {"a1": Stored(b"y", 2)}
    await store.close()


async def test_connections_that_a_cluster_ended_while_idle_are_replaced(cluster: list[RedisServer]) -> None:
    """It costs nothing, also where nothing may be repeated."""
    store = RedisStore(parse_redis_address(url_of(cluster)), prefix="idle")
    for _ in range(3):
        assert await store.count("a", 6, HOUR)
        assert await store.save([Write("a", b"x", HOUR)])
        assert [node.ask("CLIENT", "KILL", "TYPE", "normal")[0] for node in cluster] == [":"] * 3
        for _ in range(3):  # the ends of the connections arrive, as they do where time passes
            await asyncio.sleep(0)
    assert (await store.load(["a"]))["a"].version == 3
    await store.close()


async def test_a_cluster_with_tls(authority: Authority, tmp_path: Path) -> None:
    """The connections to all of its nodes are made with our own trust."""
    context = authority.issue("127.0.0.1").server_context()
    port = free_port()
    with running(tmp_path / "node", "cluster-enabled yes", f"cluster-announce-port {port}") as node:
        async with relaying(node.port, context, port=port):
            assert node.ask("CLUSTER", "ADDSLOTS", *map(str, range(16384))) == "+OK\r\n"
            wait_until(lambda: "cluster_state:ok" in node.ask("CLUSTER", "INFO"), "a cluster of one")
            url = f"rediss+cluster://127.0.0.1:{port}"
            await works(opened(url, tmp_path, Trust(str(authority.file))))
            store = opened(url, tmp_path)
            with pytest.raises(StoreError, match="cannot be used"):
                await store.ping()
            await store.close()
