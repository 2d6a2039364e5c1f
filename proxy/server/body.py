"""Reading an answer of the upstream on a governed path: decoded, bounded, and timed as waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.errors import UpstreamError
from proxy.server.coding import AnswerDecoder
from proxy.server.http import Answer, joined
from proxy.server.services import ExchangeIn, Services

_BLANK = b"\xef\xbb\xbf \t\r\n"
_TELLING = 6  # the longest of the starts
_EVENT_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_events(content_type: str, start: bytes) -> bool:
    """Whether an answer is a stream of events: by its type, or by how it begins where the type says something else."""
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        return True
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").startswith(_EVENT_STARTS)


class BodyReader:
    """The body of one answer. `sent` are its bytes as they came, still encoded, as far as they were read whole."""

    def __init__(self, answer: Answer, services: Services, exchange: ExchangeIn) -> None:
        self._exchange = exchange
        self._timer = services.timer
        self._limit = services.config.listen.max_body_bytes
        self._decoder = AnswerDecoder(joined(answer.headers, "content-encoding"), most=self._limit)
        self._pieces = answer.pieces()
        self._start: list[tuple[bytes, bytes]] = []
        self.sent = b""

    @property
    def is_coded(self) -> bool:
        return self._decoder.is_coded

    async def is_events(self, content_type: str) -> bool:
        """Whether this is a stream of events. One that says so is not waited for, another is known by its start."""
        return is_events(content_type, b"") or is_events(content_type, await self.peek())

    async def peek(self) -> bytes:
        """The first bytes, which stay to be read: as many as tell events from everything else."""
        while len(b"".join(decoded for _, decoded in self._start).strip(_BLANK)) < _TELLING:
            piece = await self._next()
            if piece is None:
                break
            self._start.append(piece)
        return b"".join(decoded for _, decoded in self._start)

    async def read(self) -> bytes:
        """The whole body, decoded. It is held until the request ends. Raises UpstreamError, BusyError."""
        sent, found, size = [], [], 0
        while (piece := await self._take()) is not None:
            sent.append(piece[0])
            found.append(piece[1])
            self._exchange.share.take(len(piece[1]))
            size += len(piece[1])
            if size > self._limit:
                raise UpstreamError(f"The upstream's answer is longer than {self._limit} bytes.", kind="protocol")
        self._decoder.finish()
        self.sent = b"".join(sent)
        return b"".join(found)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, decoded. Raises UpstreamError."""
        while (piece := await self._take()) is not None:
            if piece[1]:
                yield piece[1]
        self._decoder.finish()

    async def _take(self) -> tuple[bytes, bytes] | None:
        return self._start.pop(0) if self._start else await self._next()

    async def _next(self) -> tuple[bytes, bytes] | None:
        """The next piece as it came and decoded; None at the end."""
        asked = self._timer()
        piece = await anext(self._pieces, None)
        self._exchange.log.waited += self._timer() - asked
        return None if piece is None else (piece, self._decoder.feed(piece))
