"""Proxy tools that are HTTP requests.

Rules: the URL's host is the configured one; redirects are not followed and cookies not kept; the client's
credential is never sent; an answer is read up to a bound, and what an error answer says is not shown to the model,
since it may hold anything. Must not know names and limits of tools.
"""

from __future__ import annotations

import asyncio
import codecs
import ssl

import aiohttp
from yarl import URL

from proxy import __version__
from proxy.core.jsontext import Object, render
from proxy.tools.spec import HttpBackend, RunKind, ToolRun, ToolRunError
from proxy.tools.urltemplate import ArgumentError, render_query, with_query

_IN_QUERY = frozenset({"GET", "HEAD", "DELETE"})
_TEXT_TYPES = frozenset(
    {
        "application/json",
        "application/xml",
        "application/javascript",
        "application/yaml",
        "application/x-yaml",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/graphql-response+json",
    }
)


def open_session() -> aiohttp.ClientSession:
    """The session that all HTTP tools share. How many connections there are is bounded by the tools' concurrency."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"user-agent": f"sidecall/{__version__}", "accept-encoding": "identity"},
    )


async def run_request(
    session: aiohttp.ClientSession, backend: HttpBackend, run: ToolRun, *, most: int
) -> tuple[str, bool]:
    """The answer as text, of which little more than `most` bytes are read, and whether there was more to read.
    Raises ToolRunError."""
    url, body = _target(backend, run.arguments)
    try:
        async with session.request(
            backend.method,
            URL(url, encoded=True),
            data=body,
            headers=_headers(backend, run, has_body=body is not None),
            allow_redirects=False,
        ) as answer:
            _check_status(answer.status)
            return await _read(answer, most)
    except ToolRunError:
        raise
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        raise ToolRunError(RunKind.CONNECT, "no secure connection to its server could be made") from error
    except aiohttp.ClientConnectorError as error:
        raise ToolRunError(RunKind.CONNECT, "its server could not be reached") from error
    except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise ToolRunError(RunKind.CONNECT, "the connection to its server broke off") from error


def _target(backend: HttpBackend, arguments: Object) -> tuple[str, bytes | None]:
    try:
        url = backend.url.fill(arguments)
        used = backend.url.parameters
        rest = {name: value for name, value in arguments.items() if name not in used}
        if backend.method in _IN_QUERY:
            return with_query(url, render_query(rest)), None
        return url, render(rest)
    except ArgumentError as error:
        raise ToolRunError(RunKind.ARGUMENTS, str(error)) from error


def _headers(backend: HttpBackend, run: ToolRun, *, has_body: bool) -> dict[str, str]:
    """Configured headers, and over them those that say for whom the tool acts."""
    headers = {"content-type": "application/json"} if has_body else {}
    headers |= {name.lower(): value() for name, value in backend.headers}
    headers["idempotency-key"] = run.idempotency_key
    for name, value in (("x-sidecall-client", run.client), ("traceparent", run.traceparent)):
        headers.pop(name, None)
        if value:
            headers[name] = value
    return headers


def _check_status(status: int) -> None:
    if 300 <= status < 400:
        raise ToolRunError(RunKind.HTTP, f"its server answered with a redirect (HTTP {status}), which is not followed")
    if not 200 <= status < 300:
        raise ToolRunError(RunKind.HTTP, f"its server answered with HTTP status {status}")


async def _read(answer: aiohttp.ClientResponse, most: int) -> tuple[str, bool]:
    pieces: list[bytes] = []
    count = 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        count += len(piece)
        if count > most:
            break
    data = b"".join(pieces)
    more = count > most
    text = _decoded(data, answer) if data else ""
    if text is None:
        return _binary_note(answer, count, whole=not more), False
    return text, more


def _decoded(data: bytes, answer: aiohttp.ClientResponse) -> str | None:
    """A body as text; None for one that is binary."""
    if "content-type" not in answer.headers:
        return _decode_if_text(data)
    kind = answer.content_type.lower()
    if not (kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))):
        return None
    try:
        return data.decode(answer.charset or "utf-8", "replace")
    except (LookupError, ValueError):  # a charset that nobody knows, or one that is no charset of text
        return data.decode("utf-8", "replace")


def _decode_if_text(data: bytes) -> str | None:
    """A body without a type: text if it reads as text; its last character may have been cut."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _binary_note(answer: aiohttp.ClientResponse, count: int, *, whole: bool) -> str:
    kind = answer.content_type if "content-type" in answer.headers else "of unknown type"
    size = str(count) if whole else str(answer.content_length or f"more than {count}")
    return f"(binary result, {kind[:100]}, {size} bytes)"
