"""Listening sockets over aiohttp's low-level server: bounds, errors in our own shape, an orderly end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proxy.config import CertificateFiles
from proxy.errors import RequestError
from proxy.server.replies import error_body

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_HEADER_BYTES = 64 << 10
_MAX_HEADERS = 256
_BACKLOG = 1024
_IDLE_SECONDS = 300.0  # longer than clients keep a connection, so that they and not we close it
_LINGER_SECONDS = 2.0
_BODY_BUFFER = 64 << 10


class _Connection(RequestHandler):
    """aiohttp's connection, with its own errors (bytes that are not HTTP, for the most part) in OpenAI's shape."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; no other can follow")
        error = RequestError("this is not an HTTP request that can be read", code="bad_request", status=status)
        response = web.Response(status=status, body=error_body(error), content_type="application/json")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        return None  # one line a request, and that was ours to write


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


@dataclass(slots=True)
class Listener:
    """A listening socket and the connections that it took."""

    server: web.Server
    sockets: asyncio.Server

    @property
    def port(self) -> int:
        port: int = self.sockets.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """Take no new connection; those that are open go on."""
        self.sockets.close()

    async def close(self, seconds: float) -> None:
        """End every connection; a request that runs has that long."""
        self.stop()
        await self.server.shutdown(seconds)


async def listen(
    handle: Handle, host: str, port: int, *, tls: CertificateFiles | None = None, reuse_port: bool = False
) -> Listener:
    """Open a port. A client that goes away cancels `handle`. Raises OSError."""
    server = _Server(
        handle,
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=_IDLE_SECONDS,
        lingering_time=_LINGER_SECONDS,
        read_bufsize=_BODY_BUFFER,
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
        max_headers=_MAX_HEADERS,
    )
    context: ssl.SSLContext | None = None
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls.cert_file, tls.key_file)
    sockets = await asyncio.get_running_loop().create_server(
        server, host, port, ssl=context, backlog=_BACKLOG, reuse_port=reuse_port or None
    )
    return Listener(server, sockets)
