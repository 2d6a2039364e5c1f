"""HTTP below a session of an MCP server: what fails is an answer to one request, and not the end of all.

Rules: configured headers are asked for at each request; a body in one piece is read up to a bound, and nothing that
is compressed is taken, which could be larger than it looks; no environment variable chooses a proxy. What a server
certainly never began to do is told apart from what may have been lost under way.
"""

from __future__ import annotations

import asyncio

import httpx2

from proxy import __version__
from proxy.core.jsontext import Json, parse, parse_own, render
from proxy.tools.mcp_process import MESSAGE_BYTES, UNDELIVERED
from proxy.tools.mcp_spec import Lost, McpUrl

UNFINISHED = -32098
"""The code of an answer that we give in a server's place: the connection broke, and it may have begun."""
STATUS = -32096
"""The code of an answer that we give in place of an HTTP error; its data is the status."""

UNREADABLE = -32095
"""The code of an answer that we give in place of one that is too large, or compressed."""

_KEPT = frozenset({"location", "mcp-session-id"})
_SESSION = "mcp-session-id"
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 2.0
"""How long a connection without a request is kept. Servers close theirs after 5 seconds and more, and a call that
meets that moment would be lost."""
_GOODBYE_SECONDS = 2.0


async def open_client(server: McpUrl, *, lost: Lost) -> httpx2.AsyncClient:
    """A client of a server. What it reads of TLS authorities is read in a thread."""
    inner = await asyncio.to_thread(
        httpx2.AsyncHTTPTransport, trust_env=False, limits=httpx2.Limits(keepalive_expiry=_IDLE_SECONDS)
    )
    return httpx2.AsyncClient(
        transport=ServerTransport(inner, server, lost=lost),
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
        headers={"user-agent": f"sidecall/{__version__}", "accept-encoding": "identity"},
    )


class ServerTransport(httpx2.AsyncBaseTransport):
    """`lost` is called when the server is not there, or does not know the session any more."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, server: McpUrl, *, lost: Lost) -> None:
        self._inner = inner
        self._server = server
        self._lost = lost
        self._is_lost = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name, value in self._server.headers:
            request.headers[name] = value()
        if request.method == "DELETE":
            return await self._say_goodbye(request)
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return self._lose(request, UNDELIVERED, error)
        except httpx2.TransportError:
            if request.method != "POST":
                raise
            return _instead(request, UNFINISHED)
        return await self._checked(request, response)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _say_goodbye(self, request: httpx2.Request) -> httpx2.Response:
        """The end of a session that there still is; nobody waits long for it."""
        if not self._is_lost:
            try:
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    return await self._inner.handle_async_request(request)
            except (TimeoutError, httpx2.TransportError):
                self._is_lost = True
        return httpx2.Response(204, request=request)

    def _lose(self, request: httpx2.Request, code: int, cause: Exception | None = None) -> httpx2.Response:
        self._is_lost = True
        self._lost()
        if request.method != "POST" and cause is not None:
            raise cause
        return _instead(request, code)

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """An answer that its reader can read: a stream as it is, everything else whole."""
        kind: str = response.headers.get("content-type", "").lower()
        if response.status_code == 404 and _SESSION in request.headers:
            await response.aclose()
            return self._lose(request, UNDELIVERED)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _instead(request, UNREADABLE)
        if request.method != "POST" or kind.startswith("text/event-stream"):
            return response
        try:
            body = await _whole(response)
        except httpx2.TransportError:
            return _instead(request, UNFINISHED)
        finally:
            await response.aclose()
        if body is None:
            return _instead(request, UNREADABLE)
        if response.status_code >= 400 and not _is_told(body):
            return _instead(request, STATUS, response.status_code)
        headers = {"content-type": kind, **{n: v for n, v in response.headers.items() if n.lower() in _KEPT}}
        return httpx2.Response(response.status_code, content=body, headers=headers, request=request)


async def _whole(response: httpx2.Response) -> bytes | None:
    """A body; None where it is larger than a message may be."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    pieces, count = [], 0
    async for piece in response.stream:
        count += len(piece)
        if count > MESSAGE_BYTES:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _is_told(body: bytes) -> bool:
    """Whether a body tells an error in the terms of the protocol."""
    try:
        value = parse(body)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("error"), dict)


def _instead(request: httpx2.Request, code: int, data: Json = None) -> httpx2.Response:
    """An answer in the server's place, which reaches the one who asked."""
    asked = parse_own(request.content)
    number = asked.get("id") if isinstance(asked, dict) else None
    error: Json = {"code": code, "message": "no answer", "data": data}
    body = render({"jsonrpc": "2.0", "id": number, "error": error})
    return httpx2.Response(502, content=body, headers={"content-type": "application/json"}, request=request)
