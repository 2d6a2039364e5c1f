"""The admin port: what is open to everybody, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

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
        ({"authorization": "Basic YTphZG1pbi0y"}, 401),
        ({"authorization": "Bearer admin-1"}, 200),
        ({"authorization": "Basic YTphZG1pbi0x"}, 200),
    ],
)
async def test_the_page_needs_the_token(
    headers: dict[str, str], status: int, token: Proxied, client: aiohttp.ClientSession
) -> None:
    """Only the right token opens the page, as a bearer token or as a browser's password; it is not on the page."""
    async with client.get(f"{token.admin}/admin/", headers=headers) as got:
        assert got.status == status
        assert "admin-1" not in await got.text()
        challenges = [one.partition(" ")[0] for one in got.headers.getall("www-authenticate", [])]
        assert challenges == (["Bearer", "Basic"] if status == 401 else [])


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


# ---------------------------------------------------------------- the playground

BEARER = {"authorization": "Bearer admin-1"}
BASIC = {"authorization": "Basic YTphZG1pbi0x"}
SECRET = "sk-that-nobody-may-see"


@pytest.fixture
async def governed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxied]:
    """With a policy that blocks `delete`, and secrets of every kind."""
    monkeypatch.setenv("SECRET", SECRET)
    (tmp_path / "token").write_text("admin-1")
    async with (
        origin(answer(b"ok")) as there,
        proxied(
            there.url,
            policy=tmp_path / "policy.yaml",
            admin={"token": {"file": str(tmp_path / "token")}},
            upstream={"apiKey": {"env": "SECRET"}},
            clients=[{"name": "team", "key": {"env": "SECRET"}}],
            tools=[{"name": "t", "http": {"method": "GET", "url": "http://h/", "headers": {"x": {"env": "SECRET"}}}}],
        ) as here,
    ):
        yield here


async def test_a_call_is_explained_as_json(governed: Proxied, client: aiohttp.ClientSession) -> None:
    """By the policies that are loaded, in the words of the command."""
    url = f"{governed.admin}/admin/explain"
    async with client.post(url, headers=BEARER, json={"tool": "delete", "args": {"id": 1}}) as got:
        assert (got.status, got.headers["cache-control"]) == (200, "no-store")
        found = await got.json()
    told = "Tool call blocked by policy p/r: no"
    assert {key: found[key] for key in ("decision", "policy", "rule", "args", "result")} == {
        "decision": "blocked",
        "policy": "p",
        "rule": "r",
        "args": None,
        "result": told,
    }
    assert found["text"].splitlines()[-2:] == ["decision: blocked by p/r", f"the model is told: {told}"]
    async with client.post(url, headers=BEARER, data=b"{") as got:
        assert got.status == 422
        assert (await got.json())["error"]["message"].startswith("the call: expected JSON")
    async with client.post(url, headers=BEARER, data=b" " * 70_000) as got:
        assert got.status == 413
    async with client.get(url, headers=BEARER) as got:
        assert got.status == 405


@pytest.mark.parametrize(("sent", "status"), [('{"tool": "delete"}', 200), ("[]", 422), ('"x"', 422), ("{", 422)])
async def test_json_that_is_called_a_form_is_answered_as_json(
    sent: str, status: int, governed: Proxied, client: aiohttp.ClientSession
) -> None:
    """As `curl -d` calls it."""
    form = {**BEARER, "content-type": "application/x-www-form-urlencoded"}
    async with client.post(f"{governed.admin}/admin/explain", headers=form, data=sent) as got:
        assert (got.status, got.content_type) == (status, "application/json")
        assert ("error" in await got.json()) is (status == 422)


async def test_a_call_is_explained_on_the_page(governed: Proxied, client: aiohttp.ClientSession) -> None:
    """The form of the page leads to the page, with the answer, and without a secret."""
    form = {"tool": "delete", "args": '{"id": "<i>"}', "owner": "client", "api": "chat"}
    async with client.post(f"{governed.admin}/admin/explain", headers=BASIC, data=form) as got:
        page = await got.text()
        assert (got.status, got.content_type) == (200, "text/html")
        assert "script" not in got.headers["content-security-policy"]
    assert "Decision: <strong>blocked</strong>" in page
    assert "tools: delete fits delete" in page
    assert "{&quot;id&quot;: &quot;&lt;i&gt;&quot;}</textarea>" in page
    for secret in (SECRET, "admin-1"):
        assert secret not in page
    async with client.post(f"{governed.admin}/admin/explain", headers=BASIC, data={**form, "args": "{"}) as got:
        assert got.status == 422
        assert '<p class="problem">arguments: expected JSON' in await got.text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_a_page_of_another_site_posts_nothing(
    headers: dict[str, str], status: int, governed: Proxied, client: aiohttp.ClientSession
) -> None:
    """A browser sends the password by itself: what another site makes it post is refused."""
    for path, sent in (("explain", {"tool": "delete"}), ("approvals/none", {"decision": "approve"})):
        async with client.post(f"{governed.admin}/admin/{path}", headers={**BASIC, **headers}, data=sent) as got:
            assert got.status == (404 if status == 200 and path != "explain" else status)


async def test_the_page_shows_what_rules_did_and_what_is_held(governed: Proxied, client: aiohttp.ClientSession) -> None:
    """Counts are this process's own; the page is loaded again by itself only when it is asked to be."""
    metrics = governed.running.services.metrics
    for mode in ("enforce", "enforce", "shadow"):
        labels = {"api": "chat", "owner": "client", "decision": "blocked", "policy": "p", "rule": "r", "mode": mode}
        metrics.tool_call(tool="delete", declared=True, **labels)
    metrics.held("batch_1", count=2, since=governed.running.services.clock() - 7200, tools=["<pay>", "<pay>"])
    async with client.get(f"{governed.admin}/admin/?live", headers=BASIC) as got:
        page = await got.text()
    assert "<td>p</td><td>r</td><td>block</td><td>enforce</td>" in page
    counts = [f'<td class="number">{count}</td>' for count in (2, 1, 0)]
    assert "".join(counts) in page
    assert '<td>&lt;pay&gt;</td><td class="number">2</td><td>2 h</td>' in page
    assert 'http-equiv="refresh"' in page
