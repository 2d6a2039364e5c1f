"""Who may call."""

from __future__ import annotations

import hashlib

import pytest

from proxy.config import Client
from proxy.errors import RequestError
from proxy.server.callers import Callers
from proxy.server.http import Headers

LISTED = Callers(
    [
        Client.model_validate({"name": "team-a", "keySha256": hashlib.sha256(b"key-a").hexdigest()}),
        Client.model_validate({"name": "team-b", "keySha256": hashlib.sha256(b"key-b").hexdigest()}),
    ]
)


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ((("Authorization", "Bearer key-a"),), "team-a"),
        ((("authorization", "bearer  key-b "),), "team-b"),
        ((("api-key", "key-b"),), "team-b"),
        ((("authorization", "Bearer placeholder"), ("api-key", "key-a")), "team-a"),
    ],
)
def test_a_listed_caller_is_known_by_its_key(headers: Headers, name: str) -> None:
    """A bearer token or an api-key header names the caller."""
    assert LISTED.identify(headers) == name


@pytest.mark.parametrize(
    "headers",
    [(), (("authorization", "Bearer key-c"),), (("authorization", "Bearer "),), (("authorization", "Basic key-a"),)],
)
def test_nobody_else_is_let_in(headers: Headers) -> None:
    """Any other caller is refused with 401."""
    with pytest.raises(RequestError) as caught:
        LISTED.identify(headers)
    assert caught.value.status == 401


def test_without_a_list_callers_have_no_name() -> None:
    """An empty list lets everybody in."""
    assert Callers([]).identify(()) == ""
