"""What an exchange needs from HTTP, on both sides: the one small interface that the transport fills.

Heads are values; bodies are read and written in pieces with back-pressure; a client that goes away cancels
the task that serves it. aiohttp fills this today (`app.py` for clients, `upstream.py` for the upstream);
nothing that uses it knows that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, str], ...]
"""Names and values as they stood on the wire: spelling, order and repetitions kept."""


def header(headers: Headers, name: str, default: str = "") -> str:
    """The first value of a header; `name` is lower case."""
    return next((value for key, value in headers if key.lower() == name), default)


def joined(headers: Headers, name: str) -> str:
    """All values of a header that is a list, as one line; `name` is lower case."""
    return ", ".join(value for key, value in headers if key.lower() == name)


def without(headers: Headers, *names: str) -> Headers:
    """The headers less some; `names` are lower case."""
    return tuple((key, value) for key, value in headers if key.lower() not in names)


def replaced(headers: Headers, name: str, value: str) -> Headers:
    """The headers with one (lower case `name`) set to a value, in its place or at the end."""
    if not any(key.lower() == name for key, _ in headers):
        return (*headers, (name, value))
    return tuple((key, value if key.lower() == name else old) for key, old in headers)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """`target` is path and query exactly as the client spelled them, always beginning with a slash."""

    method: str
    target: str
    headers: Headers


class ClientSide(Protocol):
    """One request of a client, and the way back to it."""

    @property
    def head(self) -> RequestHead: ...

    @property
    def started(self) -> bool:
        """Whether the head of the answer has gone out."""
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises RequestError (413) beyond `limit` bytes, BusyError when too much is buffered
        over all requests."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, for what passes unread."""
        ...

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of the answer. Hop-by-hop headers must be gone already; framing (content-length kept when
        given, chunked otherwise) is the transport's."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece of the body; waits while the client is slow."""
        ...

    async def finish(self) -> None:
        """End the answer well."""
        ...

    def abort(self) -> None:
        """Break the connection, so that nobody takes what was sent for a whole answer."""
        ...


class Answer(Protocol):
    """An answer of the upstream; its head has come."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers:
        """Less hop-by-hop ones; the body is still in its content-encoding."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises UpstreamError when the upstream breaks off or falls silent."""
        ...


class Upstream(Protocol):
    def request(
        self, head: RequestHead, body: bytes | AsyncIterator[bytes] | None, *, governed: bool
    ) -> AbstractAsyncContextManager[Answer]:
        """Ask the upstream. `head` is the client's: the target is mapped to the base URL, hop-by-hop headers go,
        configured credentials come. Raises UpstreamError (502, 504 for a timeout). Leaving the context ends
        the request, also in the middle of an answer. Only governed requests have time limits."""
        ...
