"""The webhook's server: TLS, one path for reviews and two for health.

The certificate is read again when its file changes: who issues it renews it while the process runs. Knows nothing of
pods.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from proxy.injector.patching import Template
from proxy.injector.reviews import ReviewError, answer
from proxy.server.logs import Log

MAX_BODY = 8 << 20
"""The API server sends a pod of at most 3 MiB, at most twice."""
POLL_SECONDS = 10.0


class Certificate:
    """A certificate and its key, as PEM files, and the context that serves them. Raises OSError where they cannot be
    used."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert, self._key = cert, key
        self.context = _context()
        self._seen = self._fingerprint()
        self.context.load_cert_chain(cert, key)

    def renew(self) -> bool:
        """Serve the files as they are now to new connections; whether they have changed. Raises OSError."""
        now = self._fingerprint()
        if now == self._seen:
            return False
        _context().load_cert_chain(self._cert, self._key)  # a pair that does not fit must not half replace the old one
        self.context.load_cert_chain(self._cert, self._key)
        self._seen = now
        return True

    def _fingerprint(self) -> tuple[object, ...]:
        states = [path.stat() for path in (self._cert, self._key)]
        return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def follow(certificate: Certificate, log: Log, *, every: float = POLL_SECONDS) -> None:
    """Look for another certificate again and again, until cancelled. One that cannot be used changes nothing."""
    while True:
        await asyncio.sleep(every)
        try:
            if certificate.renew():
                log.event("info", "certificate loaded")
        except OSError as error:
            log.event("error", "the certificate cannot be used; the old one stays", error=type(error).__name__)


class Webhook:
    """Answers reviews."""

    def __init__(self, template: Template, log: Log) -> None:
        self._template = template
        self._log = log

    def build_app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/inject", self._inject)
        app.router.add_get("/livez", self._well)
        app.router.add_get("/readyz", self._well)
        return app

    async def _inject(self, request: web.Request) -> web.Response:
        try:
            found = answer(await request.read(), self._template)
        except ReviewError as error:
            self._log.event("warning", "no review", error=str(error))
            return web.Response(status=400, text=f"{error}\n")
        self._log.event(
            "info",
            "review",
            namespace=found.namespace,
            pod=found.name,
            outcome=found.outcome,
            warnings=list(found.warnings),
        )
        return web.Response(body=found.body, content_type="application/json")

    async def _well(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int, *, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port that is listened on, until the context is left. Raises OSError."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(template: Template, certificate: Certificate, log: Log, *, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM. Raises OSError for an address that cannot be used."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    app = Webhook(template, log).build_app()
    async with listening(app, host, port, context=certificate.context) as found, asyncio.TaskGroup() as group:
        follower = group.create_task(follow(certificate, log))
        log.event("info", "serving", port=found)
        await end.wait()
        follower.cancel()
    log.event("info", "ended")
