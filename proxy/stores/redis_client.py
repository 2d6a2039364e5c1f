"""The way to Redis that an address names: one server, the master that sentinels name, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from proxy.stores.redis_address import RedisAddress, Topology, Trust
from proxy.stores.redis_cluster import Cluster
from proxy.stores.redis_node import Node, access_of
from proxy.stores.redis_scripts import Script
from proxy.stores.redis_sentinels import Sentinels


class RedisClient(Protocol):
    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> Any:
        """What a script says where its keys are. Raises the driver's errors, and StoreError."""
        ...

    async def close(self) -> None: ...


def open_client(address: RedisAddress, trust: Trust, *, seconds: float) -> RedisClient:
    """Nothing is connected yet. `seconds` bound an attempt to connect, and the wait for a reply. Raises StoreError for
    files of `trust` that cannot be used."""
    access = access_of(address, trust, seconds=seconds)
    match address.topology:
        case Topology.SENTINEL:
            return Sentinels(address.hosts, address.service, access)
        case Topology.CLUSTER:
            return Cluster(address.hosts, access)
        case Topology.SINGLE:
            return Node(address.hosts[0], access)
