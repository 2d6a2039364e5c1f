"""The answer to a governed request: which kind it is, and how it reaches the client.

What an answer says is settled by its wire. An answer in which nothing has to change goes on as the bytes it came
as, with its status and headers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from proxy.core.batch.record import ResumeRecord
from proxy.server.asking import UpstreamAnswerError, ask, changed_headers, error_event_of
from proxy.server.body import BodyReader
from proxy.server.http import Answer, Headers, RequestHead, header, without
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Settling


@dataclass(frozen=True, slots=True)
class Settled:
    """An answer in one piece, settled. `body` None: as it came."""

    status: int
    headers: Headers
    body: bytes | None


class AnyRelaying(Protocol):
    """One stream of a client, over all its rounds."""

    async def relay(self, reader: BodyReader, *, status: int, headers: Headers) -> bool: ...
    async def resume(self, record: ResumeRecord) -> bool: ...


class Answers(Protocol):
    """How the answers of one API are settled."""

    def relaying(self, head: RequestHead) -> AnyRelaying: ...

    async def settle(self, data: bytes, answer: Answer, head: RequestHead) -> Settled | None:
        """An answer in one piece; None: it is none, and passes as it came."""
        ...

    async def resume(self, record: ResumeRecord, head: RequestHead) -> Settled:
        """The answer that an earlier try of the request has come some way to."""
        ...


class Answering:
    """The answer to one question."""

    def __init__(self, services: Services, exchange: ExchangeIn, settling: Settling, *, answers: Answers) -> None:
        self._services = services
        self._exchange = exchange
        self._settling = settling
        self._answers = answers

    async def serve(self, first: bytes, head: RequestHead) -> bool:
        """Ask the upstream and give the client its answer; whether that came to its end. Raises ProxyError."""
        record = self._settling.resume.record
        further = replace(head, headers=without(head.headers, "content-encoding"))  # a continuation comes in none
        try:
            if record is None:
                async with ask(self._services, self._exchange, head, body=first) as answer:
                    return await self._first(answer, further)
            if self._exchange.log.stream:
                return await self._answers.relaying(further).resume(record)
            await self._deliver(await self._answers.resume(record, further), b"")
            return True
        except UpstreamAnswerError as error:
            self._settling.tell_broken(error)
            await self._send(error.status, error.headers, error.body)
            return False

    async def _first(self, answer: Answer, head: RequestHead) -> bool:
        if answer.status >= 400:
            await self._pass(answer)
            return False
        reader = BodyReader(answer, self._services, self._exchange)
        self._exchange.log.stream = await reader.is_events(header(answer.headers, "content-type"))
        if self._exchange.log.stream:
            return await self._answers.relaying(head).relay(reader, status=answer.status, headers=answer.headers)
        settled = await self._answers.settle(await reader.read(), answer, head)
        await self._deliver(settled or Settled(answer.status, answer.headers, None), reader.sent)
        return settled is not None

    async def _pass(self, answer: Answer) -> None:
        if self._exchange.client.started:
            body = await BodyReader(answer, self._services, self._exchange).read()
            await self._send(answer.status, answer.headers, body)
            return
        await self._exchange.client.start(answer.status, answer.headers)
        async for piece in answer.pieces():
            await self._exchange.client.write(piece)
        await self._exchange.client.finish()

    async def _send(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer; where a stream has begun already, while tools ran, what is no event becomes an error."""
        if not self._exchange.client.started:
            await self._exchange.client.start(status, headers)
            await self._exchange.client.write(body)
        else:
            await self._exchange.client.write(error_event_of(body))
        await self._exchange.client.finish()

    async def _deliver(self, settled: Settled, sent: bytes) -> None:
        if settled.body is None:
            await self._send(settled.status, settled.headers, sent)
            return
        self._exchange.log.changed = True
        length = ("content-length", str(len(settled.body)))
        headers = (*changed_headers(settled.headers, self._exchange.request_id), length)
        await self._send(settled.status, headers, settled.body)
