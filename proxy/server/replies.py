"""The only place where an error becomes something that a client gets: a reply, an event of a stream, or a break.

Replies have OpenAI's error shape, all four keys, and the request's id. The client reads the message alone; causes
go to the log, by their kind and place and never by their text, which may quote a secret.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable
from pathlib import PurePath

from proxy.core.jsontext import Json, render
from proxy.errors import BusyError, ProxyError, StoreError
from proxy.metrics import Metrics
from proxy.server.aio_client import AioClient
from proxy.server.http import ClientSide, Headers
from proxy.server.logs import Log, RequestLog

REQUEST_ID = "x-sidecall-request-id"
CLIENT_GONE = 499
"""The status in log and metrics of a request whose client left before there was an answer."""


def error_object(error: ProxyError) -> dict[str, Json]:
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def error_body(error: ProxyError) -> bytes:
    return render({"error": error_object(error)})


def error_event(error: ProxyError, api: str, *, number: int | None = None) -> bytes:
    """An error as an event of a stream, in the form of its API. `number` is its place where events are numbered: one
    there is flat by its schema; the object in it is for readers that raise on that alone."""
    if api == "responses":
        told = error_object(error)
        numbered: dict[str, Json] = {} if number is None else {"sequence_number": number}
        return b"event: error\ndata: " + render({**told, "type": "error", **numbered, "error": told}) + b"\n\n"
    return b"data: " + error_body(error) + b"\n\n"


def error_headers(error: ProxyError, body: bytes, request_id: str) -> Headers:
    headers: Headers = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        (REQUEST_ID, request_id),
    )
    if isinstance(error, BusyError):
        headers = (*headers, ("retry-after", str(error.retry_after)))
    if error.status == 401:
        headers = (*headers, ("www-authenticate", "Bearer"))
    if error.status == 426:
        headers = (*headers, ("upgrade", "HTTP/1.1"))
    return headers


async def send_error(client: ClientSide, error: ProxyError, request_id: str) -> None:
    """A whole reply; nothing may have been sent before."""
    body = error_body(error)
    await client.start(error.status, error_headers(error, body, request_id))
    await client.write(body)
    await client.finish()


async def answering(work: Awaitable[None], client: AioClient, entry: RequestLog, *, log: Log, metrics: Metrics) -> None:
    """Do the work of a request, and tell the client what came in its way. Raises CancelledError only."""
    try:
        try:
            await work
        except ProxyError as error:
            entry.error = _cause(error)
            if isinstance(error, StoreError):
                metrics.state_unavailable()
            await _tell(client, entry, error)
        except asyncio.CancelledError:
            _gone(entry)
            raise
        except ConnectionError:
            _gone(entry)
        except Exception as error:  # noqa: BLE001  what nobody foresaw still gets an answer and a line in the log
            entry.error = f"internal: {type(error).__name__}"
            log.event("error", "internal error", request_id=entry.request_id, **_place(error))
            await _tell(client, entry, ProxyError("something went wrong inside the proxy", code="internal_error"))
    except ConnectionError:
        _gone(entry)


def _gone(entry: RequestLog) -> None:
    entry.error = entry.error or "client_gone"
    entry.status = entry.status or CLIENT_GONE


async def _tell(client: AioClient, entry: RequestLog, error: ProxyError) -> None:
    if not client.started:
        await send_error(client, error, entry.request_id)
    elif client.finished:
        return
    elif entry.stream and entry.governed:
        await client.write(error_event(error, entry.api, number=entry.next_event))
        await client.finish()
    else:
        client.abort()


def _cause(error: ProxyError) -> str:
    name = error.code or error.type
    return name if error.__cause__ is None else f"{name}: {type(error.__cause__).__name__}"


def _place(error: Exception) -> dict[str, Json]:
    """The kind of an error and where it came from, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return {
        "error": type(error).__name__,
        "frames": [f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    }
