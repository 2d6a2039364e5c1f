"""Who may use the admin page."""

from __future__ import annotations

from base64 import b64encode

import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.server.adminaccess import is_from_elsewhere, is_local_host, refusal, shown_token


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("localhost:15490", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9", True),
        ("[::1]:1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_host_names_this_machine_or_not(host: str, local: bool) -> None:
    """Loopback names and addresses alone are this machine."""
    assert is_local_host(host) is local


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("Bearer abc", b"abc"),
        ("bearer  abc ", b"abc"),
        (basic("anybody:abc"), b"abc"),
        (basic(":abc"), b"abc"),
        (basic("a:b:c"), b"b:c"),
        (basic("a:"), b""),
        (basic("a:ké"), "ké".encode()),
        ("Bearer k\udcc3\udca9", "ké".encode()),
        (basic("abc"), None),
        ("Basic abc", None),
        ("Basic é", None),
        ("Digest abc", None),
        ("abc", None),
        ("", None),
    ],
)
def test_a_token_is_a_bearer_token_or_a_password(header: str, shown: bytes | None) -> None:
    """The name beside a password is anybody's; what cannot be read shows none."""
    assert shown_token(header) == shown


@pytest.mark.parametrize(
    ("headers", "elsewhere"),
    [
        ({}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://admin:15490"}, True),
        ({"origin": "http://admin:15490"}, False),
        ({"origin": "http://ADMIN:15490"}, False),
        ({"origin": "http://admin:3000"}, True),
        ({"origin": "http://admin"}, True),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
    ],
)
def test_a_browser_says_where_a_request_comes_from(headers: dict[str, str], elsewhere: bool) -> None:
    """Another port is another site too; programs say nothing."""
    request = make_mocked_request("POST", "/admin/approvals/x", headers={"host": "admin:15490", **headers})
    assert is_from_elsewhere(request) is elsewhere


@pytest.mark.parametrize(
    ("method", "status"), [("GET", None), ("HEAD", None), ("POST", 403), ("DELETE", 403), ("OPTIONS", 403)]
)
def test_another_site_may_lead_to_the_page_and_change_nothing(method: str, status: int | None) -> None:
    """Also where the browser shows the right token."""
    headers = {"host": "admin", "authorization": basic("me:t"), "sec-fetch-site": "cross-site"}
    refused = refusal(make_mocked_request(method, "/admin/", headers=headers), token="t", insecure=False)
    assert (refused and refused.status) == status


def test_a_browser_and_a_program_are_told_how_to_show_the_token() -> None:
    """One challenge each; the token is looked at before anything else is said."""
    headers = {"host": "admin", "origin": "http://evil.example", "authorization": basic("me:wrong")}
    refused = refusal(make_mocked_request("POST", "/admin/", headers=headers), token="t", insecure=False)
    assert refused is not None
    assert refused.status == 401
    assert [one.partition(" ")[0] for one in refused.headers.getall("www-authenticate")] == ["Bearer", "Basic"]


def test_without_a_token_a_page_of_this_machine_changes_nothing_either() -> None:
    """A development server on another port is no part of the admin page."""
    headers = {"host": "127.0.0.1:15490", "origin": "http://127.0.0.1:3000"}
    refused = refusal(make_mocked_request("POST", "/admin/", headers=headers), token=None, insecure=True)
    assert refused is not None
    assert refused.status == 403
