"""How the upstream is reached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from proxy.server.egress import Address, find_proxy

BASE = "https://host.example:8443/api/openai/v2"


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("/v1/models", "/api/openai/v2/models"),
        ("/v1", "/api/openai/v2"),
        ("/v1?x=1", "/api/openai/v2?x=1"),
        ("/v1/", "/api/openai/v2/"),
        ("/v10/models", "/v10/models"),
        ("/v2/other?q=%E2%82%AC", "/v2/other?q=%E2%82%AC"),
        ("//evil/v1/models", "//evil/v1/models"),
        ("/v1/@evil:1/x", "/api/openai/v2/@evil:1/x"),
        ("/v1/a#b", "/api/openai/v2/a%23b"),
        ("/v1/caf\u00e9 x", "/api/openai/v2/caf%C3%A9%20x"),
        ("/\\evil/x", "/\\evil/x"),
    ],
)
def test_v1_maps_to_the_base_url_and_the_rest_to_its_origin(target: str, url: str) -> None:
    """A target is put behind the configured origin as it is spelled."""
    assert Address.of(BASE).url(target) == f"https://host.example:8443{url}"


@given(st.text(max_size=40))
def test_no_target_chooses_the_host(target: str) -> None:
    """Whatever the target, the request goes to the configured host."""
    url = URL(Address.of(BASE).url("/" + target), encoded=True)
    assert (url.scheme, url.host, url.port) == ("https", "host.example", 8443)


PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("base", "environ", "proxy"),
    [
        (BASE, PROXY, "http://proxy:3128"),
        (BASE, {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        (BASE, {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("http://host.example/v1", {"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://localhost/v1", PROXY, None),
        ("https://127.0.0.1:9/v1", PROXY, None),
        (BASE, {**PROXY, "NO_PROXY": "*"}, None),
        (BASE, {**PROXY, "NO_PROXY": "other, host.example"}, None),
        (BASE, {**PROXY, "NO_PROXY": ".example"}, None),
        (BASE, {**PROXY, "no_proxy": "*.example"}, None),
        (BASE, {**PROXY, "NO_PROXY": "host.example:8443"}, None),
        (BASE, {**PROXY, "NO_PROXY": "host.example:443"}, "http://proxy:3128"),
        (BASE, {**PROXY, "NO_PROXY": "t.example"}, "http://proxy:3128"),
        ("https://10.1.2.3/v1", {**PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://10.1.2.3/v1", {**PROXY, "NO_PROXY": "10.1.2.3"}, None),
        ("https://10.1.2.3/v1", {**PROXY, "NO_PROXY": "11.0.0.0/8,10.1.2.4"}, "http://proxy:3128"),
        ("https://[fd00::1]/v1", {**PROXY, "NO_PROXY": "fd00::1"}, None),
        (BASE, {}, None),
    ],
)
def test_the_environment_names_the_proxy(base: str, environ: dict[str, str], proxy: str | None) -> None:
    """HTTPS_PROXY and NO_PROXY count, and this machine is never asked for through a proxy."""
    assert find_proxy(base, environ) == proxy
