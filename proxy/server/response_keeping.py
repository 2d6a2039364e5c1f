"""What the end of a round of a response makes necessary, whether it came whole or as a stream.

Settling is the same as for chat completions (`settling.py`). What is of this API alone: items in place of a message,
and what the upstream keeps of a conversation by itself, which the next request has to answer whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import CallRecord, ResponseRecord, Round, RoundResult, TurnRecord
from proxy.core.calls import Kind, Owner
from proxy.core.exchange.judging import Conclusion, End, Judged, is_blocked
from proxy.core.exchange.response_rejoin import NOT_RUN
from proxy.core.exchange.response_rounds import Layout, batch_message, denied_after, round_message
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn, call_records
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.response_digests import answer_digests
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.response_items import message_item, message_text, read_record, sent_back
from proxy.core.protocol.response_request import ResponseRequest
from proxy.errors import StoreError
from proxy.server.remembering import Memory
from proxy.server.settling import Settling


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer of the upstream that has ended. `response` is the response object, `layout` its output items, and
    `before` are the items of earlier rounds that the client has, which used `usage`."""

    response: dict[str, Any]
    layout: Layout
    batch: tuple[Judged, ...]
    conclusion: Conclusion
    before: Sequence[bytes] = ()
    usage: Any = None

    @property
    def id(self) -> str:
        found = self.response.get("id")
        return found if isinstance(found, str) else ""

    @property
    def shows(self) -> bool:
        """Whether anything but reasoning is left to show when its calls are gone."""
        items = (jsontext.parse_own(i) for i in (*self.layout, *self.before) if isinstance(i, bytes))
        return any(isinstance(item, dict) and item.get("type") != "reasoning" for item in items)


@dataclass(slots=True)
class Keeping:
    """Keeps what one request for a response needs kept. `names_results`: a rule for results will want to know what they
    answer; `before` is what was known of the response before; `shown_ids` are ids of the response that the client has
    seen and that are not the upstream's last."""

    settling: Settling
    memory: Memory
    request: ResponseRequest
    names_results: bool
    before: ResponseRecord | None = None
    shown_ids: list[str] = field(default_factory=list)

    @property
    def settles(self) -> bool:
        """Whether a conversation was owed something, which the answer shows to have come."""
        return self.before is not None and bool(self.request.conversation and (self.before.owed or self.before.carried))

    def stored(self, response: dict[str, Any]) -> bool:
        return self.request.stored and response.get("store") is not False

    async def hold(self, turn: ChoiceTurn, answered: Answered, *, head: dict[str, Any], usage: Any) -> None:
        """Answer every call of a batch that is held whole, and add the hidden round to the turn. Raises StoreError."""
        stored = self.stored(answered.response)
        await self.settling.hold(
            turn,
            self._batch(answered, stored=stored),
            conclusion=answered.conclusion,
            message=round_message(answered.layout, answered.batch, stored=stored),
            head=head,
            usage=usage,
            index=0,
            shown="",
        )

    async def surface(self, turn: ChoiceTurn, answered: Answered, *, known: frozenset[str]) -> list[str | None]:
        """Keep what a surfaced batch needs kept; the ids that the client gets. Raises StoreError."""
        stored, conclusion = self.stored(answered.response), answered.conclusion
        ids = await self.settling.surface(
            turn,
            self._batch(answered, stored=stored),
            conclusion=conclusion,
            known=known,
            message=batch_message(answered.layout, stored=stored),
            shown="",
            index=0,
        )
        owed = self._results(answered) if conclusion.end is End.CUT else ()
        owed = tuple(r for r, stage in zip(owed, conclusion.stages, strict=False) if stage is None)
        records = call_records(answered.batch, conclusion, ids)
        await self._remember(turn, answered, records, owed=owed)
        await self._settle_conversation(answered)
        return ids

    async def end_text(self, turn: ChoiceTurn, answered: Answered) -> str:
        """Keep a turn that ends without calls; the text that the client is to be told at its end. Raises StoreError."""
        said = answered.conclusion.message
        if not said and turn.closing and not answered.shows:
            said = LIMIT_REACHED
        stored, owed = self.stored(answered.response), self._results(answered)
        layout = [item for item in answered.layout if isinstance(item, bytes)]
        message = message_item(said, own_message_id(answered.id)) if said else _last_message(layout)
        also = self._digests(turn, answered, layout=layout, said=said)
        if answered.batch:
            items = round_message(answered.layout, answered.batch, stored=stored)
            turn.rounds.append(Round(items, owed))
            layout = []
        if message is not None:
            content = [sent_back(item, stored=stored) for item in layout]
            if said:
                content.append(jsontext.render(message))
            own = jsontext.array([item for item in content if item is not None])
            await self.settling.keep_turn(turn, message, content=jsontext.parse_own(own))
            for digest in also:
                await self.settling.ledger.save_turn(digest, TurnRecord(own.decode(), tuple(turn.rounds)))
        records = call_records(answered.batch, answered.conclusion, [None] * len(answered.batch))
        await self._remember(turn, answered, records, owed=owed, said=said)
        await self._settle_conversation(answered)
        return said

    def _digests(self, turn: ChoiceTurn, answered: Answered, *, layout: Sequence[bytes], said: str) -> list[str]:
        """What a turn that ends in text is found by where the client keeps no ids; where the upstream keeps the
        conversation nobody looks for it."""
        if self.request.remembered or not (turn.rounds or answered.batch):
            return []
        hidden = self.request.wants_json and not self.request.streams  # then the last round's text alone is shown
        rounds = [] if hidden else [jsontext.parse_own(done.message.encode()) for done in turn.rounds]
        items = [*(item for items in rounds for item in items), *(jsontext.parse_own(raw) for raw in layout)]
        texts = [message_text(item) for item in items if isinstance(item, dict) and item.get("type") == "message"]
        return answer_digests(self.request, [*texts, *([said] if said else [])])

    async def fail(self, turn: ChoiceTurn, answered: Answered) -> None:
        """Keep what is owed for a turn that a rule failed: to a conversation, and to a response whose id the client has
        seen already."""
        if self.request.conversation or self.request.streams or self.request.background:
            await self._remember(turn, answered, (), owed=self._results(answered))
            await self._settle_conversation(answered)

    # -- what the next request has to know

    @staticmethod
    def _batch(answered: Answered, *, stored: bool) -> list[Judged]:
        """The batch with its calls as they go back into a history."""
        if stored:
            return list(answered.batch)
        return [
            replace(j, raw=(sent_back(j.raw.encode(), stored=False) or b"{}").decode("utf-8", "replace"))
            for j in answered.batch
        ]

    @staticmethod
    def _results(answered: Answered) -> tuple[RoundResult, ...]:
        """Results for every call of a turn that runs none of them."""
        return tuple(
            RoundResult(
                j.call,
                j.verdict.result or "" if j.verdict.held else NOT_RUN,
                is_blocked(j) or j.call.kind is Kind.APPROVAL,
                True,
            )
            for j in answered.batch
        )

    async def _remember(
        self,
        turn: ChoiceTurn,
        answered: Answered,
        records: tuple[CallRecord, ...],
        *,
        owed: tuple[RoundResult, ...],
        said: str = "",
    ) -> None:
        if not answered.id or not self.stored(answered.response):
            return
        denied = denied_after(turn, answered.batch, answered.conclusion)
        changed = any(c.stage != 0 or c.given is not None or c.given_id not in ("", c.call.call_id) for c in records)
        needed = bool(changed or owed or turn.rounds or said)
        if not needed and not denied and not (records and self.names_results):
            return
        record = ResponseRecord(
            answered.id,
            owed=owed,
            denied=denied,
            calls=tuple(replace(c, given_id=c.given_id or str(c.call.call_id)) for c in records),
            before=jsontext.array(answered.before).decode("utf-8", "replace"),
            usage=jsontext.render_text(answered.usage),
            said=said,
        )
        marks: dict[str, str | None] = {str(r.call.call_id): None for done in turn.rounds for r in done.results}
        for call in record.calls:
            if call.stage is None or call.given_id != call.call.call_id:
                marks[str(call.call.call_id)] = None if call.stage is None else call.given_id
        ids = [*self.shown_ids, answered.id]
        with suppress(*(() if needed else (StoreError,))):  # an answer without held calls passes all the same
            await self.memory.keep(record, ids=ids, conversation=self.request.conversation, calls=marks)

    def was_seen(self, response: dict[str, Any]) -> None:
        """An answer has been seen to its end, and counted. Of one in the background that is the first time, and who
        reads it again counts nothing."""
        if self.request.background and isinstance(found := response.get("id"), str):
            self.settling.telling.was_read(found)

    async def _settle_conversation(self, answered: Answered) -> None:
        """The conversation has what was owed to it, now that the upstream has answered, and before the client hears of
        that: some go away with the last event. A record that this turn put in its place stays. Raises StoreError."""
        broke_off = answered.response.get("status") == "in_progress" and not self.request.background
        name = self.request.conversation
        if self.settles and not broke_off and await self.memory.conversation(name) == self.before:
            await self.memory.forget_conversation(name)

    def tell_records(self, layout: Layout) -> None:
        """Count the calls that the upstream has run by itself; one that was asked for was counted then."""
        for raw in layout:
            if not isinstance(raw, bytes) or b'"mcp_call"' not in raw:
                continue
            item = jsontext.parse_own(raw)
            call = read_record(item) if isinstance(item, dict) else None
            if call is not None and not item.get("approval_request_id"):
                judged = Judged(call, "", Owner.UPSTREAM, Verdict(Decision.ALLOWED))
                self.settling.telling.call(judged, 0.0)


def _last_message(layout: Sequence[bytes]) -> dict[str, Any] | None:
    for raw in reversed(layout):
        item = jsontext.parse_own(raw)
        if isinstance(item, dict) and item.get("type") == "message":
            return item
    return None
