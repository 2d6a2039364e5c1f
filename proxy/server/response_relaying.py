"""A governed stream of a response, relayed over all rounds of a turn.

`pumping.py` takes an answer's bytes through the filter (`core/exchange/response_stream.py`); here what a turn's end
makes necessary is kept before the end goes out, and the upstream is asked for the next round.
"""

from __future__ import annotations

from proxy.core import jsontext
from proxy.core.batch.record import ResponseRecord, ResumeRecord
from proxy.core.calls import ToolCall
from proxy.core.exchange.judging import End, without_continuation
from proxy.core.exchange.recalling import RecalledJudge, recalled_conclusion, recalled_ids
from proxy.core.exchange.response_outgoing import ResponseLead
from proxy.core.exchange.response_rounds import ResponseQuestion, continuation, shown_before
from proxy.core.exchange.response_stream import ResponseStream
from proxy.core.exchange.steps import Ended, Step, StreamLimits
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.protocol.completion import added_usage
from proxy.errors import RequestError, UpstreamError
from proxy.server.asking import ask, changed_headers
from proxy.server.body import BodyReader
from proxy.server.http import Headers, RequestHead, header, without
from proxy.server.pumping import Pump
from proxy.server.response_keeping import Answered, Keeping
from proxy.server.services import ExchangeIn, Services
from proxy.server.waiting import with_pings


class ResponseRelaying:
    """One stream of a client. `previous` is the client's own id of the response before, where the upstream knows that
    by another."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        keeping: Keeping,
        *,
        question: ResponseQuestion | None,
        head: RequestHead,
        denied: int,
        previous: str | None,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._client = exchange.client
        self._keeping = keeping
        self._settling = keeping.settling
        self._question = question
        self._head = head
        self._turn = ChoiceTurn(denied, keeping.settles)
        self._lead = ResponseLead(previous=None if previous is None else jsontext.render(previous))
        self._pending: Answered | None = None
        self._record: ResponseRecord | None = None

    async def relay(self, reader: BodyReader, *, status: int, headers: Headers) -> bool:
        """Relay the first answer and whatever follows it; whether that came to its end. Raises ProxyError: then an
        error event is due."""
        if reader.is_coded:
            headers = without(headers, "content-encoding", "content-length")
        if self._settling.caller.judge.could_hold:  # whether anything will be changed shows only later
            headers = changed_headers(headers, self._exchange.request_id)
        if not self._client.started:
            await self._client.start(status, headers)
        well = await self._one(reader) and await self._go_on()
        await self._client.finish()
        return well

    async def resume(self, record: ResumeRecord) -> bool:
        """Go on from the rounds that an earlier try of the request has come to."""
        taking_up = self._settling.take_up(self._turn, record)
        headers: Headers = (("content-type", "text/event-stream; charset=utf-8"),)
        await self._client.start(200, changed_headers(headers, self._exchange.request_id))
        await with_pings(self._client, taking_up, seconds=self._services.ping_seconds)
        await self._client.write(self._lead.take_up(jsontext.parse_own(record.head.encode()), shown_before(self._turn)))
        self._lead.usage = jsontext.parse_own(record.usage.encode())
        well = await self._ask_again() and await self._go_on()
        await self._client.finish()
        return well

    async def replay(
        self, reader: BodyReader, *, status: int, headers: Headers, record: ResponseRecord | None, after: int
    ) -> bool:
        """Relay a stream that is read again, from behind the event that the client numbers `after`; `record` is what is
        known of it."""
        self._record = record
        self._lead.after = after
        return await self.relay(reader, status=status, headers=headers)

    # -- one answer of the upstream

    async def _one(self, reader: BodyReader) -> bool:
        """Relay one answer; whether it ended without an error."""
        limits, judge = self._services.config.limits, self._settling.caller.judge
        stream = ResponseStream(
            judge if self._record is None else RecalledJudge(judge, self._record),
            self._lead,
            turn=self._turn,
            bounds=self._settling.bounds,
            limits=StreamLimits(limits.event_bytes, limits.batch_calls, limits.held_bytes, limits.nesting),
            used_ids=self._settling.used_ids,
            hosted=self._keeping.request.hosted,
        )
        pump = Pump(
            self._services,
            self._client,
            self._settling,
            ended=lambda ended: self._ended(stream, ended),
            goes_on=lambda: self._pending is not None,
        )
        try:
            await pump.run(reader, stream)
        finally:
            self._exchange.log.next_event = self._lead.number
        self._keeping.tell_records(stream.layout())
        if not stream.failed:
            self._keeping.was_seen(stream.response)
        self._lead.usage = added_usage(self._lead.usage, stream.usage)
        return not stream.failed

    async def _ended(self, stream: ResponseStream, ended: Ended) -> list[Step]:
        batch, conclusion = ended.batch, ended.conclusion
        self._settling.telling.batch(batch, ended.held_for)
        if self._record is not None:
            return self._again(stream, self._record, [judged.call for judged in batch])
        if self._keeping.request.background:
            conclusion = without_continuation(conclusion, batch, otherwise=LIMIT_REACHED)
        await self._settling.give_back(batch, conclusion)
        answered = Answered(
            stream.response, stream.layout(), batch, conclusion, tuple(self._lead.items), self._lead.usage
        )
        self._keeping.shown_ids = self._lead.shown_ids
        match conclusion.end:
            case End.FAIL:
                await self._keeping.fail(self._turn, answered)
                self._settling.tell_end(self._turn, "stopped")
                raise RequestError(conclusion.message, code="tool_call_blocked", status=403)
            case End.CONTINUE:
                self._pending = answered
                return stream.hide(0)
            case End.PASS | End.SPLIT | End.CUT if batch:
                ids = await self._keeping.surface(self._turn, answered, known=ended.known)
                self._settling.tell_end(self._turn, "surfaced")
                return stream.surface(0, conclusion, ids)
            case _:
                said = await self._keeping.end_text(self._turn, answered)
                stopped = conclusion.end is End.STOP
                limit = self._turn.limit(self._settling.bounds)
                self._settling.tell_end(self._turn, "stopped" if stopped else limit or "text")
                return stream.end_with(0, said) if said or batch else stream.surface(0, conclusion, [])

    @staticmethod
    def _again(stream: ResponseStream, record: ResponseRecord, calls: list[ToolCall]) -> list[Step]:
        conclusion = recalled_conclusion(record, calls)
        if conclusion.end is End.STOP:
            return stream.end_with(0, conclusion.message)
        return stream.surface(0, conclusion, recalled_ids(record, calls))

    # -- further rounds

    async def _go_on(self) -> bool:
        """Continue as long as every call was held. False: it failed."""
        while (answered := self._pending) is not None:
            self._pending, rounds, items = None, self._turn.rounds, len(self._lead.items)
            head = self._lead.envelope
            work = self._keeping.hold(self._turn, answered, head=head, usage=self._lead.usage)
            await with_pings(self._client, work, seconds=self._services.ping_seconds)
            if self._turn.rounds is not rounds:  # another try of this request was further
                shown = shown_before(self._turn)
                await self._client.write(self._lead.show(shown[items:]))
            if not await self._ask_again():
                self._settling.tell_end(self._turn, "upstream_error")
                return False
        return True

    async def _ask_again(self) -> bool:
        assert self._question is not None  # what is read again is not continued
        self._exchange.log.rounds += 1
        self._exchange.log.changed = True
        body = continuation(self._question, self._turn.rounds, closing=self._turn.closing)
        async with ask(self._services, self._exchange, self._head, body=body) as answer:
            reader = BodyReader(answer, self._services, self._exchange)
            if answer.status >= 400:
                raise _refused(await reader.read())
            if not await reader.is_events(header(answer.headers, "content-type")):
                raise UpstreamError("The upstream's answer to a continuation is no stream.", kind="protocol")
            self._lead.rounds += 1
            return await self._one(reader)


def _refused(body: bytes) -> UpstreamError:
    """What the upstream said instead of going on, as an error of the stream."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = None
    said = value.get("error") if isinstance(value, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("message"), str):
        return UpstreamError("The upstream refused to go on with the answer.", kind="protocol")
    error = UpstreamError(said["message"], kind="protocol")
    error.type = kind if isinstance(kind := said.get("type"), str) else error.type
    error.code = code if isinstance(code := said.get("code"), str) else None
    error.param = param if isinstance(param := said.get("param"), str) else None
    return error
