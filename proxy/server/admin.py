"""The admin port: health and metrics for everybody who reaches it, the admin page for those who may.

Containers of a pod share loopback, and an agent must not approve its own calls: without a token there is no admin page,
unless the configuration opens it to requests of this machine. Never on the clients' port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiohttp import web

from proxy.core.batch.approval import Approval, ApprovalState
from proxy.core.jsontext import render
from proxy.errors import ProxyError, StoreError
from proxy.metrics import Metrics
from proxy.server import approvalapi, playground
from proxy.server.adminaccess import problem, refusal
from proxy.server.adminbody import form_fields, is_form, read_body
from proxy.server.adminpage import Page, render_page
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.audit import Audit
from proxy.server.health import Health
from proxy.server.replies import error_body
from proxy.server.snapshots import Snapshots

_SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


class AdminPlane:
    """Serves the admin port. `token` reads the admin token, and is None where there is none."""

    def __init__(
        self,
        *,
        health: Health,
        metrics: Metrics,
        snapshots: Snapshots,
        audit: Audit,
        desk: ApprovalDesk,
        token: Callable[[], str] | None,
        insecure: bool,
        clock: Callable[[], float],
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._snapshots = snapshots
        self._audit = audit
        self._desk = desk
        self._token = token
        self._insecure = insecure
        self._clock = clock

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """What aiohttp's server calls for each request."""
        match request.path:
            case "/livez":
                return web.Response(text="ok\n")
            case "/readyz":
                unready = await self._health.problem()
                return web.Response(status=503 if unready else 200, text=f"{unready or 'ok'}\n")
            case "/metrics":
                return await self._exposition(request)
            case path if path == "/admin" or path.startswith("/admin/"):
                return await self._admin(request)
            case _:
                return problem(404, "there is nothing here")

    async def _exposition(self, request: web.BaseRequest) -> web.Response:
        if self._desk.is_used or self._snapshots.current.policies.asks_people:
            with suppress(StoreError):  # what was counted last stays
                await self._desk.count()
        # In a thread: thousands of series take a tenth of a second, which no stream should wait for.
        body, content_type = await asyncio.to_thread(self._metrics.render, request.headers.get("accept", ""))
        return web.Response(body=body, headers={"content-type": content_type})

    async def _admin(self, request: web.BaseRequest) -> web.Response:
        token = self._token() if self._token is not None else None
        if (refused := refusal(request, token=token, insecure=self._insecure)) is not None:
            return refused
        if request.path == approvalapi.PATH or request.path.startswith(f"{approvalapi.PATH}/"):
            return await approvalapi.serve_approvals(request, self._desk)
        if request.path == playground.PATH:
            return await self._explain(request)
        if request.path not in ("/admin", "/admin/") or request.method not in ("GET", "HEAD"):
            return problem(404, "there is nothing here")
        return await self._page(playground.Answer(), live="live" in request.query)

    async def _explain(self, request: web.BaseRequest) -> web.Response:
        """What a call would be decided to be: as JSON, or on the page, whose form it came from."""
        policies = self._snapshots.current.policies
        try:
            if request.method != "POST":
                return problem(405, "expected POST, with a call as JSON")
            body = await read_body(request)
            if is_form(request, body):
                return await self._page(playground.answer_form(policies, form_fields(body)), live=False)
            found = render(playground.explain_body(policies, body))
        except ProxyError as error:
            return web.Response(status=error.status, body=error_body(error), content_type="application/json")
        return web.Response(body=found, content_type="application/json", headers={"cache-control": "no-store"})

    async def _page(self, answer: playground.Answer, *, live: bool) -> web.Response:
        loaded = self._snapshots.current
        page = Page(
            policies=loaded.policies,
            now=self._clock(),
            tools=sorted(loaded.tools.specs),
            recent=list(self._audit.recent),
            pending=await self._pending(),
            held=self._metrics.held_batches(),
            hits=await asyncio.to_thread(self._metrics.hits),
            answer=answer,
            live=live,
        )
        status = 422 if answer.problem else 200
        return web.Response(status=status, text=render_page(page), content_type="text/html", headers=_SAFE)

    async def _pending(self) -> Sequence[Approval]:
        """The approvals that wait for a decision; none where the store does not answer, or nothing may be asked."""
        if not (self._desk.is_used or self._snapshots.current.policies.asks_people):
            return ()
        try:
            return await self._desk.listed([ApprovalState.PENDING])
        except StoreError:
            return ()
