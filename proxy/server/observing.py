"""Counting the calls of answers that pass ungoverned: every call is counted, also where no rule is loaded.

The bytes pass first and unchanged; a copy of what may hold a call is looked at behind them, within bounds, and
dropped where it grows beyond them. Nothing here can delay, change or refuse anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from proxy.core import jsontext
from proxy.core.arguments import MAX_NESTING
from proxy.core.calls import Api, Kind, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Judged
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.assembly import Assembler
from proxy.core.protocol.chat import declared_tools
from proxy.core.protocol.completion import read_choices
from proxy.core.protocol.response_items import read_call, read_record
from proxy.core.protocol.response_request import read_request
from proxy.core.protocol.sse import EventSplitter
from proxy.errors import ProxyError
from proxy.server.body import is_events
from proxy.server.coding import AnswerDecoder, decode_request
from proxy.server.http import Headers, header, joined
from proxy.server.services import ExchangeIn, Services
from proxy.server.telling import Seen, Telling

_MOST = 4 << 20
_TELLING = 16  # bytes that tell events from everything else


class _Calls(Protocol):
    """The calls of one answer, on one wire. Raises ValueError, TypeError or KeyError for what it cannot read."""

    def wants(self, data: bytes) -> bool:
        """Whether an event, or a body, may hold calls."""
        ...

    def take(self, data: bytes) -> None:
        """An event that is wanted."""
        ...

    def batches(self, body: bytes, question: bytes) -> Iterator[list[ToolCall]]:
        """The calls that a client, or the upstream, has to answer, batch by batch: of the events, and of a body that is
        no stream (it may be empty)."""
        ...

    def records(self, body: bytes) -> list[ToolCall]:
        """The calls that were run already."""
        ...

    def declared(self, question: bytes) -> Mapping[str, jsontext.Json]:
        """The tools that the request declares."""
        ...


class _ChatCalls:
    """Calls of a chat completion, batch by choice."""

    _SIGNS = (b"tool_calls", b"function_call")

    def __init__(self) -> None:
        self._choices: dict[int, Assembler] = {}

    def wants(self, data: bytes) -> bool:
        return any(sign in data for sign in self._SIGNS)

    def take(self, data: bytes) -> None:
        choices = jsontext.parse(data)["choices"]
        for number, choice in enumerate(choices if isinstance(choices, list) else []):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict):
                index = choice.get("index")
                assembler = self._choices.setdefault(index if isinstance(index, int) else 0, Assembler())
                assembler.add(delta, partial(_text_below, data, number))

    def batches(self, body: bytes, question: bytes) -> Iterator[list[ToolCall]]:
        for assembler in self._choices.values():
            yield [call.whole() for call in assembler.calls]
        if self.wants(body):
            for choice in read_choices(body, jsontext.parse(body)):
                yield [placed.call for placed in choice.placed]

    def records(self, body: bytes) -> list[ToolCall]:
        return []

    def declared(self, question: bytes) -> Mapping[str, jsontext.Json]:
        value = jsontext.parse(question)
        return dict(declared_tools(value)) if isinstance(value, dict) else {}


class _ResponseCalls:
    """Calls of a response: of its items that are done, or where no such event shows one, of the response at its end."""

    _SIGNS = (b'_call"', b'mcp_approval_request"')
    _DONE = b"response.output_item.done"
    _ENDS = (b"response.completed", b"response.incomplete", b"response.failed")

    def __init__(self) -> None:
        self._items: list[tuple[Any, bytes]] = []

    def wants(self, data: bytes) -> bool:
        return any(sign in data for sign in self._SIGNS)

    def take(self, data: bytes) -> None:
        if self._DONE not in data and (self._items or not any(end in data for end in self._ENDS)):
            return
        value = jsontext.parse(data)
        kind = value["type"].encode()
        if kind == self._DONE:
            self._items.append((value["item"], jsontext.raw(data, ("item",)) or b""))
        elif kind in self._ENDS and not self._items:
            self._items = _items(data, value["response"], ("response", "output"))

    def batches(self, body: bytes, question: bytes) -> Iterator[list[ToolCall]]:
        try:
            hosted = read_request(question, MAX_NESTING).hosted
        except ProxyError:
            hosted = frozenset()
        found = [read_call(item, raw, hosted=hosted) for item, raw in self._found(body)]
        yield [call for call in found if call is not None]

    def records(self, body: bytes) -> list[ToolCall]:
        """Save those for which an approval was asked: that was counted."""
        found = [read_record(item) for item, _ in self._found(body) if not item.get("approval_request_id")]
        return [record for record in found if record is not None]

    def declared(self, question: bytes) -> Mapping[str, jsontext.Json]:
        return read_request(question, MAX_NESTING).declared

    def _found(self, body: bytes) -> list[tuple[dict[str, Any], bytes]]:
        whole = _items(body, jsontext.parse(body), ("output",)) if self.wants(body) else []
        return [(item, raw) for item, raw in (*self._items, *whole) if isinstance(item, dict)]


def _items(data: bytes, response: Any, path: jsontext.Path) -> list[tuple[Any, bytes]]:
    """The output items of a response, each with its bytes."""
    output = response["output"]
    return list(zip(output, jsontext.elements(data, path), strict=True)) if isinstance(output, list) else []


_CALLS: dict[Api, type[_Calls]] = {Api.CHAT: _ChatCalls, Api.RESPONSES: _ResponseCalls}
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ProxyError)


class Observer:
    """One answer that passes. `asked` takes the request's bytes, `began` and `passed` the answer's."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._calls = _CALLS[api]()
        self._question: list[bytes] | None = []
        self._size = 0
        self._decoder: AnswerDecoder | None = None
        self._splitter: EventSplitter | None = None
        self._whole: list[bytes] = []
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
            if event.data is not None and self._calls.wants(event.data):
                self._bound(len(event.data))
                self._take(event.data)
        if self._splitter.pending > _MOST:
            self._decoder = None

    def _bound(self, more: int) -> None:
        self._size += more
        if self._size > _MOST:
            self._decoder, self._whole, self._calls = None, [], _CALLS[self.api]()

    def _take(self, data: bytes) -> None:
        with suppress(*_UNREADABLE):
            self._calls.take(data)

    def batches(self, coding: str = "") -> Iterable[list[ToolCall]]:
        """The calls of each batch."""
        with suppress(*_UNREADABLE):
            yield from self._calls.batches(b"".join(self._whole), self._asked(coding))

    def records(self) -> list[ToolCall]:
        """The calls that the upstream has run already."""
        with suppress(*_UNREADABLE):
            return self._calls.records(b"".join(self._whole))
        return []

    def declared(self, coding: str) -> Mapping[str, jsontext.Json]:
        """The tools that the request declares."""
        with suppress(*_UNREADABLE):
            return self._calls.declared(self._asked(coding))
        return {}

    def _asked(self, coding: str) -> bytes:
        """The request's body; empty where it is not known."""
        with suppress(ProxyError):
            return decode_request(b"".join(self._question or []), coding, limit=_MOST)
        return b""


def _text_below(data: bytes, choice: int, path: jsontext.Path) -> str:
    return (jsontext.raw(data, ("choices", choice, "delta", *path)) or b"").decode()


def tell(services: Services, exchange: ExchangeIn, observer: Observer) -> None:
    """Count what passed."""
    coding = joined(exchange.client.head.headers, "content-encoding")
    batches, records = [batch for batch in observer.batches(coding) if batch], observer.records()
    if not batches and not records:
        return
    facts = RequestFacts(api=observer.api, client=exchange.client_name, declared=observer.declared(coding))
    telling = Telling(services, exchange, Seen(), facts=facts, api=observer.api)
    for batch in batches:
        telling.batch([_allowed(call) for call in batch], [0.0] * len(batch))
    for record in records:
        telling.call(_allowed(record, Owner.UPSTREAM), 0.0)


def _allowed(call: ToolCall, owner: Owner | None = None) -> Judged:
    owner = owner or (Owner.UPSTREAM if call.kind is Kind.APPROVAL else Owner.CLIENT)
    return Judged(call, "", owner, Verdict(Decision.ALLOWED))
