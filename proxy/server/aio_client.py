"""The client's side of a request over aiohttp's low-level server: fills `ClientSide`.

The answer is written through the request's own writer, so that it has the headers that it is given and no
others. `WireEnd` is what aiohttp's protocol gets as the handler's response: everything has been sent by
then. A client that goes away cancels the handler (`handler_cancellation`), or makes a write fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from proxy.errors import RequestError
from proxy.metrics import Metrics
from proxy.server.budget import BufferShare
from proxy.server.http import Headers, RequestHead, header, replaced, without
from proxy.server.logs import RequestLog
from proxy.server.routing import origin_form
from proxy.server.wire import Wire

HOP_BY_HOP = (
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY = (204, 304)


def decoded(raw: tuple[tuple[bytes, bytes], ...]) -> Headers:
    """Headers as text. What is not UTF-8 is read as Latin-1, as HTTP has it."""
    return tuple((name.decode("latin-1"), _text(value)) for name, value in raw)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def end_to_end(headers: Headers) -> Headers:
    """The headers less those of this hop: the fixed ones, and those that `Connection` names."""
    named = [part.strip().lower() for key, value in headers if key.lower() == "connection" for part in value.split(",")]
    return without(headers, *HOP_BY_HOP, *named)


class WireEnd:
    """A response that has been sent already; `keep_alive` decides over the connection."""

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self) -> None:
        return None


class AioClient:
    """`timer` gives seconds of a clock that only goes forward; `closing` says that no connection is kept now."""

    def __init__(
        self,
        request: web.BaseRequest,
        log: RequestLog,
        *,
        share: BufferShare,
        metrics: Metrics,
        timer: Callable[[], float],
        closing: Callable[[], bool],
    ) -> None:
        self._request = request
        self._log = log
        self._share = share
        self._metrics = metrics
        self._timer = timer
        self._began = timer()
        self._closing = closing
        self._open = ExitStack()
        self._started = False
        self._finished = False
        self._bodiless = False
        self._framed = True
        self._left: int | None = None
        self._body: bytes | None = None
        self._expects = _expects_continue(request)
        self._keep_alive = request.keep_alive
        self._head = RequestHead(request.method, origin_form(request.raw_path), decoded(request.raw_headers))

    @property
    def head(self) -> RequestHead:
        return self._head

    @property
    def started(self) -> bool:
        return self._started

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def share(self) -> BufferShare:
        """What this request holds of the buffers."""
        return self._share

    @property
    def has_body(self) -> bool:
        return self._request.body_exists

    @property
    def upgrade(self) -> bool:
        """Whether the client asks to switch protocols, in a way that aiohttp's server lets it."""
        return self._request.method == "GET" and self._request.protocol._upgraded  # set by the parser, no public name

    # -- the body of the request

    async def _invite(self) -> None:
        """Tell a client that waits for it that its body is wanted."""
        if self._expects:
            self._expects = False
            await self._request.writer.write(_CONTINUE)
            self._request.writer.output_size = 0

    async def read(self, limit: int) -> bytes:
        if self._body is not None:
            return self._body
        length = header(self._head.headers, "content-length")
        if length.isdecimal() and int(length) > limit:
            raise _too_large(limit)
        await self._invite()
        asked = self._timer()
        parts: list[bytes] = []
        size = 0
        async for piece in self._stream():
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            self._share.take(len(piece))
            parts.append(piece)
        self._log.waited += self._timer() - asked
        self._body = b"".join(parts)
        return self._body

    async def pieces(self) -> AsyncIterator[bytes]:
        await self._invite()
        async for piece in self._stream():
            yield piece

    async def _stream(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._request.content.readany():
                yield piece
        except (web.RequestPayloadError, HttpProcessingError) as error:
            self._keep_alive = False
            raise RequestError("the request's body ended early or is not framed as HTTP has it") from error

    # -- the answer

    async def start(self, status: int, headers: Headers) -> None:
        self._started = True
        self._log.status = status
        self._bodiless = self._head.method == "HEAD" or status in _NO_BODY
        headers = self._frame(headers)
        if header(headers, "content-type").lower().startswith("text/event-stream"):
            self._log.stream = True
            self._open.enter_context(self._metrics.stream_active())
        version = self._request.version
        line = f"HTTP/{version.major}.{version.minor} {status} {_reason(status)}"
        await self._request.writer.write_headers(line, CIMultiDict(headers))
        if self._log.stream:
            self._request.writer.send_headers()  # a reader of events may wait for the head alone

    def _frame(self, headers: Headers) -> Headers:
        """The headers with those of this connection."""
        length = header(headers, "content-length")
        is_new = self._request.version >= (1, 1)
        if self._bodiless:
            pass
        elif length.isdecimal():
            self._left = int(length)
        elif is_new:
            self._request.writer.enable_chunking()
            headers = replaced(headers, "transfer-encoding", "chunked")
        else:
            self._framed = self._keep_alive = False
        if self._closing() or self._expects:
            self._keep_alive = False
        if not self._keep_alive:
            headers = replaced(headers, "connection", "close")
        elif not is_new:
            headers = replaced(headers, "connection", "keep-alive")
        return headers

    async def write(self, data: bytes) -> None:
        if not data or self._bodiless:
            return
        if self._log.first_byte is None:
            self._log.first_byte = self._timer() - self._began
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        asked = self._timer()
        await self._request.writer.write(data)
        self._log.waited += self._timer() - asked

    async def finish(self) -> None:
        if self._left:
            self.abort()  # fewer bytes than were promised: nobody must take them for the whole
            return
        self._finished = True
        if self._bodiless:
            self._request.writer.send_headers()
        await self._request.writer.write_eof()

    async def switch(self, headers: Headers) -> Wire:
        """Answer 101 with these headers, hop-by-hop ones included; then the connection's raw bytes."""
        self._started = self._finished = True
        self._keep_alive = False
        self._log.status = 101
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        writer = self._request.writer
        await writer.write_headers("HTTP/1.1 101 Switching Protocols", CIMultiDict(headers))
        writer.send_headers()
        wire = Wire(transport, write=writer.write, close=transport.close)
        self._request.protocol.set_parser(cast(Any, wire))  # it calls feed_data and feed_eof, and nothing else
        return wire

    def abort(self) -> None:
        self._finished = True
        self._keep_alive = False
        transport = self._request.transport
        if transport is None:
            return
        if self._framed:
            transport.close()  # what was written still goes out; the end of the body is missing
        else:
            transport.abort()

    def close(self) -> web.StreamResponse:
        """The end of the exchange: what aiohttp's protocol is given."""
        self._open.close()
        if self._started and not self._finished:
            self.abort()
        return cast(web.StreamResponse, WireEnd(keep_alive=self._keep_alive))  # it asks for no more of a response


def _expects_continue(request: web.BaseRequest) -> bool:
    return request.version >= (1, 1) and request.headers.get("expect", "").lower() == "100-continue"


def _too_large(limit: int) -> RequestError:
    return RequestError(f"the request's body must not be larger than {limit} bytes", code="body_too_large", status=413)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
