"""A governed chat completion, from the client's request to the end of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.batch.rejoin import Anchor, Found, Progress, denied_in_a_row, find, pieces
from proxy.core.batch.split import is_weak_id
from proxy.core.calls import Api
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
from proxy.core.history import Entry, EntryKind
from proxy.core.protocol.chat import ChatRequest, declaration, digests, read_history
from proxy.errors import StoreError
from proxy.server.chat_whole import ChatAnswers
from proxy.server.conversing import Conversing
from proxy.server.deferral import surface_due
from proxy.server.ledger import Known, Ledger
from proxy.server.running import Runs
from proxy.server.services import ExchangeIn, Services
from proxy.server.telling import Seen


class Chatting(Conversing):
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
        super().__init__(services, exchange, runs=runs, seen=seen, judge=judge, ledger=ledger, api=Api.CHAT)
        self._request = request

    async def serve(self, sent: bytes) -> None:
        request = self._request
        self._exchange.log.stream = request.value.get("stream") is True
        raws = RawMessages(request)
        entries = read_history(request.messages)
        known, found = await self._look(entries)
        judged = await self._judged(judge_results(request, raws, entries, judge=self._judge))
        self._tell_results(entries, found, judged)
        due = [anchor for anchor in found.anchors if anchor.progress is Progress.DUE]
        if due:
            await self._surface_due(due[-1])
            return
        self._telling.rejoins(found, known.forgotten)
        messages, denied = await self._messages(entries, found, raws=raws, judged=judged)
        question = first_question(request, self._judge, declarations=self._declarations(declaration), messages=messages)
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
        runs = await self._run_held([anchor for anchor in found.anchors if anchor.released])
        limit = self._services.config.continuations.restore_bytes
        out = pieces(entries, found, runs=runs, restore_bytes=limit)
        denied, repair = denied_in_a_row(entries, out), self._services.config.orphans == "repair"
        if is_as_sent(out, judged, entries) and not repair:
            return None, denied
        messages = render_pieces(self._request, out, results_by_index(raws, judged))
        if repair:
            messages = repaired(messages)
        return None if messages == list(raws) else messages, denied

    async def _surface_due(self, anchor: Anchor) -> None:
        """The calls of the next stage of a batch, without asking the upstream."""
        self._telling.surfaced(anchor.batch.calls[i].given_id for i in anchor.due)
        self._exchange.log.changed = True
        await surface_due(self._exchange, self._request, anchor, now=self._services.clock())

    # -- the question and its answer

    async def _answer(self, question: Question, sent: bytes, *, denied: int, used_ids: frozenset[str]) -> None:
        settling = await self._settling(
            self._request.body,
            form=chat_form(self._request),
            used_ids=used_ids,
            may_resume=self._request.choices == 1,
        )
        answers = ChatAnswers(self._services, self._exchange, settling, question=question, denied=denied)
        first = question.body if question.changed else sent
        await self._serve_answer(settling, answers, first, changed=question.changed)
