from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.policy.hosts import hosts_of, is_private, normal_pattern

PRIVATE = [
    "localhost",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "168.63.129.16",
    "2822734096",
    "192.0.0.192",
    "10.1.2.3",
    "192.168.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "100.64.0.1",
    "0",
    "0.0.0.0",
    "[::]",
    "[fe80::1%25eth0]",
    "[fd00::1]",
    "[64:ff9b::7f00:1]",
    "[::127.0.0.1]",
    "[2002:7f00:1::]",
    "010.0.0.1",
    "127.0.0.1.",
    "１２７.0.0.1",
    "127。0。0。1",
    "%31%32%37.0.0.1",
    "ⓛocalhost",
    "loc\xadalhost",
    "LOCALHOST.",
    "printer",
    "db.internal",
    "api.svc",
    "x.cluster.local",
    "a.localhost",
    "host.local",
    "u:p@127.0.0.1:80",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "0" * 40 + "177.0.0.1",
]
PUBLIC = [
    "168.63.129.17",
    "192.0.1.1",
    "example.com",
    "172.32.0.1",
    "8.8.8.8",
    "134744072",
    "100.128.0.1",
    "[2001:4860:4860::8888]",
    "internal.example.com",
    "1.2.3.999",
    "089.1.1.1",
    "0xzz.example",
    "1.2.3.4.5",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_host_is_known_in_any_spelling(host: str) -> None:
    """No spelling of a private host passes as a public one."""
    assert all(map(is_private, hosts_of(f"http://{host}/")))
    assert hosts_of(f"http://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1%20/",
        "http://127.0.0.1%09x/",
        "http://127.0.0.1 /",
        "http://127.0.0.1\u2028/",
        "http://127.0.0.1%00.example.com/",
        "http://127.0.0.1%23.example.com/",
        "http://127.0.0.1%2f.example.com/",
        "http://127.0.0.1;.example.com/",
        "http://127.0.0.1:80:80/",
        "\ufeffhttp://127.0.0.1/",
        "\xa0http://127.0.0.1/\u200b",
        "user@127.0.0.1/x",
        "user:word@127.0.0.1",
    ],
)
def test_a_reader_that_stops_early_is_counted_with(url: str) -> None:
    """What stands before a character that no host has is a reading of the host, and blanks around are none of it."""
    assert any(map(is_private, hosts_of(url)))


@pytest.mark.parametrize(
    "url", ["http://例え。jp/", "http://हिन्दी.example/", "http://a_b.example/", "http://[2001:db8::1]:80/"]
)
def test_a_host_of_other_letters_has_one_reading(url: str) -> None:
    """Letters, marks and dots beyond ASCII do not end a host."""
    (host,) = hosts_of(url)
    assert not is_private(host)


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_host_is_not_private(host: str) -> None:
    """Public addresses and names with a dot are not private."""
    assert not any(map(is_private, hosts_of(f"http://{host}/")))


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://A.Example.ORG:8080/x?y#z", {"a.example.org"}),
        ("https://a.example.org@example.com/", {"example.com"}),
        ("https://example.com/?a.example.org", {"example.com"}),
        ("https://example.com\\@127.0.0.1/", {"example.com", "127.0.0.1"}),
        ("http://a@b@c/", {"c", "b"}),
        ("http:example.com", {"example.com"}),
        ("https:///example.com/x", {"example.com"}),
        (" \tht\ntp://example.com", {"example.com"}),
        ("//example.com/x", {"example.com"}),
        ("redis://cache:6379/0", {"cache"}),
        ("jdbc:postgresql://db/x", {"db"}),
        ("localhost:8080/x", {"localhost"}),
        ("10.0.0.1", {"10.0.0.1"}),
        ("http://b\u00fccher.example/", {"xn--bcher-kva.example"}),
        ("http://[::1", {"::1"}),
        ("x", set()),
        ("hello world", set()),
        ("", set()),
        ("file:///etc/passwd", set()),
        ("C:\\x", set()),
        ("alice@example.com", {"example.com"}),
    ],
)
def test_the_hosts_of_a_text(url: str, hosts: set[str]) -> None:
    """Where readers differ, every reading is given; a plain word is no URL."""
    assert hosts_of(url) == hosts


def test_patterns_are_compared_in_the_same_spelling() -> None:
    """A pattern is folded as hosts are."""
    assert normal_pattern("B\u00fccher.example.") == "xn--bcher-kva.example"
    assert normal_pattern("*.Example.org") == "*.example.org"


@given(st.text(max_size=40))
def test_no_text_is_too_odd(text: str) -> None:
    """Whatever a model writes, reading it does not fail."""
    for prefix in ("", "http://", "//"):
        for host in hosts_of(prefix + text):
            is_private(host)
