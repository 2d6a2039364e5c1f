"""The admin port: what is open to everybody, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.server.admin import is_local_host
from proxy.server.audit import AuditRecord
from tests.server.origin import answer, origin
from tests.server.proxied import Proxied, proxied


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def token(tmp_path: Path) -> AsyncIterator[Proxied]:
    (tmp_path / "token").write_text("admin-1")
    admin = {"token": {"file": str(tmp_path / "token")}}
    async with origin(answer(b"ok")) as there, proxied(there.url, admin=admin) as here:
        yield here


async def test_probes_and_metrics_are_open(token: Proxied, client: aiohttp.ClientSession) -> None:
    """Probes and scrapers have no token."""
    for path in ("/livez", "/readyz", "/metrics"):
        async with client.get(f"{token.admin}{path}") as got:
            assert got.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic admin-1"}, 401),
        ({"authorization": "Bearer admin-1"}, 200),
    ],
)
async def test_the_page_needs_the_token(
    headers: dict[str, str], status: int, token: Proxied, client: aiohttp.ClientSession
) -> None:
    """Only the right token opens the page."""
    async with client.get(f"{token.admin}/admin/", headers=headers) as got:
        assert got.status == status


async def test_without_a_token_there_is_no_page(client: aiohttp.ClientSession) -> None:
    """Nothing is under /admin/ without a token."""
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        for path in ("/admin/", "/admin/approvals", "/elsewhere"):
            async with client.get(f"{here.admin}{path}") as got:
                assert got.status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8"}, 200),
    ],
)
async def test_an_insecure_page_answers_this_machine_only(
    headers: dict[str, str], status: int, client: aiohttp.ClientSession
) -> None:
    """Without a token, Host and Origin must name this machine."""
    async with origin(answer(b"ok")) as there, proxied(there.url, admin={"insecure": True}) as here:
        got = await client.get(f"{here.admin}/admin/", headers=headers)
        assert (got.status, await got.read() != b"") == (status, True)


async def test_what_models_say_is_no_markup(client: aiohttp.ClientSession) -> None:
    """Names on the page are escaped, and no script may run there."""
    name = "<script>alert(1)</script>"
    given: dict[str, Any] = dict.fromkeys(
        (
            "request_id",
            "trace_id",
            "tenant",
            "client",
            "api",
            "model",
            "call_id",
            "tool",
            "owner",
            "decision",
            "policy",
            "rule",
            "mode",
        ),
        name,
    )
    async with origin(answer(b"ok")) as there, proxied(there.url, admin={"insecure": True}) as here:
        here.running.services.audit.record(AuditRecord(**given, args={}))
        async with client.get(f"{here.admin}/admin/") as got:
            page = await got.text()
            assert "script" not in got.headers["content-security-policy"]
    assert "&lt;script&gt;" in page
    assert name not in page


async def test_readiness_can_need_the_store(client: aiohttp.ClientSession) -> None:
    """With readyNeedsStore a store that answers is ready."""
    async with origin(answer(b"ok")) as there, proxied(there.url, admin={"readyNeedsStore": True}) as here:
        got = await client.get(f"{here.admin}/readyz")
        assert (got.status, await got.text()) == (200, "ok\n")


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
