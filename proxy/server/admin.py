"""The admin port: health and metrics for everybody who reaches it, the admin page for those who may.

Containers of a pod share loopback, and an agent must not approve its own calls: without a token there is no admin page,
unless the configuration opens it to requests of this machine. Never on the clients' port.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from aiohttp import web

from proxy.core.batch.approval import Approval, ApprovalState
from proxy.core.jsontext import render
from proxy.errors import StoreError
from proxy.metrics import Metrics
from proxy.server import approvalapi
from proxy.server.adminpage import render_page
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.audit import Audit
from proxy.server.health import Health
from proxy.server.snapshots import Snapshots

_SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


def is_local_host(host: str) -> bool:
    """Whether a `Host` names this machine. A page of another site cannot make a browser send that one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal(request: web.BaseRequest, *, token: str | None, insecure: bool) -> web.Response | None:
    """Why a request may not see the admin page; None when it may."""
    if token is not None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(shown.strip().encode("utf-8", "surrogateescape"), token.encode())
        if right and scheme.lower() == "bearer":
            return None
        return _problem(401, "the admin token is missing or wrong")
    if not insecure:
        return _problem(404, "there is nothing here")
    origin = request.headers.get("origin")
    if is_local_host(request.headers.get("host", "")) and (origin is None or is_local_host(urlsplit(origin).netloc)):
        return None
    return _problem(403, "without a token the admin page answers requests of this machine only")


def _problem(status: int, message: str) -> web.Response:
    body = render({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


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
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._snapshots = snapshots
        self._audit = audit
        self._desk = desk
        self._token = token
        self._insecure = insecure

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """What aiohttp's server calls for each request."""
        match request.path:
            case "/livez":
                return web.Response(text="ok\n")
            case "/readyz":
                problem = await self._health.problem()
                return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")
            case "/metrics":
                return await self._exposition(request)
            case path if path == "/admin" or path.startswith("/admin/"):
                return await self._admin(request)
            case _:
                return _problem(404, "there is nothing here")

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
        if request.path not in ("/admin", "/admin/") or request.method not in ("GET", "HEAD"):
            return _problem(404, "there is nothing here")
        loaded = self._snapshots.current
        page = render_page(
            policies=loaded.policies.policies,
            tools=sorted(loaded.tools.specs),
            recent=list(self._audit.recent),
            pending=await self._pending(),
        )
        return web.Response(text=page, content_type="text/html", headers=_SAFE)

    async def _pending(self) -> Sequence[Approval]:
        """The approvals that wait for a decision; none where the store does not answer, or nothing may be asked."""
        if not (self._desk.is_used or self._snapshots.current.policies.asks_people):
            return ()
        try:
            return await self._desk.listed([ApprovalState.PENDING])
        except StoreError:
            return ()
