"""A governed stream, relayed: bytes from the upstream through the filter to the client, over all rounds of a turn.

The filter (`core/exchange/chat_stream.py`) says what to send; here it is sent, what it asks is answered, and what
a turn's end makes necessary is kept before the end goes out. What one read of the upstream gave goes out in one
write, before the next read and before any question is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import ResumeRecord
from proxy.core.exchange.chat_events import Lead
from proxy.core.exchange.chat_rounds import Question, continuation
from proxy.core.exchange.chat_stream import ChatStream
from proxy.core.exchange.judging import End
from proxy.core.exchange.steps import Asked, Broken, Ended, LookUp, Send, Step, StreamLimits
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.protocol.chat import content_text
from proxy.core.protocol.completion import added_usage
from proxy.core.protocol.sse import render
from proxy.errors import RequestError, UpstreamError
from proxy.server.asking import ask, changed_headers, consult, has_id
from proxy.server.body import BodyReader
from proxy.server.budget import BufferShare
from proxy.server.http import Headers, RequestHead, header, without
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Settling
from proxy.server.waiting import with_pings

_TAIL_SECONDS = 1.0
_AT_ONCE = 0.005


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
        self._questions: dict[asyncio.Future[bool], Asked | LookUp] = {}

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
        try:
            with self._services.budget.share() as share:
                await self._read(reader, stream, share)
            await self._perform(stream, stream.finish(self._now()))
            await self._settle_questions(stream)
        finally:
            await self._drop_questions()
            for judged, held_for in stream.abandon():
                self._settling.telling.call(judged, held_for)
        self._lead.usage = added_usage(self._lead.usage, stream.usage)
        return not stream.failed

    async def _read(self, reader: BodyReader, stream: ChatStream, share: BufferShare) -> None:
        held = 0
        pieces = aiter(reader.pieces())
        while True:
            piece = await self._next(pieces, stream)
            if piece is None:
                return
            await self._perform(stream, stream.feed(piece, self._now()))
            await self._catch_up(stream)
            now_held = stream.kept_bytes
            if now_held > held:
                share.take(now_held - held)
            else:
                share.give(held - now_held)
            held = now_held

    async def _catch_up(self, stream: ChatStream) -> None:
        """Events that came with a question follow its answer where that comes at once; else they go on without it."""
        while stream.waiting and self._questions:
            done, _ = await asyncio.wait(self._questions, timeout=_AT_ONCE, return_when=asyncio.FIRST_COMPLETED)
            if done:
                await self._take_answers(stream)
            else:
                await self._perform(stream, stream.go_on(self._now()))

    async def _next(self, pieces: AsyncIterator[bytes], stream: ChatStream) -> bytes | None:
        """The next bytes. While a call waits for the answer to a question, text goes on; an upstream that leaves its
        connection open behind the end holds up no continuation."""
        if not self._questions and not (self._to_continue and stream.over):
            return await anext(pieces, None)
        reading = asyncio.ensure_future(_first_of(pieces))
        try:
            while not reading.done():
                limit = _TAIL_SECONDS if self._to_continue and stream.over and not self._questions else None
                waiting: list[asyncio.Future[Any]] = [reading, *self._questions]
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return None
                await self._take_answers(stream)
            return reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])

    async def _perform(self, stream: ChatStream, steps: Iterable[Step]) -> None:
        """Do what the filter says: send first, since nothing that is to be sent waits for a question or an end that
        comes with it; then ask, and settle what has ended."""
        todo = list(steps)
        while todo:
            if out := b"".join(step.data for step in todo if isinstance(step, Send)):
                await self._client.write(out)
            todo, rest = [], [step for step in todo if not isinstance(step, Send)]
            for step in rest:
                match step:
                    case Broken(error):
                        raise error
                    case Ended():
                        todo += await self._ended(stream, step)
                    case Asked() | LookUp():
                        self._ask(step)

    # -- questions

    def _ask(self, step: Asked | LookUp) -> None:
        ledger = self._settling.ledger
        work = consult(ledger, step.consult) if isinstance(step, Asked) else has_id(ledger, step.call_id)
        self._questions[asyncio.ensure_future(work)] = step

    async def _take_answers(self, stream: ChatStream) -> None:
        """Tell the filter what has been answered by now. Raises StoreError."""
        for task in [task for task in self._questions if task.done()]:
            step, answer = self._questions.pop(task), task.result()
            tell = stream.answer if isinstance(step, Asked) else stream.known
            await self._perform(stream, tell(step.key, answer, self._now()))

    async def _settle_questions(self, stream: ChatStream) -> None:
        while self._questions:
            await asyncio.wait(self._questions, return_when=asyncio.FIRST_COMPLETED)
            await self._take_answers(stream)

    async def _drop_questions(self) -> None:
        tasks, self._questions = list(self._questions), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _now(self) -> float:
        return self._services.timer()

    # -- the end of a choice

    async def _ended(self, stream: ChatStream, ended: Ended) -> list[Step]:
        self._settling.telling.batch(ended.batch, ended.held_for)
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
        await self._settling.end_text(turn, text=shown, own=own)
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


async def _first_of(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def error_event_of(body: bytes) -> bytes:
    """The upstream's error as an event of a stream."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("error"):
        return render(jsontext.render({"error": value["error"]}))
    raise UpstreamError("The upstream refused to go on with the answer.", kind="protocol")
