"""The Redis store: the contract on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.stores.base import Store
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import parse_redis_address
from tests.stores.contract import Clock, StoreContract
from tests.stores.redis_servers import RedisServer, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


class TestRedisStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self, server: RedisServer) -> None:
        type(self).url = f"redis://127.0.0.1:{server.port}"

    url = ""

    def open(self, folder: Path, clock: Clock) -> Store:
        return RedisStore(parse_redis_address(self.url), clock=clock, prefix=str(folder))
