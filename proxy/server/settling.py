"""What a decided batch makes necessary before a byte that depends on it may leave: ids, records, runs.

Answers in one piece and streams come here alike.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import string
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.batch.record import BatchRecord, ResumeRecord, Round, TurnRecord
from proxy.core.calls import BatchId, run_name
from proxy.core.exchange.judging import Conclusion, End, Judged
from proxy.core.exchange.turns import Bounds, ChoiceTurn, Form, call_records, hidden_round, ids_to_give, pending_batch
from proxy.core.jsontext import parse_own, render_text
from proxy.core.policy.consults import Consult, CountCall, Reply
from proxy.errors import StoreError
from proxy.server.asking import has_id
from proxy.server.consulting import settled
from proxy.server.ledger import Ledger
from proxy.server.running import Caller, Runs
from proxy.server.telling import Telling
from proxy.tools.spec import Execution

_ID_CHARACTERS = string.ascii_letters + string.digits


def fresh_call_id() -> str:
    """An id that nobody can guess and that comes only once."""
    return "call_" + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(24))


@dataclass(slots=True)
class Resume:
    """How far earlier tries of this request have come. `version` is what the ledger holds (0: nothing, None: this
    request keeps to itself, since another try of it was faster)."""

    digest: str
    version: int | None = 0
    record: ResumeRecord | None = None


@dataclass(slots=True)
class Settling:
    """What one request keeps in the ledger. `used_ids` are the ids of calls in its history; `again`: the answer was
    settled before, so that nothing is counted once more, and ids that the ledger has are its own; `shown`: what ends
    the answer's turns has gone out."""

    caller: Caller
    runs: Runs
    telling: Telling
    form: Form
    bounds: Bounds
    used_ids: frozenset[str]
    resume: Resume
    again: bool = False
    shown: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    stored: list[tuple[int, BatchId]] = field(default_factory=list)
    _going_on: list[ChoiceTurn] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return self.caller.ledger

    async def consult(self, asked: Consult) -> Reply:
        """What a judgement asks of the world. Raises StoreError."""
        consulting = self.caller.consulting
        return await (consulting.answer_again(asked) if self.again else consulting.answer(asked))

    async def decided(self, judging: Generator[Consult, Reply, Judged]) -> Judged:
        """A call of an answer in one piece, decided. Raises StoreError."""
        return await settled(judging, self._waited_for)

    async def give_back(self, batch: Sequence[Judged], conclusion: Conclusion) -> None:
        """What people approved for calls that do not go ahead counts for the next. Raises StoreError."""
        for judged, stage in zip(batch, conclusion.stages, strict=True):
            ended = conclusion.end in (End.STOP, End.FAIL, End.CLOSED) and stage is None
            if judged.verdict.held or ended:
                for approval_id in judged.verdict.approvals:
                    await self.caller.consulting.desk.give_back(approval_id)

    async def _waited_for(self, asked: Consult) -> Reply:
        if isinstance(asked, CountCall):
            return await self.consult(asked)
        with self.telling.waiting():
            return await self.consult(asked)

    async def has_id(self, call_id: str) -> bool:
        """Whether the ledger has the id of a call already."""
        return not self.again and await has_id(self.ledger, call_id)

    async def surface(
        self,
        turn: ChoiceTurn,
        batch: Sequence[Judged],
        *,
        conclusion: Conclusion,
        known: frozenset[str],
        message: str,
        shown: str,
        index: int,
    ) -> list[str | None]:
        """Keep what a surfaced batch needs kept; the ids that the client gets. Raises StoreError."""
        own: list[str | None] = [str(j.call.call_id) for j in batch]
        originals = any(j.verdict.original_history and not j.held for j in batch)
        needed = conclusion.end is End.SPLIT or bool(turn.rounds) or originals or bool(known)
        if conclusion.end is End.CUT or not needed:
            self.telling.surfaced(own)
            return [None] * len(batch)
        if any(j.call.kind == "legacy" for j in batch):
            await self._keep_legacy(turn, batch, shown=shown, message=message)
            return [None] * len(batch)
        ids = ids_to_give(batch, conclusion, taken=self.used_ids | known, fresh_id=fresh_call_id)
        batch_id = BatchId(f"{self.id}.{index}.{len(turn.rounds)}")
        records = call_records(batch, conclusion, ids)
        record = BatchRecord(batch_id, message, shown, records, tuple(turn.rounds))
        batch_id = await self.ledger.save_batch(record, remembered=self.form.remembered, again=self.again)
        record = replace(record, batch_id=batch_id)
        self.stored.append((index, batch_id))
        self.telling.split(record)
        self.telling.surfaced(ids)
        await self._start_eager(record)
        return ids

    async def _keep_legacy(self, turn: ChoiceTurn, batch: Sequence[Judged], *, shown: str, message: str) -> None:
        """A legacy call has no id: hidden rounds before it are found by the whole history, as those before a text."""
        if not turn.rounds:
            return
        call = next(j for j in batch if j.call.kind == "legacy")
        said = {
            "role": "assistant",
            "content": shown,
            "function_call": {"name": call.call.name, "arguments": call.text},
        }
        await self.keep_turn(turn, said, content=parse_own(message.encode()).get("content"))

    async def _start_eager(self, record: BatchRecord) -> None:
        for ordinal, call in enumerate(record.calls):
            if call.stage is None and call.result is None:
                spec = self.caller.loaded.tools.specs.get(run_name(call.call.name))
                if spec is not None and spec.execution is Execution.EAGER:
                    await self.runs.begin(self.caller, record.batch_id, ordinal, call=call, recheck=False)

    async def keep_turn(self, turn: ChoiceTurn, said: dict[str, Any], *, content: Any) -> None:
        """Keep the hidden rounds of a turn that ends with `said`, the message as the client has it; `content` is what
        its last round said itself. Raises StoreError."""
        if turn.rounds:
            record = TurnRecord(render_text(content), tuple(turn.rounds))
            await self.ledger.save_turn(self.form.digest_of(said), record)

    async def hold(
        self,
        turn: ChoiceTurn,
        batch: Sequence[Judged],
        *,
        conclusion: Conclusion,
        message: str,
        head: dict[str, Any],
        usage: Any,
        index: int,
        shown: str,
    ) -> None:
        """Answer every call of a batch that is held whole, and add the hidden round to the turn. `shown` is the text of
        the turn that the client has already: rounds of another try fit where theirs begins the same. Raises StoreError.
        """
        self._goes_on(turn)
        batch_id = BatchId(f"{self.id}.{index}.{len(turn.rounds)}")
        pending = pending_batch(batch, conclusion, batch_id=batch_id, message=message)
        if any(j.runs for j in batch) and self.resume.version is not None:
            record = ResumeRecord(self.id, render_text(head), render_text(usage), tuple(turn.rounds), pending)
            taken = await self._save_resume(record, shown=shown)
            if taken is not None:
                await self.take_up(turn, taken)
                return
        turn.add_round(await self.run_pending(pending), self.bounds)

    async def _save_resume(self, record: ResumeRecord, *, shown: str) -> ResumeRecord | None:
        """Keep how far this request has come; the record of another try that was faster, where that may be taken up."""
        assert self.resume.version is not None
        if await self.ledger.save_resume(self.resume.digest, record, self.resume.version):
            self.resume.version += 1
            return None
        other = await self.ledger.resume(self.resume.digest)
        if other is None or not "\n\n".join(self._texts(other[0])).startswith(shown):
            self.resume.version = None
            return None
        self.resume.record, self.resume.version = other
        return self.resume.record

    async def take_up(self, turn: ChoiceTurn, record: ResumeRecord) -> None:
        """Go on from the rounds that another try of this request has come to. Raises StoreError."""
        self._goes_on(turn)
        turn.restart()
        for hidden in record.rounds:
            turn.add_round(hidden, self.bounds)
        if record.pending is not None:
            turn.add_round(await self.run_pending(record.pending), self.bounds)
        turn.texts = self._texts(record)

    def _texts(self, record: ResumeRecord) -> list[str]:
        """What was said in the rounds of an answer, one text a round that said something."""
        messages = [*(r.message for r in record.rounds), *([record.pending.message] if record.pending else [])]
        return [text for message in messages if (text := self.form.text_of(message))]

    async def run_pending(self, pending: BatchRecord) -> Round:
        """The round of a batch whose calls are all held, once each has its result."""
        due = [i for i, call in enumerate(pending.calls) if call.result is None]
        work = [self.runs.result(self.caller, pending.batch_id, i, call=pending.calls[i], recheck=False) for i in due]
        with self.telling.waiting():
            runs = dict(zip(due, await asyncio.gather(*work), strict=True))
        results = [
            (runs[i].text, runs[i].blocked, runs[i].failed)
            if i in runs
            else (call.result or "", call.blocked, call.blocked)
            for i, call in enumerate(pending.calls)
        ]
        return hidden_round(pending.message, pending, results)

    # -- how turns with hidden rounds end

    def _goes_on(self, turn: ChoiceTurn) -> None:
        if not any(known is turn for known in self._going_on):
            self._going_on.append(turn)

    def tell_end(self, turn: ChoiceTurn, end: str) -> None:
        """Count how a turn ended, if it has hidden rounds: once."""
        left = [known for known in self._going_on if known is not turn]
        if len(left) < len(self._going_on):
            self._going_on = left
            self.telling.continuation(end)

    def tell_broken(self, error: BaseException) -> None:
        """Count the turns that an error ended in the middle."""
        if isinstance(error, asyncio.CancelledError | ConnectionError):
            end = "client_gone"
        else:
            end = "errors" if isinstance(error, StoreError) else "upstream_error"
        for turn in list(self._going_on):
            self.tell_end(turn, end)

    async def point_to(self, answer_id: Any) -> None:
        """Where the upstream keeps the answer, remember its batches, so that it reads the same again."""
        if self.form.stored and isinstance(answer_id, str):
            for index, batch_id in self.stored:
                await self.ledger.point_to_answer(answer_id, index, batch_id)

    async def done(self) -> None:
        """The client has the whole answer: nothing of it has to be taken up again."""
        if self.resume.version:
            with suppress(StoreError):  # it expires by itself
                await self.ledger.drop_resume(self.resume.digest, self.resume.version)


def request_digest(target: str, body: bytes) -> str:
    """What tells a request that is sent again from every other of its tenant."""
    return hashlib.sha256(target.encode("utf-8", "replace") + b"\0" + body).hexdigest()
