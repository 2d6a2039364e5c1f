"""A governed chat completion, from the client's request to the end of its answer.

What happens, in order: the request is read, the rules for it are picked, what the ledger knows of its history is put
back, the upstream is asked, and each choice of the answer is settled, perhaps over several rounds. Whether the
answer comes in one piece or as a stream, the same rules decide and the same records are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from proxy.core.batch.rejoin import Anchor, Found, Progress, denied_in_a_row, find, pieces
from proxy.core.batch.split import is_weak_id
from proxy.core.calls import Api, BatchId, RequestFacts, Tenant
from proxy.core.exchange.chat_rejoin import (
    RawMessages,
    is_as_sent,
    judge_results,
    render_pieces,
    repaired,
    results_by_index,
)
from proxy.core.exchange.chat_rounds import Question, chat_form, first_question
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.results import JudgedResult
from proxy.core.exchange.turns import Bounds
from proxy.core.history import Entry, EntryKind
from proxy.core.protocol.chat import ChatRequest, declaration, digests, read_history, read_request
from proxy.errors import ProxyError, StoreError
from proxy.server.answering import Answering
from proxy.server.chat_whole import ChatAnswers
from proxy.server.coding import decode_request, readable_accept
from proxy.server.deferral import surface_due
from proxy.server.http import Headers, RequestHead, header, joined, replaced, without
from proxy.server.ledger import Known, Ledger
from proxy.server.rereading import Rereading
from proxy.server.routing import Surface
from proxy.server.running import Caller, Runs
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Resume, Settling, request_digest
from proxy.server.telling import Seen, Telling
from proxy.server.waiting import with_pings
from proxy.tools.spec import Advertise


class Governor:
    """Serves governed chat completions. It lives as long as the process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = Runs(services)
        self._seen = Seen()

    async def serve(self, exchange: ExchangeIn) -> None:
        """Serve one request. Raises ProxyError."""
        if exchange.surface is Surface.STORED_CHAT:
            await self._reread(exchange)
            return
        limits = self._services.config.limits
        sent = await exchange.client.read(self._services.config.listen.max_body_bytes)
        coding = joined(exchange.client.head.headers, "content-encoding")
        body = decode_request(sent, coding, limit=self._services.config.listen.max_body_bytes)
        request = read_request(body, limits.nesting)
        judge = await self._judge(exchange, request)
        state = self._services.config.state
        ttl = state.stored_ttl if request.value.get("store") is True else state.ttl
        ledger = Ledger(self._services.store, exchange.tenant, ttl=ttl)
        chat = _Chat(
            self._services, exchange, runs=self._runs, seen=self._seen, request=request, judge=judge, ledger=ledger
        )
        await chat.serve(sent)

    async def _reread(self, exchange: ExchangeIn) -> None:
        ledger = Ledger(self._services.store, exchange.tenant, ttl=self._services.config.state.stored_ttl)
        facts = await self._facts(exchange, ChatRequest(b"", {}))
        await Rereading(
            self._services, exchange, ledger, facts=facts, judge_of=lambda facts: _judge_of(exchange, facts)
        ).serve()

    async def _judge(self, exchange: ExchangeIn, request: ChatRequest) -> Judge:
        return _judge_of(exchange, await self._facts(exchange, request))

    async def _facts(self, exchange: ExchangeIn, request: ChatRequest) -> RequestFacts:
        try:
            tenant = await exchange.tenant()
        except StoreError:
            tenant = Tenant("")  # nothing can be kept; whatever has to be will say so
        metadata = request.value.get("metadata")
        return RequestFacts(
            model=model if isinstance(model := request.value.get("model"), str) else "",
            api=Api.CHAT,
            headers={name.lower(): value for name, value in reversed(exchange.client.head.headers)},
            user=request.user,
            metadata=metadata if isinstance(metadata, dict) else {},
            client=exchange.client_name,
            tenant=tenant,
            declared=request.declared,
        )


def _judge_of(exchange: ExchangeIn, facts: RequestFacts) -> Judge:
    return Judge(exchange.loaded.policies.for_request(facts), facts, exchange.loaded.tools.specs.keys())


class _Chat:
    """One governed chat completion."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        *,
        runs: Runs,
        seen: Seen,
        request: ChatRequest,
        judge: Judge,
        ledger: Ledger,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._runs = runs
        self._request = request
        self._judge = judge
        self._ledger = ledger
        self._telling = Telling(services, exchange, seen, facts=judge.facts, api=Api.CHAT)
        headers = exchange.client.head.headers
        self._caller = Caller(
            ledger=ledger,
            judge=judge,
            loaded=exchange.loaded,
            client=exchange.client_name,
            traceparent=header(headers, "traceparent"),
            keep=exchange.keep,
        )

    async def serve(self, sent: bytes) -> None:
        request = self._request
        self._exchange.log.stream = request.value.get("stream") is True
        raws = RawMessages(request)
        entries = read_history(request.messages)
        known, found = await self._look(entries)
        judged = judge_results(request, raws, entries, judge=self._judge)
        self._tell_results(entries, found, judged)
        due = [anchor for anchor in found.anchors if anchor.progress is Progress.DUE]
        if due:
            await self._surface_due(due[-1])
            return
        self._telling.rejoins(found, known.forgotten)
        messages, denied = await self._messages(entries, found, raws=raws, judged=judged)
        question = first_question(request, self._judge, declarations=self._declarations(), messages=messages)
        used_ids = frozenset(str(call.call_id) for entry in entries for call in entry.calls)
        await self._answer(question, sent, denied=denied, used_ids=used_ids)

    def _tell_results(self, entries: Sequence[Entry], found: Found, judged: Sequence[JudgedResult]) -> None:
        """The results that came since the model last spoke. What answers an id that may come in another conversation
        too is told apart by its history."""
        last = max((e.index for e in entries if e.kind in (EntryKind.CALLS, EntryKind.TEXT)), default=-1)
        dropped = {index for anchor in found.anchors for index in anchor.dropped}
        new = [result for result in judged if result.index > last and result.index not in dropped]
        weak = {result.index for result in new if is_weak_id(result.call)}
        places = digests(self._request) if weak else []
        for result in new:
            place = places[result.index] if result.index in weak else ""
            self._telling.result(result.call, result.verdict, call_id=entries[result.index].call_id, place=place)

    # -- the history

    async def _look(self, entries: list[Entry]) -> tuple[Known, Found]:
        """What the ledger knows of the history."""
        ids = sorted({str(c.call_id) for e in entries for c in e.calls if c.call_id})
        ends = [e for e in entries if e.kind is EntryKind.TEXT or (e.calls and not e.calls[0].call_id)]
        by_index = digests(self._request) if ends else []
        try:
            known = await self._ledger.know(ids, [by_index[e.index] for e in ends])
        except StoreError:
            if ids and self._judge.could_hold and self._services.config.state.on_unavailable == "refuse":
                raise
            return Known(), Found()
        turns = {e.index: known.turns[by_index[e.index]] for e in ends if by_index[e.index] in known.turns}
        return known, find(entries, known.pointers, batches=known.batches, turns=turns)

    async def _messages(
        self, entries: list[Entry], found: Found, *, raws: Sequence[bytes], judged: list[JudgedResult]
    ) -> tuple[list[bytes] | None, int]:
        """The messages for the upstream (None: as the client sent them), and how many calls were denied last."""
        running = self._run_held([anchor for anchor in found.anchors if anchor.released])
        if self._exchange.log.stream:
            running = with_pings(self._exchange.client, running, seconds=self._services.ping_seconds)
        runs = await running
        limit = self._services.config.continuations.restore_bytes
        out = pieces(entries, found, runs=runs, restore_bytes=limit)
        denied, repair = denied_in_a_row(entries, out), self._services.config.orphans == "repair"
        if is_as_sent(out, judged, entries) and not repair:
            return None, denied
        messages = render_pieces(self._request, out, results_by_index(raws, judged))
        if repair:
            messages = repaired(messages)
        return None if messages == list(raws) else messages, denied

    async def _run_held(self, anchors: list[Anchor]) -> dict[tuple[BatchId, int], Any]:
        """Run what was held of released batches; the finished runs."""
        wanted = [(anchor.batch, ordinal) for anchor in anchors for ordinal in anchor.to_run()]
        work = (
            self._runs.result(self._caller, batch.batch_id, i, call=batch.calls[i], recheck=True) for batch, i in wanted
        )
        with self._telling.waiting():
            found = await asyncio.gather(*work)
        return {(batch.batch_id, i): run for (batch, i), run in zip(wanted, found, strict=True)}

    async def _surface_due(self, anchor: Anchor) -> None:
        """The calls of the next stage of a batch, without asking the upstream."""
        self._telling.surfaced(anchor.batch.calls[i].given_id for i in anchor.due)
        self._exchange.log.changed = True
        await surface_due(self._exchange, self._request, anchor, now=self._services.clock())

    # -- the question and its answer

    def _declarations(self) -> list[tuple[str, bytes, bool]]:
        return [
            (
                spec.name,
                declaration(spec.name, spec.description, spec.parameters),
                spec.advertise is Advertise.WITH_TOOLS,
            )
            for spec in self._exchange.loaded.tools.specs.values()
            if spec.advertise is not Advertise.NEVER
        ]

    async def _answer(self, question: Question, sent: bytes, *, denied: int, used_ids: frozenset[str]) -> None:
        config, head = self._services.config, self._exchange.client.head
        digest = request_digest(head.target, self._request.body)
        settling = Settling(
            caller=self._caller,
            runs=self._runs,
            telling=self._telling,
            form=chat_form(self._request),
            bounds=Bounds(
                most=config.continuations.max,
                most_errors=config.continuations.max_consecutive_errors,
                stop_after=config.denials.stop_after,
            ),
            used_ids=used_ids,
            resume=await self._earlier_try(digest),
        )
        answers = ChatAnswers(self._services, self._exchange, settling, question=question, denied=denied)
        answering = Answering(self._services, self._exchange, settling, answers)
        coded = bool(header(head.headers, "content-encoding")) and question.changed
        first = question.body if question.changed else sent
        try:
            if await answering.serve(first, self._upstream_head(drop_coding=coded)) and settling.resume.version:
                # A client that closes its connection at the last byte must not undo that it has seen it.
                await asyncio.shield(self._services.tasks.start(settling.done(), name="an answer was seen"))
        except (asyncio.CancelledError, ConnectionError, ProxyError) as error:
            settling.tell_broken(error)
            raise

    async def _earlier_try(self, digest: str) -> Resume:
        """What an earlier try of this very request has come to; only proxy tools make that worth keeping."""
        if not self._exchange.loaded.tools.specs or self._request.choices != 1:
            return Resume(digest, None)
        try:
            found = await self._ledger.resume(digest)
        except StoreError:
            return Resume(digest)
        return Resume(digest) if found is None else Resume(digest, found[1], found[0])

    def _upstream_head(self, *, drop_coding: bool) -> RequestHead:
        head = self._exchange.client.head
        headers: Headers = head.headers
        if accept := header(headers, "accept-encoding"):
            headers = replaced(headers, "accept-encoding", readable_accept(accept))
        if drop_coding:
            headers = without(headers, "content-encoding")
        return RequestHead(head.method, head.target, headers)
