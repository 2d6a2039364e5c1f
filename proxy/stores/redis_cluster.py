"""A cluster: which node serves a key, learned from any node, and followed when it changes.

A reply that names another node was no answer: the script goes there. After an error that may mean another owner, the
map of slots is fetched anew before the next script. The driver has a client for clusters of its own, which closes idle
connections that others are just taking, and repeats what may not be repeated. This module must not know any operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from proxy.errors import StoreError
from proxy.stores.redis_errors import FAILURES, NotConnectedError, is_lost
from proxy.stores.redis_node import Access, Node, Place
from proxy.stores.redis_scripts import Script

_REDIRECTS = 8
_AGAIN_AFTER = 0.05
_SECONDS_A_NODE = 1.0


class Cluster:
    def __init__(self, seeds: Sequence[Place], access: Access) -> None:
        self._seeds = list(seeds)
        self._access = access
        self._nodes: dict[Place, Node] = {}
        self._owners: list[Place | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._outdated = True
        self._learning = asyncio.Lock()

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> Any:
        """What a script says on the node of its keys, which are all in one slot."""
        slot = key_slot(keys[0])
        node, asking = await self._owner(slot), False
        last: exceptions.RedisError = NotConnectedError("The nodes name each other.")
        for _ in range(_REDIRECTS):
            try:
                return await node.run(script, keys, arguments, asking=asking)
            except exceptions.MovedError as error:
                node, asking = self._node((error.host or node.place[0], error.port)), False
                self._owners[slot] = node.place
                self._outdated = True
            except exceptions.AskError as error:
                node, asking = self._node((error.host or node.place[0], error.port)), True
            except exceptions.TryAgainError as error:
                last = error
                await asyncio.sleep(_AGAIN_AFTER)
            except FAILURES as error:
                if is_lost(error):
                    self._outdated = True
                    self._ask_last(node.place)
                raise
        raise last

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()

    def _node(self, place: Place) -> Node:
        return self._nodes.setdefault(place, Node(place, self._access))

    def _ask_last(self, place: Place) -> None:
        if place in self._nodes:
            self._nodes[place] = self._nodes.pop(place)

    async def _owner(self, slot: int) -> Node:
        if self._outdated:
            async with self._learning:
                if self._outdated:
                    await self._learn()
        place = self._owners[slot]
        if place is None:
            self._outdated = True
            raise NotConnectedError("No node serves the slot.")
        return self._node(place)

    async def _learn(self) -> None:
        """Fetch the map of slots. Raises NotConnectedError where no node gives it."""
        last: BaseException | None = None
        for place in dict.fromkeys([*self._nodes, *self._seeds]):
            try:
                async with asyncio.timeout(_SECONDS_A_NODE):
                    slots = await self._node(place).ask("CLUSTER", "SLOTS")
            except exceptions.ResponseError as error:
                if "cluster support disabled" in str(error):
                    raise StoreError("The state store cannot be used: it is no cluster: expected redis://.") from error
                last = error
            except (*FAILURES, TimeoutError) as error:
                last = error
                self._ask_last(place)
            else:
                await self._take(slots, place[0])
                return
        raise NotConnectedError("No node of the cluster answers.") from last

    async def _take(self, slots: Sequence[Any], asked: str) -> None:
        """`asked`: the host of a node that does not say its own."""
        owners: list[Place | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, (host, port, *_), *_ in slots:
            name = host.decode() if host not in (None, b"", b"?") else asked
            owners[first : last + 1] = [(name, port)] * (last + 1 - first)
        self._owners, self._outdated = owners, False
        for node in [node for node in self._nodes.values() if node.place not in owners and not node.busy]:
            await self._nodes.pop(node.place).close()
