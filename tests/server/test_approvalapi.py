"""The JSON API of approvals, as `curl` and the buttons of the admin page use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.core.batch.approval import ApprovalState
from proxy.core.calls import Tenant
from proxy.core.policy.consults import AskPerson, PersonSaid
from proxy.server.ledger import Ledger
from tests.server.origin import answer, origin
from tests.server.proxied import Proxied, proxied
from tests.server.test_approvaldesk import asked

TOKEN = {"authorization": "Bearer admin-1"}


@dataclass
class Api:
    """A proxy whose admin port has a token, and a client for it."""

    here: Proxied
    session: aiohttp.ClientSession

    async def ask(self, question: AskPerson) -> PersonSaid:
        services = self.here.running.services

        async def tenant() -> Tenant:
            return Tenant("t")

        return await services.desk.ask(Ledger(services.store, tenant, ttl=60.0), question, remembered=60.0)

    async def get(self, query: str = "", **headers: str) -> tuple[int, Any]:
        async with self.session.get(f"{self.here.admin}/admin/approvals{query}", headers=headers or TOKEN) as got:
            return got.status, await got.json()

    async def post(
        self, approval_id: str, sent: Any, *, method: str = "POST", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        url = f"{self.here.admin}/admin/approvals/{approval_id}"
        given = TOKEN if headers is None else headers
        async with self.session.request(method, url, data=data, headers=given, allow_redirects=False) as got:
            return got.status, await got.json() if got.content_type == "application/json" else None


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    (tmp_path / "token").write_text("admin-1")
    admin = {"token": {"file": str(tmp_path / "token")}}
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, admin=admin) as here,
        aiohttp.ClientSession() as session,
    ):
        yield Api(here, session)


async def test_an_approval_is_listed(api: Api) -> None:
    """With the keys of the contract, and its arguments as the model spelled them."""
    question = replace(asked(), shown='{"amount":1.10,"wide":10000000000000000000001}')
    said = await api.ask(question)
    async with api.session.get(f"{api.here.admin}/admin/approvals?state=pending", headers=TOKEN) as got:
        text = await got.text()
        assert (got.status, got.headers["cache-control"]) == (200, "no-store")
    assert '"args":{"amount":1.10,"wide":10000000000000000000001}' in text
    (entry,) = json.loads(text)["approvals"]
    times = [entry.pop("createdAt"), entry.pop("expiresAt")]
    assert all(len(time) == len("2026-01-01T00:00:00.000Z") and time.endswith("Z") for time in times)
    assert times == sorted(times)
    assert entry.pop("args")["amount"] == 1.1
    assert entry == {
        "id": said.approval_id,
        "state": "pending",
        "tool": "pay",
        "callId": "call_1",
        "api": "chat",
        "client": "",
        "policy": "p",
        "rule": "r",
        "note": "",
    }


@pytest.mark.parametrize(("decision", "state"), [("approve", "approved"), ("deny", "denied")])
async def test_an_approval_is_decided_once(decision: str, state: str, api: Api) -> None:
    """200 with the entry, then 409; the first decision stands."""
    said = await api.ask(asked(a=1))
    status, entry = await api.post(said.approval_id, {"decision": decision, "note": "well"})
    assert (status, entry["id"], entry["state"], entry["note"]) == (200, said.approval_id, state, "well")
    for again in ("approve", "deny"):
        status, refused = await api.post(said.approval_id, {"decision": again})
        assert (status, refused["error"]["code"]) == (409, "already_decided")
    assert (await api.ask(asked(a=1))).word == state
    assert await api.get("?state=pending") == (200, {"approvals": []})
    assert [e["state"] for e in (await api.get())[1]["approvals"]] == ["used" if state == "approved" else "denied"]


async def test_a_list_comes_in_pages(api: Api) -> None:
    """`next` leads on, until there is no more."""
    ids = [(await api.ask(asked(a=number))).approval_id for number in range(5)]
    await api.post(ids[0], {"decision": "approve"})
    found, query = [], "?limit=2"
    while query:
        status, page = await api.get(query)
        found.append([entry["id"] for entry in page["approvals"]])
        query = f"?limit=2&after={page['next']}" if "next" in page else ""
    assert status == 200
    assert sorted([*found[0], *found[1]]) == sorted(ids[1:])
    assert (found[2], len(found)) == ([ids[0]], 3)


@pytest.mark.parametrize(
    "query",
    [*(f"limit={n}" for n in ("0", "1001", "-1", "x", "", "1e2")), "after=apr_1", "after=all.apr_1", "after=others."],
)
async def test_a_page_that_is_none(query: str, api: Api) -> None:
    """422."""
    assert (await api.get(f"?{query}"))[0] == 422


async def test_an_approval_that_has_expired_is_not_decided(api: Api) -> None:
    """409, as for one that was decided."""
    said = await api.ask(asked(ttl=0.01, a=1))
    await asyncio.sleep(0.02)
    assert (await api.post(said.approval_id, {"decision": "approve"}))[0] == 409
    assert [e["state"] for e in (await api.get())[1]["approvals"]] == ["expired"]


async def test_an_approval_that_nobody_knows(api: Api) -> None:
    """404, in the form of every error."""
    status, refused = await api.post("no-such-approval", {"decision": "approve"})
    assert (status, refused["error"]["code"], set(refused["error"])) == (
        404,
        "unknown_approval",
        {"message", "type", "param", "code"},
    )


@pytest.mark.parametrize(
    "sent",
    [
        *(
            {"decision": "maybe"},
            {"decision": "Approve"},
            {"decision": None},
            {"decision": ["approve"]},
            {},
            [],
            "approve",
        ),
        *(b"", b"decision=approve", b"{", b'{"decision": "approve", "note": 7}'),
        {"decision": "approve", "note": "x" * 2001},
    ],
)
async def test_another_decision_is_refused(sent: Any, api: Api) -> None:
    """422, and the approval is as it was."""
    said = await api.ask(asked(a=1))
    assert (await api.post(said.approval_id, sent))[0] == 422
    assert [e["state"] for e in (await api.get())[1]["approvals"]] == ["pending"]


async def test_a_body_that_is_too_long(api: Api) -> None:
    """It is refused before it is read whole."""
    said = await api.ask(asked(a=1))
    assert (await api.post(said.approval_id, b" " * 70_000))[0] == 413


@pytest.mark.parametrize(("query", "status"), [("?state=maybe", 422), ("?state=", 422), ("/x", 404), ("/x/y", 404)])
async def test_what_is_not_there(query: str, status: int, api: Api) -> None:
    """States that are none, and paths that are none."""
    assert (await api.get(query))[0] == status


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_other_methods(method: str, api: Api) -> None:
    """Only POST decides."""
    said = await api.ask(asked(a=1))
    assert (await api.post(said.approval_id, {"decision": "approve"}, method=method))[0] == 405


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic YTphZG1pbg=="}])
async def test_nobody_decides_without_the_token(headers: dict[str, str], api: Api) -> None:
    """401, whatever the id."""
    said = await api.ask(asked(a=1))
    for approval_id in (said.approval_id, "no-such-approval"):
        assert (await api.post(approval_id, {"decision": "approve"}, headers=headers))[0] == 401
    async with api.session.get(f"{api.here.admin}/admin/approvals", headers=headers) as got:
        assert got.status == 401
    assert [e["state"] for e in (await api.get())[1]["approvals"]] == [str(ApprovalState.PENDING)]


async def test_what_curl_sends_is_json(api: Api) -> None:
    """It calls every body a form."""
    said = await api.ask(asked(a=1))
    form = {**TOKEN, "content-type": "application/x-www-form-urlencoded"}
    status, refused = await api.post(said.approval_id, b'{"decision": "yes"}', headers=form)
    assert (status, refused["error"]["type"]) == (422, "invalid_request_error")
    status, entry = await api.post(said.approval_id, b' {"decision": "approve", "note": "a+b"}', headers=form)
    assert (status, entry["state"], entry["note"]) == (200, "approved", "a+b")


async def test_a_button_of_the_page_decides(api: Api) -> None:
    """The page lists what waits, escaped; its form leads back to it."""
    said = await api.ask(asked("<b>", a="<script>"))
    async with api.session.get(f"{api.here.admin}/admin/", headers=TOKEN) as got:
        page = await got.text()
        assert "form-action 'self'" in got.headers["content-security-policy"]
    assert f'action="/admin/approvals/{said.approval_id}"' in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    form = {**TOKEN, "content-type": "application/x-www-form-urlencoded"}
    assert (await api.post(said.approval_id, b"decision=deny&note=a+b", headers=form))[0] == 303
    (entry,) = (await api.get())[1]["approvals"]
    assert (entry["state"], entry["note"]) == ("denied", "a b")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:9"}, 200),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example", "content-type": "application/x-www-form-urlencoded"}, 403),
    ],
)
async def test_without_a_token_other_sites_decide_nothing(headers: dict[str, str], status: int) -> None:
    """A page of another site that a browser of this machine shows cannot approve, by whatever name; nor can
    another program of this machine that serves pages."""
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, admin={"insecure": True}) as here,
        aiohttp.ClientSession() as session,
    ):
        api = Api(here, session)
        said = await api.ask(asked(a=1))
        assert (await api.post(said.approval_id, {"decision": "approve"}, headers=headers))[0] == status
