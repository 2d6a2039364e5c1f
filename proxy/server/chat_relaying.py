"""A governed stream of a chat completion, relayed over all rounds of a turn.

`pumping.py` takes an answer's bytes through the filter (`core/exchange/chat_stream.py`); here what a turn's end makes
necessary is kept before the end goes out, and the upstream is asked for the next round.
"""

from __future__ import annotations

from collections import deque

from proxy.core import jsontext
from proxy.core.batch.record import ResumeRecord
from proxy.core.exchange.chat_events import Lead
from proxy.core.exchange.chat_rounds import Question, continuation
from proxy.core.exchange.chat_stream import ChatStream
from proxy.core.exchange.judging import End
from proxy.core.exchange.steps import Ended, Step, StreamLimits
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.protocol.chat import content_text
from proxy.core.protocol.completion import added_usage
from proxy.errors import RequestError, UpstreamError
from proxy.server.asking import ask, changed_headers, error_event_of
from proxy.server.body import BodyReader
from proxy.server.http import Headers, RequestHead, header, without
from proxy.server.pumping import Pump
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Settling
from proxy.server.waiting import with_pings


class Relaying:
    """One stream of a client."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        settling: Settling,
        *,
        question: Question,
        head: RequestHead,
        denied: int,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._client = exchange.client
        self._settling = settling
        self._question = question
        self._head = head
        self._denied = denied
        self._lead = Lead()
        self._turns: dict[int, ChoiceTurn] = {}
        self._to_continue: deque[int] = deque()
        self._pending: dict[int, Ended] = {}

    async def relay(self, reader: BodyReader, *, status: int, headers: Headers) -> bool:
        """Relay the first answer and whatever follows it; whether that came to its end. Raises ProxyError: then an
        error event is due."""
        judge = self._settling.caller.judge
        if reader.is_coded:
            headers = without(headers, "content-encoding", "content-length")
        if judge.could_hold:  # whether anything will be changed shows only when the head is long gone
            headers = changed_headers(headers, self._exchange.request_id)
        if not self._client.started:
            await self._client.start(status, headers)
        well = await self._one(reader, only=None) and await self._go_on()
        await self._client.finish()
        return well

    async def resume(self, record: ResumeRecord) -> bool:
        """Go on from the rounds that an earlier try of the request has come to."""
        turn = self._turn(0)
        taking_up = self._settling.take_up(turn, record)
        headers: Headers = (("content-type", "text/event-stream; charset=utf-8"),)
        await self._client.start(200, changed_headers(headers, self._exchange.request_id))
        await with_pings(self._client, taking_up, seconds=self._services.ping_seconds)
        self._lead.envelope = jsontext.parse_own(record.head.encode())
        self._lead.usage = jsontext.parse_own(record.usage.encode())
        self._lead.rounds = 2
        if turn.shown:
            await self._client.write(self._lead.chunk(0, {"content": turn.shown}))
        self._to_continue.append(0)
        well = await self._go_on()
        await self._client.finish()
        return well

    def _turn(self, index: int) -> ChoiceTurn:
        return self._turns.setdefault(index, ChoiceTurn(self._denied))

    # -- one answer of the upstream

    async def _one(self, reader: BodyReader, *, only: int | None) -> bool:
        """Relay one answer; whether it ended without an error."""
        limits = self._services.config.limits
        stream = ChatStream(
            self._settling.caller.judge,
            self._lead,
            turn_of=self._turn,
            bounds=self._settling.bounds,
            limits=StreamLimits(limits.event_bytes, limits.batch_calls, limits.held_bytes, limits.nesting),
            used_ids=self._settling.used_ids,
            only=only,
        )
        pump = Pump(
            self._services,
            self._client,
            self._settling,
            ended=lambda ended: self._ended(stream, ended),
            goes_on=lambda: bool(self._to_continue),
        )
        await pump.run(reader, stream)
        self._lead.usage = added_usage(self._lead.usage, stream.usage)
        return not stream.failed

    # -- the end of a choice

    async def _ended(self, stream: ChatStream, ended: Ended) -> list[Step]:
        self._settling.telling.batch(ended.batch, ended.held_for)
        await self._settling.give_back(ended.batch, ended.conclusion)
        turn, text = self._turn(ended.index), content_text(ended.message.get("content"))
        match ended.conclusion.end:
            case End.FAIL:
                self._settling.tell_end(turn, "stopped")
                raise RequestError(ended.conclusion.message, code="tool_call_blocked", status=403)
            case End.CONTINUE:
                return await self._hold(stream, ended, turn, text=text)
            case End.STOP | End.CLOSED:
                return await self._end_text(stream, ended, turn, text=text)
            case End.PASS | End.SPLIT | End.CUT if ended.batch:
                return await self._surface(stream, ended, turn, text=text)
            case _:
                return await self._end_text(stream, ended, turn, text=text)

    async def _hold(self, stream: ChatStream, ended: Ended, turn: ChoiceTurn, *, text: str) -> list[Step]:
        """The whole batch is held: keep its end from the client, and answer its calls when the stream is over."""
        self._to_continue.append(ended.index)
        self._pending[ended.index] = ended
        turn.texts += [text] if text else []
        return stream.hide(ended.index)

    async def _end_text(self, stream: ChatStream, ended: Ended, turn: ChoiceTurn, *, text: str) -> list[Step]:
        message = ended.conclusion.message
        if not message and not text and not turn.texts and turn.closing:
            message = LIMIT_REACHED
        own = "\n\n".join(part for part in (text, message) if part)
        shown = "\n\n".join(part for part in (turn.shown, own) if part)
        await self._settling.keep_turn(turn, {"role": "assistant", "content": shown}, content=own)
        self._settling.tell_end(
            turn, "stopped" if ended.conclusion.end is End.STOP else turn.limit(self._settling.bounds) or "text"
        )
        if not ended.batch and not message:
            return stream.surface(ended.index, ended.conclusion, [])
        return stream.end_with(ended.index, message)

    async def _surface(self, stream: ChatStream, ended: Ended, turn: ChoiceTurn, *, text: str) -> list[Step]:
        message = {"role": "assistant", "content": None} | {k: v for k, v in ended.message.items() if v is not None}
        ids = await self._settling.surface(
            turn,
            ended.batch,
            conclusion=ended.conclusion,
            known=ended.known,
            message=jsontext.render_text(message),
            shown="\n\n".join([*turn.texts, *([text] if text else [])]),
            index=ended.index,
        )
        await self._settling.point_to(self._lead.envelope.get("id"))
        self._settling.tell_end(turn, "surfaced")
        return stream.surface(ended.index, ended.conclusion, ids)

    # -- further rounds

    async def _go_on(self) -> bool:
        """Continue each choice whose batch was held whole, then send what ends the stream. False: it failed."""
        continued = bool(self._to_continue)
        while self._to_continue:
            index = self._to_continue.popleft()
            turn = self._turn(index)
            if (ended := self._pending.pop(index, None)) is not None:
                shown, work = turn.shown, self._answer_calls(turn, ended)
                await with_pings(self._client, work, seconds=self._services.ping_seconds)
                if more := turn.shown[len(shown) :]:  # another try of this request was further
                    await self._client.write(self._lead.chunk(index, {"content": more}))
            if not await self._ask_again(index, turn):
                self._settling.tell_end(turn, "upstream_error")
                return False
        if continued:
            await self._send_tail()
        return True

    async def _answer_calls(self, turn: ChoiceTurn, ended: Ended) -> None:
        message = {"role": "assistant", "content": None} | {k: v for k, v in ended.message.items() if v is not None}
        rendered = jsontext.render(message)
        raws = [j.raw.encode() for j in ended.batch if j.call.kind != "legacy"]
        legacy = [j.raw.encode() for j in ended.batch if j.call.kind == "legacy"]
        changes: dict[jsontext.Path, bytes | None] = {}
        if raws:
            changes["tool_calls",] = jsontext.array(raws)
        if legacy:
            changes["function_call",] = legacy[0]
        await self._settling.hold(
            turn,
            ended.batch,
            conclusion=ended.conclusion,
            message=jsontext.edit(rendered, changes).decode(),
            head=self._lead.envelope,
            usage=self._lead.usage,
            index=ended.index,
            shown=turn.shown,
        )

    async def _ask_again(self, index: int, turn: ChoiceTurn) -> bool:
        self._exchange.log.rounds += 1
        self._exchange.log.changed = True
        body = continuation(self._question, turn.rounds, closing=turn.closing)
        async with ask(self._services, self._exchange, self._head, body=body) as answer:
            reader = BodyReader(answer, self._services, self._exchange)
            if answer.status >= 400:
                await self._client.write(error_event_of(await reader.read()))
                return False
            if not await reader.is_events(header(answer.headers, "content-type")):
                raise UpstreamError("The upstream's answer to a continuation is no stream.", kind="protocol")
            self._lead.rounds += 1
            return await self._one(reader, only=index)

    async def _send_tail(self) -> None:
        """Usage, added up, and the last event: once, at the very end."""
        out = b""
        if (event := self._lead.usage_event) is not None and event.data is not None:
            changes: dict[jsontext.Path, bytes | None] = {("usage",): jsontext.render(self._lead.usage)}
            first = self._lead.envelope
            changes |= {(k,): jsontext.render(first[k]) for k in ("id", "created") if k in first}
            out += event.with_data(jsontext.edit(event.data, changes))
        if self._lead.done_event is not None:
            out += self._lead.done_event.raw
        if out:
            await self._client.write(out)
