"""The answer to a governed chat completion, settled in one piece. Streams are relayed in `chat_relaying.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import ResumeRecord
from proxy.core.calls import Batch
from proxy.core.exchange.chat_rounds import Question, continuation
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, conclude
from proxy.core.exchange.steps import too_deep, too_long
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.protocol.completion import (
    CUT_SHORT,
    Choice,
    UnreadableError,
    added_usage,
    edited_call,
    history_message,
    holds_call,
    read_answer,
    read_choices,
    reads_two_ways,
    with_calls,
    with_text,
)
from proxy.errors import RequestError, UpstreamError
from proxy.server.answering import Settled
from proxy.server.asking import UpstreamAnswerError, ask
from proxy.server.body import BodyReader
from proxy.server.chat_relaying import Relaying
from proxy.server.http import Answer, Headers, RequestHead
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Settling


@dataclass(slots=True)
class Whole:
    """An answer in one piece while it is settled. `first` is the answer that gives id, time, status and headers."""

    status: int
    headers: Headers
    body: bytes
    value: dict[str, Any]
    first: dict[str, Any]
    usage: Any = None
    changed: bool = False
    choices: dict[int, bytes] = field(default_factory=dict)


class WholeSettling:
    """Settles the choices of answers in one piece."""

    def __init__(
        self, services: Services, exchange: ExchangeIn, settling: Settling, *, question: Question, head: RequestHead
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._settling = settling
        self._judge: Judge = settling.caller.judge
        self._question = question
        self._head = head

    async def settle(self, whole: Whole, *, denied: int, turns: dict[int, ChoiceTurn]) -> None:
        """Settle every choice. Raises ProxyError, UpstreamAnswerError."""
        base = whole
        for choice in read_choices(whole.body, whole.value):
            turn = turns.setdefault(choice.index, ChoiceTurn(denied))
            whole.choices[choice.at] = await self.choice(base, choice, turn, index=choice.index)

    async def choice(self, whole: Whole, choice: Choice, turn: ChoiceTurn, *, index: int) -> bytes:
        """One choice, over as many rounds as it takes; its bytes as the client gets them."""
        while True:
            batch = await self._batch(choice)
            cut = choice.finish in CUT_SHORT
            bounds = self._settling.bounds
            conclusion = conclude(
                batch, cut=cut, closing=turn.closing, denied=turn.denied, stop_after=bounds.stop_after
            )
            self._settling.telling.batch(batch, [0.0] * len(batch))
            await self._settling.give_back(batch, conclusion)
            if conclusion.end is not End.CONTINUE:
                return await self._end(whole, choice, turn, batch=batch, conclusion=conclusion, index=index)
            await self._hold(whole, choice, turn, batch=batch, conclusion=conclusion, index=index)
            choice = await self.ask_again(whole, turn)

    async def _batch(self, choice: Choice) -> list[Judged]:
        most = self._services.config.limits.batch_calls
        if len(choice.placed) > most:
            raise too_long("A batch of calls", most)
        names = tuple(p.call.name for p in choice.placed)
        found = []
        for number, placed in enumerate(choice.placed):
            raw = placed.raw.decode("utf-8", "replace")
            judging = self._judge.judge(placed.call, raw, Batch(len(names), number, names))
            found.append(await self._settling.decided(judging))
        return found

    async def _hold(
        self, whole: Whole, choice: Choice, turn: ChoiceTurn, *, batch: list[Judged], conclusion: Conclusion, index: int
    ) -> None:
        message = history_message(jsontext.raw(choice.raw, ("message",)) or b"{}", choice.message, calls=True)
        turn.texts += [choice.text] if choice.text else []
        await self._settling.hold(
            turn,
            batch,
            conclusion=conclusion,
            message=message,
            head={key: value for key, value in whole.first.items() if key not in ("choices", "usage")},
            usage=whole.usage,
            index=index,
            shown="",
        )

    async def ask_again(self, whole: Whole, turn: ChoiceTurn) -> Choice:
        """The answer of the next round. Raises UpstreamError, UpstreamAnswerError."""
        self._exchange.log.rounds += 1
        body = continuation(self._question, turn.rounds, closing=turn.closing)
        async with ask(self._services, self._exchange, self._head, body=body) as answer:
            reader = BodyReader(answer, self._services, self._exchange)
            data = await reader.read()
        if answer.status >= 400:
            raise UpstreamAnswerError(answer.status, answer.headers, reader.sent)
        value = parsed_answer(data, self._services.config.limits.nesting, strict=self._judge.could_hold)
        choices = read_choices(data, value) if value is not None else []
        if value is None or not choices:
            raise UpstreamError("The upstream's answer to a continuation is no chat completion.", kind="protocol")
        if not whole.first:
            whole.first, whole.status, whole.headers = value, answer.status, answer.headers
        whole.usage = added_usage(whole.usage, value.get("usage"))
        self._exchange.share.give(len(whole.body))
        whole.body, whole.value, whole.changed = data, value, True
        return choices[0]

    async def _end(
        self, whole: Whole, choice: Choice, turn: ChoiceTurn, *, batch: list[Judged], conclusion: Conclusion, index: int
    ) -> bytes:
        match conclusion.end:
            case End.FAIL:
                self._settling.tell_end(turn, "stopped")
                raise RequestError(conclusion.message, code="tool_call_blocked", status=403)
            case End.STOP | End.CLOSED:
                return await self._end_text(whole, choice, turn, text=conclusion.message, index=index)
            case _ if not batch:
                return await self._end_text(whole, choice, turn, text="", index=index)
            case _:
                return await self._surface(whole, choice, turn, batch=batch, conclusion=conclusion, index=index)

    async def _end_text(self, whole: Whole, choice: Choice, turn: ChoiceTurn, *, text: str, index: int) -> bytes:
        """A choice that ends without calls: as it came, or with the texts of its rounds and a rule's message."""
        if not text and not choice.placed and not turn.rounds:
            return choice.raw
        texts = [*turn.texts, *([choice.text] if choice.text else []), *([text] if text else [])]
        if not texts and turn.closing:
            texts = [LIMIT_REACHED]
        own = "\n\n".join(texts[len(turn.texts) :])
        shown = self._shown(texts)
        finish = "stop" if choice.placed else None
        raw = with_text(with_calls(choice, [None] * len(choice.placed)), shown, finish=finish)
        if shown == choice.text and not choice.placed:
            raw = choice.raw
        await self._settling.keep_turn(turn, {"role": "assistant", "content": shown}, content=own)
        self._settling.tell_end(turn, "stopped" if text else turn.limit(self._settling.bounds) or "text")
        return self._as_choice(whole, raw, choice, index=index)

    async def _surface(
        self, whole: Whole, choice: Choice, turn: ChoiceTurn, *, batch: list[Judged], conclusion: Conclusion, index: int
    ) -> bytes:
        known = await self._known(batch, conclusion)
        texts = [*turn.texts, *([choice.text] if choice.text else [])]
        shown = self._shown(texts)
        message = jsontext.raw(choice.raw, ("message",)) or b"{}"
        ids = await self._settling.surface(
            turn,
            batch,
            conclusion=conclusion,
            known=known,
            message=history_message(message, choice.message, calls=False),
            shown=shown,
            index=index,
        )
        kept = [
            edited_call(p.raw, p.call, call_id=given, text=j.verdict.text) if stage == 0 else None
            for p, j, stage, given in zip(choice.placed, batch, conclusion.stages, ids, strict=True)
        ]
        raw = choice.raw
        if any(k != p.raw for k, p in zip(kept, choice.placed, strict=True)):
            raw = with_calls(choice, kept)
        if shown != choice.text:
            raw = with_text(raw, shown)
        self._settling.tell_end(turn, "surfaced")
        return self._as_choice(whole, raw, choice, index=index)

    async def _known(self, batch: list[Judged], conclusion: Conclusion) -> frozenset[str]:
        if conclusion.end is End.CUT:
            return frozenset()
        ids = [str(j.call.call_id) for j in batch if not j.held]
        return frozenset([i for i in ids if await self._settling.has_id(i)])

    def _shown(self, texts: list[str]) -> str:
        """The text of a turn: of all its rounds, or of the last alone where the client parses it as JSON."""
        return (texts[-1] if texts else "") if self._settling.form.wants_json else "\n\n".join(texts)

    def _as_choice(self, whole: Whole, raw: bytes, choice: Choice, *, index: int) -> bytes:
        if choice.index != index:
            raw = jsontext.edit(raw, {("index",): jsontext.render(index)})
        whole.changed = whole.changed or raw != choice.raw
        return raw


def parsed_answer(data: bytes, nesting: int, *, strict: bool = True) -> dict[str, Any] | None:
    """A body as an answer with choices, or None. Raises UpstreamError for one that could hide a call; `strict`: also
    for one that says twice what a call is."""
    if strict and reads_two_ways(data):
        raise UpstreamError("The upstream's answer says twice what a tool call is.", kind="protocol")
    if jsontext.nests_deeper(data, nesting):
        raise too_deep("The upstream's answer", nesting)
    try:
        return read_answer(data)
    except UnreadableError as error:
        raise UpstreamError("The upstream's answer is no plain JSON and holds a tool call.", kind="protocol") from error


class ChatAnswers:
    """The answers to one chat completion, whole or streamed."""

    def __init__(
        self, services: Services, exchange: ExchangeIn, settling: Settling, *, question: Question, denied: int
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._settling = settling
        self._question = question
        self._denied = denied

    def relaying(self, head: RequestHead) -> Relaying:
        return Relaying(
            self._services, self._exchange, self._settling, question=self._question, head=head, denied=self._denied
        )

    def _whole(self, head: RequestHead) -> WholeSettling:
        return WholeSettling(self._services, self._exchange, self._settling, question=self._question, head=head)

    async def settle(self, data: bytes, answer: Answer, head: RequestHead) -> Settled | None:
        strict = self._settling.caller.judge.could_hold
        value = parsed_answer(data, self._services.config.limits.nesting, strict=strict)
        if value is None:
            return None
        if not holds_call(value["choices"]):
            return Settled(answer.status, answer.headers, None)
        whole = Whole(answer.status, answer.headers, data, value, value, value.get("usage"))
        await self._whole(head).settle(whole, denied=self._denied, turns={})
        return await self._settled(whole)

    async def resume(self, record: ResumeRecord, head: RequestHead) -> Settled:
        turn = ChoiceTurn(self._denied)
        await self._settling.take_up(turn, record)
        first = jsontext.parse_own(record.head.encode())
        whole = Whole(200, (), b"", {}, {}, jsontext.parse_own(record.usage.encode()), changed=True)
        settling = self._whole(head)
        choice = await settling.ask_again(whole, turn)
        whole.first = whole.first | first
        whole.choices[0] = await settling.choice(whole, choice, turn, index=0)
        return await self._settled(whole)

    async def _settled(self, whole: Whole) -> Settled:
        """The settled answer: as it came, or with its choices, its first id and all its usage."""
        if not whole.changed:
            return Settled(whole.status, whole.headers, None)
        changes: dict[Path, bytes | None] = {("choices",): jsontext.array(list(whole.choices.values()))}
        for key in ("id", "created"):
            if key in whole.first and whole.first[key] != whole.value.get(key):
                changes[key,] = jsontext.render(whole.first[key])
        if whole.usage is not None and whole.usage != whole.value.get("usage"):
            changes["usage",] = jsontext.render(whole.usage)
        body = jsontext.edit(whole.body, changes)
        await self._settling.point_to(whole.first.get("id"))
        return Settled(whole.status, whole.headers, body)
