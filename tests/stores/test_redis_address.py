"""What Redis addresses say."""

from __future__ import annotations

import pytest

from proxy.stores.redis_address import RedisAddress, Topology, parse_redis_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress(Topology.SINGLE, (("h", 6379),))),
        ("redis://h:1/2", RedisAddress(Topology.SINGLE, (("h", 1),), db=2)),
        ("redis://h/", RedisAddress(Topology.SINGLE, (("h", 6379),))),
        ("rediss://[::1]:7/0", RedisAddress(Topology.SINGLE, (("::1", 7),), tls=True)),
        ("redis://:p@h", RedisAddress(Topology.SINGLE, (("h", 6379),), password="p")),
        ("redis://u:p%40%2F%3A%25@h", RedisAddress(Topology.SINGLE, (("h", 6379),), user="u", password="p@/:%")),
        ("redis://u:a:b@h", RedisAddress(Topology.SINGLE, (("h", 6379),), user="u", password="a:b")),
        ("redis://:@h", RedisAddress(Topology.SINGLE, (("h", 6379),))),
        (
            "redis+sentinel://a,b:2/main",
            RedisAddress(Topology.SENTINEL, (("a", 26379), ("b", 2)), service="main"),
        ),
        (
            "rediss+sentinel://:p@a/main%20one/3",
            RedisAddress(Topology.SENTINEL, (("a", 26379),), tls=True, password="p", service="main one", db=3),
        ),
        ("redis+cluster://a:1,[fe80::1]", RedisAddress(Topology.CLUSTER, (("a", 1), ("fe80::1", 6379)))),
        ("redis+cluster://a/0", RedisAddress(Topology.CLUSTER, (("a", 6379),))),
    ],
)
def test_an_address_is_read(url: str, address: RedisAddress) -> None:
    """Ports have defaults, credentials are decoded, and the scheme says how servers belong together."""
    assert parse_redis_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "redis:",
        "redis://",
        "redis:/h",
        "Redis://h",
        "rediss2://h",
        "redis+other://h",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:x",
        "redis://h:",
        "redis://a,b",
        "redis://a b",
        "redis://::1",
        "redis://[::1",
        "redis://h/x",
        "redis://h/0/1",
        "redis://h/²",
        "redis://h?db=1",
        "redis://h#1",
        "redis://u4711@h",
        "redis://u4711:@h",
        "redis://:p4711%ff@h",
        "redis://h\n",
        "redis+sentinel://h",
        "redis+sentinel://h/",
        "redis+sentinel://h/s/x",
        "redis+sentinel://a,/s",
        "redis+cluster://h/1",
        "redis+cluster://h/s",
    ],
)
def test_what_is_no_address_is_refused_without_being_shown(url: str) -> None:
    """Whatever is wrong, the message holds nothing of the address, since it may hold a password."""
    with pytest.raises(ValueError) as caught:
        parse_redis_address(url)
    assert "4711" not in str(caught.value)


def test_credentials_are_in_no_repr() -> None:
    """An address may end in a log by its repr."""
    shown = repr(parse_redis_address("redis://user4711:pass4711@h"))
    assert "4711" not in shown
    assert "'h'" in shown
