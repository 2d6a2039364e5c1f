"""Assertions of the contract are shown in full when they fail, as those of test modules are. One Redis for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.stores.contract")

from tests.server.certificates import Authority  # noqa: E402 - behind the rewriting of what is imported here
from tests.stores.redis_servers import RedisServer, running  # noqa: E402


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that tests share: each takes names of its own, and leaves the settings as they were."""
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
