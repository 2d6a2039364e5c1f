"""The upstream over aiohttp's client: fills `Upstream` and `Answer`.

One session for the process: no total timeout (streams are long), no decompression (bytes pass as they are), no
cookies, no redirects, no header that the client did not send. Time limits are those of governed requests only.
Every failure becomes an UpstreamError and is counted here, once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
from aiohttp import hdrs
from aiohttp.http import StreamWriter
from multidict import CIMultiDict
from yarl import URL

from proxy.config import Timeouts
from proxy.config import Upstream as Settings
from proxy.errors import ProxyError, UpstreamError
from proxy.server.aio_client import decoded, end_to_end
from proxy.server.egress import Address, Credentials, find_proxy, tls_context
from proxy.server.http import Headers, RequestHead, header, without
from proxy.server.wire import Wire

Body = bytes | AsyncIterator[bytes] | None
_NOT_ADDED = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE)
_UNLIMITED = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
# Servers commonly close a connection that was idle for five seconds (uvicorn): ours must be gone before that.
_KEEP_ALIVE = 4.0
_HEADER_BYTES = 64 << 10
_MAX_HEADERS = 256


class AioAnswer:
    """An answer whose head has come."""

    def __init__(self, response: aiohttp.ClientResponse, failure: Callable[[BaseException], UpstreamError]) -> None:
        self._response = response
        self._failure = failure
        self.status = response.status
        self.all_headers = decoded(response.raw_headers)
        self.headers: Headers = end_to_end(self.all_headers)

    async def pieces(self) -> AsyncIterator[bytes]:
        read = self._response.content.readany
        try:
            while piece := await read():
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failure(error) from error

    def wire(self) -> Wire | None:
        """The raw connection, when the upstream switched protocols."""
        connection = self._response.connection
        if self.status != 101 or connection is None or connection.protocol is None or connection.transport is None:
            return None
        writer = StreamWriter(connection.protocol, asyncio.get_running_loop())
        wire = Wire(connection.transport, write=writer.write, close=self._response.close)
        connection.protocol.set_parser(wire, self._response.content)
        return wire


class AioUpstream:
    """`on_error` is told the kind of each failure, for the metrics."""

    def __init__(
        self, settings: Settings, *, on_error: Callable[[str], None], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._address = Address.of(settings.base_url)
        self._credentials = Credentials(settings)
        self._proxy = find_proxy(settings.base_url, environ)
        self._timeouts = settings.timeouts
        self._governed = aiohttp.ClientTimeout(total=None, sock_connect=settings.timeouts.connect)
        self._on_error = on_error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls_context(settings), keepalive_timeout=_KEEP_ALIVE),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_UNLIMITED,
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )

    def request(self, head: RequestHead, body: Body, *, governed: bool) -> AbstractAsyncContextManager[AioAnswer]:
        headers = without(end_to_end(head.headers), "host", "expect")
        if isinstance(body, bytes):
            headers = without(headers, "content-length")
        return self._exchange(head, self._credentials.apply(headers), body, limits=self._timeouts if governed else None)

    def upgrade(self, head: RequestHead) -> AbstractAsyncContextManager[AioAnswer]:
        """Ask to switch protocols, with the client's own handshake."""
        headers = without(end_to_end(head.headers), "host", "expect")
        asked = (("Connection", "Upgrade"), ("Upgrade", header(head.headers, "upgrade")))
        return self._exchange(head, (*self._credentials.apply(headers), *asked), None, limits=None, switching=True)

    @asynccontextmanager
    async def _exchange(
        self, head: RequestHead, headers: Headers, body: Body, *, limits: Timeouts | None, switching: bool = False
    ) -> AsyncIterator[AioAnswer]:
        try:
            async with asyncio.timeout(limits.first_byte if limits else None):
                response = await self._session.request(
                    head.method,
                    URL(self._address.url(head.target), encoded=True),
                    headers=CIMultiDict(headers),
                    data=body,
                    allow_redirects=False,
                    proxy=self._proxy,
                    timeout=self._governed if limits else _UNLIMITED,
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from error  # the client's body failed, not the upstream
            raise self._failure(error) from error
        try:
            if response.status == 101 and not switching:
                raise self._failure(ValueError("protocols were switched unasked"))
            if limits:
                _limit_silence(response, limits.idle)
            yield AioAnswer(response, self._failure)
        finally:
            response.close()

    def _failure(self, error: BaseException) -> UpstreamError:
        failure = as_upstream_error(error)
        self._on_error(failure.kind)
        return failure

    async def close(self) -> None:
        await self._session.close()


def _limit_silence(response: aiohttp.ClientResponse, seconds: float) -> None:
    """From here on the limit is on each wait for bytes; aiohttp knows it as the read timeout of the connection."""
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.read_timeout = seconds
        connection.protocol.start_timeout()


def as_upstream_error(error: BaseException) -> UpstreamError:
    """What an error of the client library means. Its text stays out of the message: it may quote anything."""
    match error:
        case TimeoutError():
            return UpstreamError("the upstream did not answer in time", kind="timeout", code="timeout", status=504)
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return UpstreamError("the upstream cannot be reached", kind="connect", code="connect")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | OSError():
            return UpstreamError("the upstream broke off the connection", kind="reset", code="reset")
        case _:
            return UpstreamError("the upstream's answer is not HTTP that can be read", kind="protocol", code="protocol")
