"""Counting the calls of chat completions that pass ungoverned: every call is counted, also where no rule is loaded.

The bytes pass first and unchanged; a copy of what may hold a call is looked at behind them, within bounds, and
dropped where it grows beyond them. Nothing here can delay, change or refuse anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from proxy.core import jsontext
from proxy.core.calls import Api, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Judged
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.assembly import Assembler
from proxy.core.protocol.chat import declared_tools
from proxy.core.protocol.completion import read_choices
from proxy.core.protocol.sse import EventSplitter
from proxy.errors import ProxyError
from proxy.server.body import is_events
from proxy.server.coding import AnswerDecoder, decode_request
from proxy.server.http import Headers, header, joined
from proxy.server.services import ExchangeIn, Services
from proxy.server.telling import Seen, Telling

_MOST = 4 << 20
_TELLING = 16  # bytes that tell events from everything else
_SIGNS = (b"tool_calls", b"function_call")


class Observer:
    """One chat completion that passes. `asked` takes the request's bytes, `began` and `passed` the answer's."""

    def __init__(self) -> None:
        self._question: list[bytes] | None = []
        self._size = 0
        self._decoder: AnswerDecoder | None = None
        self._splitter: EventSplitter | None = None
        self._whole: list[bytes] = []
        self._choices: dict[int, Assembler] = {}
        self._kind = ""
        self._events: bool | None = None

    def asked(self, data: bytes) -> None:
        self._size += len(data)
        if self._question is not None and self._size <= _MOST:
            self._question.append(data)
        else:
            self._question = None

    def began(self, status: int, headers: Headers) -> None:
        """The answer's head has come; of one that is no success nothing is looked at."""
        self._size = 0
        self._kind = header(headers, "content-type")
        if 200 <= status < 300:
            try:
                self._decoder = AnswerDecoder(joined(headers, "content-encoding"), most=_MOST)
            except ProxyError:
                self._decoder = None

    def passed(self, data: bytes) -> None:
        """Bytes of the answer have gone to the client."""
        if self._decoder is None:
            return
        try:
            decoded = self._decoder.feed(data)
        except ProxyError:
            self._decoder = None
            return
        if self._splitter is None:
            self._whole.append(decoded)
            self._bound(len(decoded))
            if self._events is None and (start := b"".join(self._whole)).strip():
                self._events = is_events(self._kind, start) if len(start) > _TELLING else None
            if not self._events:
                return
            decoded, self._whole, self._splitter = b"".join(self._whole), [], EventSplitter()
        for event in self._splitter.feed(decoded):
            if event.data is not None and any(sign in event.data for sign in _SIGNS):
                self._bound(len(event.data))
                self._take(event.data)
        if self._splitter.pending > _MOST:
            self._decoder = None

    def _bound(self, more: int) -> None:
        self._size += more
        if self._size > _MOST:
            self._decoder, self._whole, self._choices = None, [], {}

    def _take(self, data: bytes) -> None:
        try:
            value = jsontext.parse(data)
            choices = value["choices"]
        except (ValueError, TypeError, KeyError):
            return
        for number, choice in enumerate(choices if isinstance(choices, list) else []):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict):
                index = choice.get("index")
                assembler = self._choices.setdefault(index if isinstance(index, int) else 0, Assembler())
                assembler.add(delta, partial(_text_below, data, number))

    def batches(self) -> Iterable[list[ToolCall]]:
        """The calls of each choice."""
        for assembler in self._choices.values():
            yield [call.whole() for call in assembler.calls]
        body = b"".join(self._whole)
        if any(sign in body for sign in _SIGNS):
            try:
                value = jsontext.parse(body)
                for choice in read_choices(body, value):
                    yield [placed.call for placed in choice.placed]
            except (ValueError, TypeError, KeyError):
                return

    def declared(self, coding: str) -> dict[str, jsontext.Json]:
        """The tools that the request declares."""
        try:
            body = decode_request(b"".join(self._question or []), coding, limit=_MOST)
            value = jsontext.parse(body)
            return dict(declared_tools(value)) if isinstance(value, dict) else {}
        except (ProxyError, ValueError):
            return {}


def _text_below(data: bytes, choice: int, path: jsontext.Path) -> str:
    return (jsontext.raw(data, ("choices", choice, "delta", *path)) or b"").decode()


def tell(services: Services, exchange: ExchangeIn, observer: Observer) -> None:
    """Count what passed."""
    batches = [batch for batch in observer.batches() if batch]
    if not batches:
        return
    coding = joined(exchange.client.head.headers, "content-encoding")
    facts = RequestFacts(client=exchange.client_name, declared=observer.declared(coding))
    telling = Telling(services, exchange, Seen(), facts=facts, api=Api.CHAT)
    for batch in batches:
        allowed = [Judged(call, "", Owner.CLIENT, Verdict(Decision.ALLOWED)) for call in batch]
        telling.batch(allowed, [0.0] * len(allowed))
