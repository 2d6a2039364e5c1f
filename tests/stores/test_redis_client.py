"""Which way an address names."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.redis_address import Trust, parse_redis_address
from proxy.stores.redis_client import open_client
from proxy.stores.redis_cluster import Cluster
from proxy.stores.redis_node import Node
from proxy.stores.redis_sentinels import Sentinels


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://h/1", Node),
        ("rediss://h", Node),
        ("redis+sentinel://h,i/main", Sentinels),
        ("rediss+cluster://h,i", Cluster),
    ],
)
async def test_an_address_names_a_way(url: str, kind: type) -> None:
    """Nothing is connected by opening it, and closing it again is no error."""
    client = open_client(parse_redis_address(url), Trust(), seconds=1)
    assert type(client) is kind
    await client.close()


@pytest.mark.parametrize("url", ["rediss://h", "rediss+sentinel://h/main", "rediss+cluster://h"])
@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_files_that_cannot_be_read_stop_the_start(name: str, url: str, tmp_path: Path) -> None:
    """They are read when the way is opened."""
    (tmp_path / "empty.pem").touch()
    with pytest.raises(StoreError, match="certificate or key of the state cannot be read"):
        open_client(parse_redis_address(url), Trust(str(tmp_path / name)), seconds=1)
