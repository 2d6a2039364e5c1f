"""One request of a client, from its head to its end: who calls, what it is, and who serves it.

What is not governed passes here unread, both ways, in pieces. What is governed goes to the governor. Every
request leaves one line in the log, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial

from aiohttp import web

from proxy.config import Unsupported
from proxy.core.calls import Api, Tenant
from proxy.errors import ProxyError, RequestError, StoreError
from proxy.server.aio_client import AioClient
from proxy.server.health import Health
from proxy.server.http import header
from proxy.server.logs import RequestLog
from proxy.server.observing import Observer, tell
from proxy.server.replies import CLIENT_GONE, answering
from proxy.server.routing import PathGuard, Route, Surface, route
from proxy.server.services import ExchangeIn, Governor, Loaded, Services
from proxy.server.snapshots import Snapshots
from proxy.server.tunnel import join
from proxy.stores.base import Store
from proxy.stores.tenants import Tenants, credential_of

_GOVERNED = (Surface.CHAT, Surface.STORED_CHAT, Surface.RESPONSES, Surface.STORED_RESPONSES)
_UNGOVERNED = (Surface.UNGOVERNED, Surface.RESPONSES_SOCKET)
_WATCHED = {Surface.CHAT: Api.CHAT, Surface.RESPONSES: Api.RESPONSES}


class LedgerGlance:
    """Whether the ledger is empty, asked at most once a second.

    A store that cannot be asked counts as what it was last known to be, and as empty before that: a proxy
    without rules must pass traffic when its store is down.
    """

    def __init__(self, store: Store, *, timer: Callable[[], float]) -> None:
        self._store = store
        self._timer = timer
        self._empty = True
        self._until = float("-inf")

    async def is_empty(self) -> bool:
        if self._timer() >= self._until:
            self._until = self._timer() + 1
            try:
                self._empty = await self._store.is_empty()
            except StoreError:
                return self._empty
        return self._empty


class DataPlane:
    """Serves the clients' port."""

    def __init__(
        self,
        services: Services,
        governor: Governor,
        snapshots: Snapshots,
        *,
        health: Health,
        timer: Callable[[], float],
    ) -> None:
        config = services.config
        self._services = services
        self._governor = governor
        self._snapshots = snapshots
        self._health = health
        self._timer = timer
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._guard = PathGuard(config.paths.allow, has_key=config.upstream.api_key is not None)
        self._ledger = LedgerGlance(services.store, timer=timer)
        self._key_only = config.upstream.api_key is not None
        self._tenants = {one_caller: Tenants(services.store, one_caller=one_caller) for one_caller in (False, True)}

    async def idle(self) -> None:
        """Until no request runs."""
        await self._idle.wait()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """What aiohttp's server calls for each request."""
        self._running += 1
        self._idle.clear()
        try:
            return await self._handle(request)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        began = self._timer()
        entry = RequestLog(
            request_id=secrets.token_hex(12), method=request.method, path=request.raw_path.partition("?")[0][:500]
        )
        with self._services.budget.share() as share, self._snapshots.lease() as loaded:
            client = AioClient(
                request,
                entry,
                share=share,
                metrics=self._services.metrics,
                timer=self._timer,
                closing=self._health.is_draining,
            )
            try:
                await answering(
                    self._serve(client, entry, loaded),
                    client,
                    entry,
                    log=self._services.log,
                    metrics=self._services.metrics,
                )
            finally:
                end = client.close()
                self._note(entry, self._timer() - began)
        return end

    def _note(self, entry: RequestLog, duration: float) -> None:
        """Log and count a request that has ended."""
        if not entry.status:
            entry.status, entry.error = CLIENT_GONE, entry.error or "client_gone"
        metrics = self._services.metrics
        metrics.request(duration, api=entry.api, stream=entry.stream, status=entry.status)
        metrics.overhead(max(0.0, duration - entry.waited), api=entry.api)
        if entry.first_byte is not None:
            metrics.first_byte(entry.first_byte, api=entry.api)
        self._services.log.request(entry, duration=duration)

    async def _serve(self, client: AioClient, entry: RequestLog, loaded: Loaded) -> None:
        head = client.head
        entry.trace = trace_id(header(head.headers, "traceparent"))
        if head.method == "CONNECT":
            raise RequestError("this is not a forward proxy", code="method_not_allowed", status=405)
        entry.client = loaded.clients.identify(head.headers)
        found = route(head.method, head.target, upgrade=client.upgrade)
        entry.api = found.surface.api
        self._guard.check(found)
        await self._dispatch(client, entry, loaded, found=found)

    async def _dispatch(self, client: AioClient, entry: RequestLog, loaded: Loaded, *, found: Route) -> None:
        if self._is_refused(found.surface, loaded) or (found.is_ambiguous and loaded.governs):
            raise _not_governed(found.surface)
        if found.surface in _GOVERNED and (loaded.governs or not await self._ledger.is_empty()):
            entry.governed = True
            await self._governor.serve(self._exchange(client, entry, loaded, surface=found.surface))
        elif client.upgrade:
            await self._tunnel(client)
        elif (api := _WATCHED.get(found.surface)) is not None:
            exchange = self._exchange(client, entry, loaded, surface=found.surface)
            await self._watch(client, entry, exchange, api=api)
        else:
            await self._pass(client, entry)

    def _is_refused(self, surface: Surface, loaded: Loaded) -> bool:
        match self._services.config.unsupported:
            case Unsupported.PASS:
                return False
            case Unsupported.DENY if surface in _UNGOVERNED:
                return True
            case _:
                return loaded.governs and surface in _UNGOVERNED

    def _exchange(self, client: AioClient, entry: RequestLog, loaded: Loaded, *, surface: Surface) -> ExchangeIn:
        return ExchangeIn(
            client=client,
            share=client.share,
            surface=surface,
            loaded=loaded,
            request_id=entry.request_id,
            client_name=entry.client,
            tenant=partial(self._tenant, client, entry),
            log=entry,
            keep=partial(self._snapshots.lease, loaded),
        )

    async def _tenant(self, client: AioClient, entry: RequestLog) -> Tenant:
        tenants = self._tenants[self._key_only and not entry.client]
        tenant = await tenants.tenant_of(credential=credential_of(client.head.headers), client=entry.client)
        entry.tenant = tenant
        return tenant

    # -- what passes unread

    async def _watch(self, client: AioClient, entry: RequestLog, exchange: ExchangeIn, *, api: Api) -> None:
        """An answer that nothing governs passes like everything else, and its calls are counted."""
        observer = Observer(api)
        await self._pass(client, entry, observer)
        tell(self._services, exchange, observer)

    async def _pass(self, client: AioClient, entry: RequestLog, observer: Observer | None = None) -> None:
        body = _seen(client.pieces(), observer) if client.has_body else None
        asked = self._timer()
        async with self._services.upstream.request(client.head, body, governed=False) as answer:
            entry.waited += self._timer() - asked
            await client.start(answer.status, answer.headers)
            if observer is not None:
                observer.began(answer.status, answer.headers)
            pieces = answer.pieces()
            while True:
                asked = self._timer()
                piece = await anext(pieces, b"")
                entry.waited += self._timer() - asked
                if not piece:
                    break
                await client.write(piece)
                if observer is not None:
                    observer.passed(piece)
            await client.finish()

    async def _tunnel(self, client: AioClient) -> None:
        async with self._services.upstream.upgrade(client.head) as answer:
            wire = answer.wire()
            if wire is not None:
                await join(await client.switch(answer.all_headers), wire)
                return
            await client.start(answer.status, answer.headers)
            async for piece in answer.pieces():
                await client.write(piece)
            await client.finish()


async def _seen(pieces: AsyncIterator[bytes], observer: Observer | None) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if observer is not None:
            observer.asked(piece)
        yield piece


def trace_id(traceparent: str) -> str:
    """The trace's id of a W3C `traceparent`; empty where there is none."""
    parts = traceparent.strip().split("-")
    valid = len(parts) >= 4 and len(parts[1]) == 32 and all(c in "0123456789abcdef" for c in parts[1])
    return parts[1] if valid else ""


def _not_governed(surface: Surface) -> ProxyError:
    if surface is Surface.RESPONSES_SOCKET:
        message = "responses over a WebSocket are not governed here; send a POST"
        return RequestError(message, code="surface_not_governed", status=426)
    message = "this part of the API can carry tool calls and is not governed here"
    return RequestError(message, code="surface_not_governed", status=403)
