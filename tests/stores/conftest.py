"""Assertions of the contract are shown in full when they fail, as those of test modules are. One Redis for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.redis_servers import RedisServer, running

pytest.register_assert_rewrite("tests.stores.contract")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that tests share: each takes names of its own, and leaves the settings as they were."""
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server
