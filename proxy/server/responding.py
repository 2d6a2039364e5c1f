"""A governed request for a response, from the client's request to the end of its answer.

The same as for a chat completion, in the same order (`governing.py`); what is added is what the upstream remembers: the
response before, or the conversation, under the name that the upstream knows, and with what is still owed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.core.batch.record import ResponseRecord
from proxy.core.batch.rejoin import Anchor, Found, Progress, denied_in_a_row, find, pieces
from proxy.core.batch.split import is_weak_id
from proxy.core.calls import Api, CallId, ToolCall
from proxy.core.exchange.approvals import Approvals
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import (
    NOT_AVAILABLE,
    Rendering,
    Sent,
    judge_results,
    response_form,
    results_again,
)
from proxy.core.exchange.response_rounds import ResponseQuestion, first_question
from proxy.core.exchange.results import JudgedResult
from proxy.core.exchange.strays import answered_ids, strays, without
from proxy.core.history import EntryKind
from proxy.core.protocol.response_digests import shown_digests
from proxy.core.protocol.response_events import is_own_id
from proxy.core.protocol.response_items import is_reference, result_items
from proxy.core.protocol.response_request import ResponseRequest, declaration
from proxy.errors import StoreError
from proxy.server.conversing import Conversing
from proxy.server.ledger import Known, Ledger
from proxy.server.remembering import Memory
from proxy.server.response_deferral import surface_due_items
from proxy.server.response_keeping import Keeping
from proxy.server.response_whole import ResponseAnswers
from proxy.server.running import Runs
from proxy.server.services import ExchangeIn, Services
from proxy.server.telling import Seen


class Responding(Conversing):
    """One governed request for a response."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        *,
        runs: Runs,
        seen: Seen,
        request: ResponseRequest,
        judge: Judge,
        approvals: Approvals,
        ledger: Ledger,
    ) -> None:
        super().__init__(services, exchange, runs=runs, seen=seen, judge=judge, ledger=ledger, api=Api.RESPONSES)
        self._request = request
        self._approvals = approvals
        self._memory = Memory(ledger)

    async def serve(self, sent: bytes) -> None:
        """Serve it. Raises ProxyError."""
        request = self._request
        self._exchange.log.stream = request.streams
        before = await self._before()
        items = Sent.of(request, before.carried if before else ())
        items = await self._without_strays(items, before)
        known, items, found = await self._look(items, remembered=self._remembers(before))
        judged = await self._judged(judge_results(items, _known_calls(before, known), judge=self._judge))
        self._tell(items, found, judged)
        due = [anchor for anchor in found.anchors if anchor.progress is Progress.DUE]
        if due:
            await self._surface_due(due[-1], items, before)
            return
        self._telling.rejoins(found, known.forgotten)
        owed = self._owed(before, known)
        sent_items, denied = await self._items(items, found, judged=judged, owed=owed, before=before)
        question = first_question(
            request,
            self._judge,
            self._approvals,
            declarations=self._declarations(declaration),
            items=sent_items,
            previous=before.response_id if before and request.previous not in ("", before.response_id) else None,
        )
        used_ids = frozenset(str(call.call_id) for entry in items.entries for call in entry.calls)
        await self._ask(question, sent, denied=denied, used_ids=used_ids, before=before)

    # -- what the upstream remembers

    def _remembers(self, before: ResponseRecord | None) -> bool:
        """Whether the upstream has what came before: not behind a response that was made here of a whole history."""
        made_here = before is not None and not before.response_id
        return bool(self._request.conversation) or (bool(self._request.previous) and not made_here)

    async def _before(self) -> ResponseRecord | None:
        """What is known of the response, or the conversation, that this request builds on."""
        request = self._request
        try:
            if request.conversation:
                return await self._memory.conversation(request.conversation)
            return await self._memory.response(request.previous) if request.previous else None
        except StoreError:
            if self._judge.could_hold and self._services.config.state.on_unavailable == "refuse":
                raise
            return None

    def _owed(self, before: ResponseRecord | None, known: Known) -> list[bytes]:
        """Results that the upstream waits for, and that no call of the request's stands for."""
        if not self._remembers(before):
            return []
        owed = [(r.call, r.text, r.blocked) for r in before.owed] if before else []
        owed += [(call, NOT_AVAILABLE, True) for calls in known.forgotten.values() for call in calls]
        found = [result_items(call, text, blocked=blocked) for call, text, blocked in owed]
        return [*(items[0] for items in found), *(note for items in found for note in items[1:])]

    async def _without_strays(self, items: Sent, before: ResponseRecord | None) -> Sent:
        """The input less results for calls that the client was never shown. Raises StoreError."""
        held = {str(c.call.call_id) for c in before.calls if c.stage is None} if before else set()
        if ids := answered_ids(items):
            try:
                marks = await self._memory.given_ids(ids)
            except StoreError:
                if self._judge.could_hold and self._services.config.state.on_unavailable == "refuse":
                    raise
                marks = {}
            held |= {call_id for call_id, given in marks.items() if given is None}
        held -= {c.given_id for c in before.calls if c.stage is not None} if before else set()
        found = strays(items, held, judge=self._judge)
        for index in found:
            self._telling.stray(items.entries[index].call_id)
        return without(items, found) if found else items

    # -- the history

    async def _look(self, items: Sent, *, remembered: bool) -> tuple[Known, Sent, Found]:
        """What the ledger knows of the input."""
        form = response_form(self._request)
        ids = {str(c.call_id) for e in items.entries for c in e.calls if c.call_id}
        ids |= {e.call_id for e in items.entries if e.kind is EntryKind.RESULT and e.call_id}
        texts = [e.index for e in items.entries if _may_end_a_turn(items.values[e.index])]
        digests = {} if remembered else shown_digests(self._request, items.values)
        for index in texts:
            digests[index] = [form.digest_of(items.values[index]), *digests.get(index, ())]
        try:
            known = await self._ledger.know(sorted(ids), [d for places in digests.values() for d in places])
        except StoreError:
            if ids and self._judge.could_hold and self._services.config.state.on_unavailable == "refuse":
                raise
            return Known(), items, Found()
        items = items.with_references(known.batches)
        turns = {
            index: known.turns[next(d for d in places if d in known.turns)]
            for index, places in digests.items()
            if any(d in known.turns for d in places)
        }
        found = find(items.entries, known.pointers, batches=known.batches, turns=turns, remembered=remembered)
        return known, items, found

    def _tell(self, items: Sent, found: Found, judged: Sequence[JudgedResult]) -> None:
        """The results that came since the model last spoke."""
        entries = items.entries
        last = max((e.index for e in entries if e.kind in (EntryKind.CALLS, EntryKind.TEXT)), default=-1)
        dropped = {index for anchor in found.anchors for index in anchor.dropped}
        for result in judged:
            if result.index > last and result.index not in dropped:
                call_id = entries[result.index].call_id
                weak = is_weak_id(replace(result.call, call_id=CallId(call_id)))
                place = self._request.previous if weak else ""
                self._telling.result(result.call, result.verdict, call_id=call_id, place=place)

    async def _items(
        self,
        items: Sent,
        found: Found,
        *,
        judged: Sequence[JudgedResult],
        owed: Sequence[bytes],
        before: ResponseRecord | None,
    ) -> tuple[list[bytes] | None, int]:
        """The input for the upstream (None: as the client sent it), and how many calls were denied last."""
        runs = await self._run_held([anchor for anchor in found.anchors if anchor.released])
        limit = self._services.config.continuations.restore_bytes
        out = pieces(items.entries, found, runs=runs, restore_bytes=limit)
        denied = denied_in_a_row(items.entries, out, before.denied if before else 0)
        rendering = Rendering(items, results_again(items, judged))
        rendered = [*owed, *rendering.items(out)]
        carried = bool(before and before.carried)
        return (None if rendered == list(items.raws) and not carried else rendered), denied

    async def _surface_due(self, anchor: Anchor, items: Sent, before: ResponseRecord | None) -> None:
        """The calls of the next stage of a batch, without asking the upstream."""
        self._telling.surfaced(anchor.batch.calls[i].given_id for i in anchor.due)
        self._exchange.log.changed = True
        await surface_due_items(
            self._exchange,
            self._request,
            anchor,
            sent=items,
            before=before,
            remembered=self._remembers(before),
            memory=self._memory,
            now=self._services.clock(),
        )

    # -- the question and its answer

    async def _ask(
        self,
        question: ResponseQuestion,
        sent: bytes,
        *,
        denied: int,
        used_ids: frozenset[str],
        before: ResponseRecord | None,
    ) -> None:
        settling = await self._settling(
            self._request.body,
            form=response_form(self._request),
            used_ids=used_ids,
            may_resume=not self._request.background,
        )
        names = self._judge.chain.has_result_rules or self._request.background
        keeping = Keeping(settling, self._memory, self._request, names_results=names, before=before)
        previous = (
            self._request.previous if self._request.previous != question.value.get("previous_response_id") else None
        )
        answers = ResponseAnswers(
            self._services,
            self._exchange,
            keeping,
            question=question,
            denied=denied,
            previous=previous or None,
        )
        await self._serve_answer(
            settling, answers, question.body if question.changed else sent, changed=question.changed
        )


def _known_calls(before: ResponseRecord | None, known: Known) -> Mapping[str, ToolCall]:
    """The calls that the upstream remembers, by the ids that the client knows them by."""
    records = [*(before.calls if before else ()), *(c for batch in known.batches.values() for c in batch.calls)]
    return {call.given_id: call.call for call in records if call.given_id}


def _may_end_a_turn(item: object) -> bool:
    """Whether an item may be the message that ended a turn: the assistant's, or a reference to one."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    return is_reference(item) or item.get("role") == "assistant" or is_own_id(item["id"])
