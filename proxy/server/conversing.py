"""What every governed conversation has, on whichever wire: its caller, its held calls, its way to the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from proxy.config import Config
from proxy.core.batch.rejoin import Anchor
from proxy.core.calls import Api, BatchId
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.results import JudgedResult
from proxy.core.exchange.turns import Bounds, Form
from proxy.core.jsontext import Json
from proxy.core.policy.consults import Consult, Reply
from proxy.errors import ProxyError, StoreError
from proxy.server.answering import Answering, Answers
from proxy.server.coding import readable_accept
from proxy.server.consulting import Consulting, settled
from proxy.server.http import Headers, RequestHead, header, replaced, without
from proxy.server.ledger import Ledger
from proxy.server.running import Caller, Runs
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Resume, Settling, request_digest
from proxy.server.telling import Seen, Telling
from proxy.server.waiting import with_pings
from proxy.tools.spec import Advertise

T = TypeVar("T")


class Conversing:
    """One governed request; a wire's own part is the child's."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        *,
        runs: Runs,
        seen: Seen,
        judge: Judge,
        ledger: Ledger,
        api: Api,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._runs = runs
        self._judge = judge
        self._ledger = ledger
        self._telling = Telling(services, exchange, seen, facts=judge.facts, api=api)
        self._caller = caller_of(services, exchange, ledger=ledger, judge=judge)

    async def _run_held(self, anchors: Sequence[Anchor]) -> dict[tuple[BatchId, int], Any]:
        """Run what was held of released batches; the finished runs."""
        wanted = [(anchor.batch, ordinal) for anchor in anchors for ordinal in anchor.to_run()]
        work = (
            self._runs.result(self._caller, batch.batch_id, i, call=batch.calls[i], recheck=True) for batch, i in wanted
        )
        found = await self._waited_for(_all(asyncio.gather(*work)))
        return {(batch.batch_id, i): run for (batch, i), run in zip(wanted, found, strict=True)}

    async def _waited_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What others do in the proxy's place. A stream's client is told that it has to wait."""
        with self._telling.waiting():
            if self._exchange.log.stream:
                return await with_pings(self._exchange.client, work, seconds=self._services.ping_seconds)
            return await work

    async def _judged(self, judging: Generator[Consult, Reply, list[JudgedResult]]) -> list[JudgedResult]:
        """The results that the client sent, as rules leave them. Raises StoreError."""
        if not self._judge.chain.asks_of_results:
            return await settled(judging, self._caller.consulting.answer)
        return await self._waited_for(settled(judging, self._caller.consulting.answer))

    def _declarations(self, declare: Callable[[str, str, Json], bytes]) -> list[tuple[str, bytes, bool]]:
        """The proxy tools that a request may be told of: (name, declaration, only beside other tools)."""
        return [
            (
                spec.name,
                declare(spec.name, spec.description, spec.parameters),
                spec.advertise is Advertise.WITH_TOOLS,
            )
            for spec in self._exchange.loaded.tools.specs.values()
            if spec.advertise is not Advertise.NEVER
        ]

    async def _settling(self, body: bytes, *, form: Form, used_ids: frozenset[str], may_resume: bool) -> Settling:
        digest = request_digest(self._exchange.client.head.target, body)
        return Settling(
            caller=self._caller,
            runs=self._runs,
            telling=self._telling,
            form=form,
            bounds=bounds_of(self._services.config),
            used_ids=used_ids,
            resume=await self._earlier_try(digest, may_resume=may_resume),
        )

    async def _earlier_try(self, digest: str, *, may_resume: bool) -> Resume:
        """What an earlier try of this very request has come to; only proxy tools make that worth keeping."""
        if not self._exchange.loaded.tools.specs or not may_resume:
            return Resume(digest, None)
        try:
            found = await self._ledger.resume(digest)
        except StoreError:
            return Resume(digest)
        return Resume(digest) if found is None else Resume(digest, found[1], found[0])

    async def _serve_answer(self, settling: Settling, answers: Answers, body: bytes, *, changed: bool) -> bool:
        """Ask the upstream and give the client its answer; whether that came to its end. Raises ProxyError."""
        answering = Answering(self._services, self._exchange, settling, answers=answers)
        coded = bool(header(self._exchange.client.head.headers, "content-encoding")) and changed
        try:
            seen = await answering.serve(body, self._upstream_head(drop_coding=coded))
            if seen and settling.resume.version:
                # A client that closes its connection at the last byte must not undo that it has seen it.
                await asyncio.shield(self._services.tasks.start(settling.done(), name="an answer was seen"))
        except (asyncio.CancelledError, ConnectionError, ProxyError) as error:
            settling.tell_broken(error)
            if settling.shown and not isinstance(error, ProxyError):  # some clients go away with the last event
                self._services.tasks.start(settling.done(), name="an answer was seen")
            raise
        return seen

    def _upstream_head(self, *, drop_coding: bool) -> RequestHead:
        head = self._exchange.client.head
        headers: Headers = head.headers
        if accept := header(headers, "accept-encoding"):
            headers = replaced(headers, "accept-encoding", readable_accept(accept))
        if drop_coding:
            headers = without(headers, "content-encoding")
        return RequestHead(head.method, head.target, headers)


def caller_of(services: Services, exchange: ExchangeIn, *, ledger: Ledger, judge: Judge) -> Caller:
    """For whom the held calls of a request are run."""
    return Caller(
        ledger=ledger,
        judge=judge,
        consulting=Consulting.of(services, exchange.loaded, ledger),
        loaded=exchange.loaded,
        client=exchange.client_name,
        traceparent=header(exchange.client.head.headers, "traceparent"),
        keep=exchange.keep,
    )


def bounds_of(config: Config) -> Bounds:
    return Bounds(
        most=config.continuations.max,
        most_errors=config.continuations.max_consecutive_errors,
        stop_after=config.denials.stop_after,
    )


async def _all(running: asyncio.Future[list[Any]]) -> list[Any]:
    return await running
