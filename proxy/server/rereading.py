"""Stored chat completions that are read again: they show what they showed the first time.

The upstream keeps what the model said, held calls included. Nothing runs, nothing is counted and nothing is continued
here: a turn whose calls were all held shows as one that a rule ended. Calls that a client was given under other ids
are found in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import BatchRecord
from proxy.core.calls import Batch, RequestFacts
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, conclude
from proxy.core.exchange.turns import LIMIT_REACHED
from proxy.core.jsontext import Path
from proxy.core.protocol.chat import declared_tools
from proxy.core.protocol.completion import (
    Choice,
    Placed,
    edited_call,
    holds_call,
    place_calls,
    read_choices,
    with_calls,
    with_text,
)
from proxy.errors import StoreError, UpstreamError
from proxy.server.asking import changed_headers
from proxy.server.body import BodyReader
from proxy.server.consulting import Consulting, settled
from proxy.server.http import RequestHead
from proxy.server.ledger import Ledger
from proxy.server.services import ExchangeIn, Services

_NEVER = 1 << 30


class Rereading:
    """One request for stored completions. `judge_of` gives the rules for facts of a request."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        ledger: Ledger,
        *,
        facts: RequestFacts,
        judge_of: Callable[[RequestFacts], Judge],
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._ledger = ledger
        self._facts = facts
        self._judge_of = judge_of
        self._consulting = Consulting.of(services, exchange.loaded, ledger)

    async def serve(self) -> None:
        """Ask the upstream and give the client what it may see. Raises ProxyError."""
        client = self._exchange.client
        body = await client.read(self._services.config.listen.max_body_bytes)
        async with self._services.upstream.request(client.head, body or None, governed=True) as answer:
            reader = BodyReader(answer, self._services, self._exchange)
            data = await reader.read()
            status, headers = answer.status, answer.headers
        shown = await self._shown(data) if status < 400 else data
        if shown == data:
            await client.start(status, headers)
            await client.write(reader.sent)
        else:
            self._exchange.log.changed = True
            length = ("content-length", str(len(shown)))
            await client.start(status, (*changed_headers(headers, self._exchange.request_id), length))
            await client.write(shown)
        await client.finish()

    async def _shown(self, data: bytes) -> bytes:
        """A body with held calls gone: a completion, a list of them, or the messages of one."""
        try:
            value = jsontext.parse(data)
        except ValueError:
            if _could_hold_call(data):
                raise UpstreamError("The upstream's answer is no plain JSON.", kind="protocol") from None
            return data
        if not isinstance(value, dict):
            return data
        if isinstance(value.get("choices"), list):
            return await self._completion(data, value)
        entries = value.get("data")
        if not isinstance(entries, list):
            return data
        if any(isinstance(e, dict) and "role" in e for e in entries):
            return await self._messages(data, entries)
        raws = jsontext.elements(data, ("data",))
        shown = [await self._completion(r, e) if isinstance(e, dict) else r for r, e in zip(raws, entries, strict=True)]
        return data if shown == raws else jsontext.edit(data, {("data",): jsontext.array(shown)})

    # -- completions

    async def _completion(self, raw: bytes, value: dict[str, Any]) -> bytes:
        judge = self._judge_for(value)
        batches = await self._batches(value.get("id"))
        if not isinstance(value.get("choices"), list):
            return raw
        choices = read_choices(raw, value)
        shown = [await self._choice(choice, judge, batches.get(choice.index)) for choice in choices]
        if all(new == choice.raw for new, choice in zip(shown, choices, strict=True)):
            return raw
        return jsontext.edit(raw, {("choices",): jsontext.array(shown)})

    def _judge_for(self, value: dict[str, Any]) -> Judge:
        model = value.get("model")
        declared = dict(declared_tools(value))
        return self._judge_of(replace(self._facts, model=model if isinstance(model, str) else "", declared=declared))

    async def _batches(self, answer_id: Any) -> dict[int, BatchRecord]:
        try:
            return dict(await self._ledger.stored_answer(answer_id)) if isinstance(answer_id, str) else {}
        except StoreError:
            return {}

    async def _choice(self, choice: Choice, judge: Judge, record: BatchRecord | None) -> bytes:
        if not choice.placed:
            return choice.raw
        if record is not None and len(record.calls) == len(choice.placed):
            kept = [
                edited_call(p.raw, p.call, call_id=c.given_id, text=c.given) if c.stage == 0 else None
                for p, c in zip(choice.placed, record.calls, strict=True)
            ]
            return with_calls(choice, kept)
        batch = [await self._judged(judge, placed, choice.placed) for placed in choice.placed]
        conclusion = conclude(batch, cut=False, closing=False, denied=0, stop_after=_NEVER)
        return _as_first(choice, batch, conclusion)

    async def _judged(self, judge: Judge, placed: Placed, batch: tuple[Placed, ...]) -> Judged:
        """A call decided as it was the first time; a limit lets it pass, since it was counted then. Raises
        StoreError."""
        names = tuple(p.call.name for p in batch)
        raw = placed.raw.decode("utf-8", "replace")
        judging = judge.judge(placed.call, raw, Batch(len(names), batch.index(placed), names))
        return await settled(judging, self._consulting.answer_again)

    # -- messages

    async def _messages(self, data: bytes, entries: list[Any]) -> bytes:
        judge = self._judge_for(await self._completion_of_messages())
        raws, shown = jsontext.elements(data, ("data",)), []
        gone: set[str] = set()
        for raw, entry in zip(raws, entries, strict=True):
            message = entry if isinstance(entry, dict) else {}
            placed = tuple(place_calls(message, raw)) if message.get("role") == "assistant" else ()
            held = [p for p in placed if (await self._judged(judge, p, placed)).held]
            gone |= {str(p.call.call_id) for p in held}
            if message.get("role") == "tool" and message.get("tool_call_id") in gone:
                continue
            if len(held) == len(placed) and held and not message.get("content"):
                continue
            shown.append(_without(raw, message, placed, held=held) if held else raw)
        return data if shown == raws else jsontext.edit(data, {("data",): jsontext.array(shown)})

    async def _completion_of_messages(self) -> dict[str, Any]:
        """The completion whose messages are read: rules may look at its model and tools."""
        head = self._exchange.client.head
        path = head.target.partition("?")[0].rstrip("/").rpartition("/")[0]
        async with self._services.upstream.request(
            RequestHead("GET", path, head.headers), None, governed=True
        ) as answer:
            data = await BodyReader(answer, self._services, self._exchange).read()
        try:
            value = jsontext.parse(data)
        except ValueError:
            value = None
        if answer.status >= 400 or not isinstance(value, dict):
            raise UpstreamError("The completion of these messages cannot be read.", kind="protocol")
        return value


def _could_hold_call(data: bytes) -> bool:
    try:
        return holds_call(jsontext.parse_lenient(data))
    except ValueError:
        return False


def _as_first(choice: Choice, batch: list[Judged], conclusion: Conclusion) -> bytes:
    if conclusion.end in (End.PASS, End.SPLIT):
        kept = [
            edited_call(p.raw, p.call, text=j.verdict.text) if stage == 0 else None
            for p, j, stage in zip(choice.placed, batch, conclusion.stages, strict=True)
        ]
        return choice.raw if kept == [p.raw for p in choice.placed] else with_calls(choice, kept)
    message = conclusion.message or next((j.verdict.message for j in batch if j.verdict.message), LIMIT_REACHED)
    text = "\n\n".join(part for part in (choice.text, message) if part)
    return with_text(with_calls(choice, [None] * len(batch)), text, finish="stop")


def _without(raw: bytes, message: dict[str, Any], placed: tuple[Placed, ...], *, held: list[Placed]) -> bytes:
    """A message less the calls that were held."""
    kept = [p.raw for p in placed if p not in held and p.position is not None]
    changes: dict[Path, bytes | None] = {}
    if message.get("tool_calls"):
        changes["tool_calls",] = jsontext.array(kept) if kept else None
    if any(p.position is None for p in held):
        changes["function_call",] = None
    return jsontext.edit(raw, changes)
