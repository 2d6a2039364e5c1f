"""The answer to a governed request for a response, settled in one piece. Streams are relayed in `response_relaying.py`.

The client sees one response: the output items of all rounds less the held calls, under the last one's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import ResumeRecord
from proxy.core.calls import Batch
from proxy.core.exchange.judging import Conclusion, End, Judged, check_approvals, conclude, without_continuation
from proxy.core.exchange.response_rounds import ResponseQuestion, continuation, shown_before
from proxy.core.exchange.steps import too_deep, too_long
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.protocol.completion import added_usage, reads_two_ways
from proxy.core.protocol.response_answer import (
    RUNNING,
    Output,
    UnreadableError,
    is_cut_short,
    read_output,
    read_response,
)
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.response_items import edited_call, message_item
from proxy.errors import RequestError, UpstreamError
from proxy.server.answering import Settled
from proxy.server.asking import UpstreamAnswerError, ask
from proxy.server.body import BodyReader
from proxy.server.http import Answer, Headers, RequestHead
from proxy.server.response_keeping import Answered, Keeping
from proxy.server.response_relaying import ResponseRelaying
from proxy.server.services import ExchangeIn, Services


@dataclass(slots=True)
class Whole:
    """A response in one piece while it is settled: its newest answer, and what the client is shown of all before.
    `first` is the answer that gives time, status and headers."""

    status: int
    headers: Headers
    body: bytes
    value: dict[str, Any]
    first: dict[str, Any]
    before: list[bytes] = field(default_factory=list)
    usage: Any = None
    changed: bool = False


class ResponseAnswers:
    """The answers to one request for a response, whole or streamed. `question` None: nothing was asked, an answer is
    read again. `previous` is the client's own id of the response before, where the upstream knows that by another."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        keeping: Keeping,
        *,
        question: ResponseQuestion | None,
        denied: int,
        previous: str | None,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._keeping = keeping
        self._settling = keeping.settling
        self._question = question
        self._denied = denied
        self._previous = previous

    def relaying(self, head: RequestHead) -> ResponseRelaying:
        return ResponseRelaying(
            self._services,
            self._exchange,
            self._keeping,
            question=self._question,
            head=head,
            denied=self._denied,
            previous=self._previous,
        )

    async def settle(self, data: bytes, answer: Answer, head: RequestHead) -> Settled | None:
        strict = self._settling.caller.judge.could_hold
        value = parsed_response(data, self._services.config.limits.nesting, strict=strict)
        if value is None:
            return None
        whole = Whole(answer.status, answer.headers, data, value, value)
        return await self._settled(whole, ChoiceTurn(self._denied), head)

    async def settled_again(self, data: bytes, value: dict[str, Any]) -> bytes:
        """A response that is read again, as the client may see it. Raises StoreError."""
        whole = Whole(200, (), data, value, value)
        settled = await self._settled(whole, ChoiceTurn(0), RequestHead("GET", "", ()))
        return data if settled.body is None else settled.body

    async def resume(self, record: ResumeRecord, head: RequestHead) -> Settled:
        turn = ChoiceTurn(self._denied)
        await self._settling.take_up(turn, record)
        usage = jsontext.parse_own(record.usage.encode())
        whole = Whole(200, (), b"", {}, {}, shown_before(turn), usage, changed=True)
        await self._ask_again(whole, turn, head)
        whole.first = whole.first | jsontext.parse_own(record.head.encode())
        return await self._settled(whole, turn, head)

    async def _settled(self, whole: Whole, turn: ChoiceTurn, head: RequestHead) -> Settled:
        """The response over as many rounds as it takes. Raises ProxyError, UpstreamAnswerError."""
        while True:
            output = read_output(whole.body, whole.value, hosted=self._keeping.request.hosted)
            if self._keeping.request.background and whole.value.get("status") in RUNNING:
                return self._unfinished(whole, output)
            self._keeping.tell_records(output.layout)
            batch = await self._judged(output)
            answered = Answered(
                whole.value, output.layout, batch, self._conclude(whole, turn, batch), whole.before, whole.usage
            )
            self._settling.telling.batch(batch, [0.0] * len(batch))
            await self._settling.give_back(batch, answered.conclusion)
            if answered.conclusion.end is not End.CONTINUE:
                self._keeping.was_seen(whole.value)
                await self._end(whole, turn, answered)
                return self._rendered(whole)
            usage = added_usage(whole.usage, whole.value.get("usage"))
            envelope = {k: v for k, v in whole.first.items() if k not in ("output", "usage")}
            before = turn.rounds
            await self._keeping.hold(turn, answered, head=envelope, usage=usage)
            whole.usage = usage
            if turn.rounds is before:
                whole.before += [item for item in output.layout if isinstance(item, bytes)]
            else:  # another try of this request was further
                whole.before = shown_before(turn)
            await self._ask_again(whole, turn, head)

    def _unfinished(self, whole: Whole, output: Output) -> Settled:
        """A response that still runs shows no call: its batch is not whole."""
        if not output.calls or not self._settling.caller.judge.could_hold:
            return Settled(whole.status, whole.headers, None)
        kept = [item for item in output.layout if isinstance(item, bytes)]
        return Settled(whole.status, whole.headers, jsontext.edit(whole.body, {("output",): jsontext.array(kept)}))

    def _conclude(self, whole: Whole, turn: ChoiceTurn, batch: Sequence[Judged]) -> Conclusion:
        conclusion = conclude(
            batch,
            cut=is_cut_short(whole.value),
            closing=turn.closing,
            denied=turn.denied,
            stop_after=self._settling.bounds.stop_after,
        )
        if self._keeping.request.background:
            return without_continuation(conclusion, batch, otherwise=LIMIT_REACHED)
        return conclusion

    async def _judged(self, output: Output) -> tuple[Judged, ...]:
        most = self._services.config.limits.batch_calls
        if len(output.calls) > most:
            raise too_long("A batch of calls", most)
        names = tuple(call.name for call, _ in output.calls)
        found = []
        for number, (call, raw) in enumerate(output.calls):
            batch = Batch(len(names), number, names)
            judging = self._settling.caller.judge.judge(call, raw.decode("utf-8", "replace"), batch)
            found.append(await self._settling.decided(judging))
        check_approvals(found if self._settling.caller.judge.could_hold else ())
        return tuple(found)

    async def _ask_again(self, whole: Whole, turn: ChoiceTurn, head: RequestHead) -> None:
        """Put the answer of the next round in the place of the last. Raises UpstreamError, UpstreamAnswerError."""
        assert self._question is not None  # what is read again is not continued
        self._exchange.log.rounds += 1
        body = continuation(self._question, turn.rounds, closing=turn.closing)
        async with ask(self._services, self._exchange, head, body=body) as answer:
            reader = BodyReader(answer, self._services, self._exchange)
            data = await reader.read()
        if answer.status >= 400:
            raise UpstreamAnswerError(answer.status, answer.headers, reader.sent)
        strict = self._settling.caller.judge.could_hold
        value = parsed_response(data, self._services.config.limits.nesting, strict=strict)
        if value is None:
            raise UpstreamError("The upstream's answer to a continuation is no response.", kind="protocol")
        if not whole.first:
            whole.first, whole.status, whole.headers = value, answer.status, answer.headers
        self._exchange.share.give(len(whole.body))
        whole.body, whole.value, whole.changed = data, value, True

    # -- the end

    async def _end(self, whole: Whole, turn: ChoiceTurn, answered: Answered) -> None:
        """Settle the last round: `whole.body` becomes what the client gets of it."""
        batch, conclusion = answered.batch, answered.conclusion
        match conclusion.end:
            case End.FAIL:
                await self._keeping.fail(turn, answered)
                self._settling.tell_end(turn, "stopped")
                raise RequestError(conclusion.message, code="tool_call_blocked", status=403)
            case End.PASS | End.SPLIT | End.CUT if batch:
                ids = await self._keeping.surface(turn, answered, known=await self._known(batch, conclusion))
                kept = [
                    edited_call(j.raw.encode(), j.call, call_id=given, text=j.verdict.text) if stage == 0 else None
                    for j, stage, given in zip(batch, conclusion.stages, ids, strict=True)
                ]
                self._settling.tell_end(turn, "surfaced")
                self._show(whole, answered, kept)
            case _:
                said = await self._keeping.end_text(turn, answered)
                end = "stopped" if conclusion.end is End.STOP else turn.limit(self._settling.bounds) or "text"
                self._settling.tell_end(turn, end)
                self._show(whole, answered, [None] * len(batch), said=said)

    async def _known(self, batch: Sequence[Judged], conclusion: Conclusion) -> frozenset[str]:
        if conclusion.end is End.CUT:
            return frozenset()
        ids = [str(j.call.call_id) for j in batch if not j.held]
        return frozenset([i for i in ids if await self._settling.has_id(i)])

    def _show(self, whole: Whole, answered: Answered, calls: Sequence[bytes | None], *, said: str = "") -> None:
        """Put the items that the client is shown in the place of the upstream's."""
        own: list[bytes] = []
        for item in answered.layout:
            shown = item if isinstance(item, bytes) else calls[item]
            own += [shown] if shown is not None else []
        if said:
            own.append(jsontext.render(message_item(said, own_message_id(answered.id))))
        as_came = [i if isinstance(i, bytes) else answered.batch[i].raw.encode() for i in answered.layout]
        if own == as_came and not whole.changed and not whole.before:
            return
        before = whole.before if not self._settling.form.wants_json else without_messages(whole.before)
        changes: dict[Path, bytes | None] = {("output",): jsontext.array([*before, *own])}
        if said and whole.value.get("status") not in (None, "completed"):
            changes["status",] = b'"completed"'
        whole.body, whole.changed = jsontext.edit(whole.body, changes), True

    def _rendered(self, whole: Whole) -> Settled:
        """The settled response: as it came, or with the time of the first and all that was used."""
        changes: dict[Path, bytes | None] = {}
        usage = added_usage(whole.usage, whole.value.get("usage"))
        if whole.usage is not None and usage != whole.value.get("usage"):
            changes["usage",] = jsontext.render(usage)
        if "created_at" in whole.first and whole.first["created_at"] != whole.value.get("created_at"):
            changes["created_at",] = jsontext.render(whole.first["created_at"])
        if self._previous is not None and whole.value.get("previous_response_id") not in (None, self._previous):
            changes["previous_response_id",] = jsontext.render(self._previous)
        if not changes and not whole.changed:
            return Settled(whole.status, whole.headers, None)
        return Settled(whole.status, whole.headers, jsontext.edit(whole.body, changes))


def without_messages(items: Sequence[bytes]) -> list[bytes]:
    return [raw for raw in items if jsontext.parse_own(raw).get("type") != "message"]


def parsed_response(data: bytes, nesting: int, *, strict: bool = True) -> dict[str, Any] | None:
    """A body as a response, or None. Raises UpstreamError for one that could hide a call; `strict`: also for one that
    says twice what a call is."""
    if strict and reads_two_ways(data):
        raise UpstreamError("The upstream's answer says twice what a tool call is.", kind="protocol")
    if jsontext.nests_deeper(data, nesting):
        raise too_deep("The upstream's answer", nesting)
    try:
        return read_response(data)
    except UnreadableError as error:
        raise UpstreamError("The upstream's answer is no plain JSON and holds a tool call.", kind="protocol") from error
