"""What a governed request asks of others: the upstream's answer, and whether the ledger has an id; and the headers of
an answer that was changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.core import jsontext
from proxy.core.protocol.sse import render
from proxy.errors import StoreError, UpstreamError
from proxy.server.http import Answer, Headers, RequestHead, without
from proxy.server.ledger import Ledger
from proxy.server.replies import REQUEST_ID
from proxy.server.services import ExchangeIn, Services

_OF_THE_BODY = (
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "etag",
    "digest",
    "content-digest",
    "content-md5",
    "accept-ranges",
)


class UpstreamAnswerError(Exception):
    """A continuation was answered with an error: that answer goes to the client."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(str(status))
        self.status = status
        self.headers = headers
        self.body = body


@asynccontextmanager
async def ask(services: Services, exchange: ExchangeIn, head: RequestHead, *, body: bytes) -> AsyncIterator[Answer]:
    """The upstream's answer to a governed request; the time until its head came is not the proxy's. Raises
    UpstreamError."""
    asked, came = services.timer(), False
    try:
        async with services.upstream.request(head, body, governed=True) as answer:
            exchange.log.waited += services.timer() - asked
            came = True
            yield answer
    finally:
        if not came:
            exchange.log.waited += services.timer() - asked


async def has_id(ledger: Ledger, call_id: str) -> bool:
    """Whether the ledger has an id; one that cannot be asked has none."""
    try:
        return bool(call_id) and await ledger.has_id(call_id)
    except StoreError:
        return False


def changed_headers(headers: Headers, request_id: str) -> Headers:
    """The headers of an answer whose body was changed, less those of the body that is gone."""
    return (*without(headers, *_OF_THE_BODY), (REQUEST_ID, request_id))


def error_event_of(body: bytes) -> bytes:
    """The upstream's error as an event of a stream."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("error"):
        return render(jsontext.render({"error": value["error"]}))
    raise UpstreamError("The upstream refused to go on with the answer.", kind="protocol")
