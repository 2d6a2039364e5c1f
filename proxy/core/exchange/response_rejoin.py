"""A response's input as the model is to see it: batches whole again, hidden rounds in their places, results judged.

`batch/rejoin.py` says what stands where; here it becomes items. A client shows most of a hidden round itself (its
messages and its reasoning are no secret), so the items that it shows are taken for those of the record, and stand in
the record's order. Where the upstream keeps the conversation, only results are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import BatchRecord, CallRecord, Round
from proxy.core.batch.rejoin import TRIMMED, Anchor, Kept, Piece, PutBatch, PutRound, PutText
from proxy.core.batch.split import is_strong
from proxy.core.calls import BatchId, CallId, Kind, ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.results import JudgedResult, judge_texts
from proxy.core.exchange.turns import Form
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import ResultOutcome, ResultVerdict
from proxy.core.protocol.chat import meaning
from proxy.core.protocol.response_events import is_own_id
from proxy.core.protocol.response_items import (
    edited_call,
    is_reference,
    item_identities,
    message_text,
    result_items,
)
from proxy.core.protocol.response_request import ResponseRequest, raw_items, read_history

NOT_AVAILABLE = "(result no longer available)"
NOT_RUN = "(not run: the turn was ended)"


@dataclass(frozen=True, slots=True)
class Sent:
    """The items of a request, those that were carried over from an earlier one first."""

    raws: Sequence[bytes]
    values: Sequence[Any]
    entries: Sequence[Entry]

    @classmethod
    def of(cls, request: ResponseRequest, carried: Sequence[str] = ()) -> Sent:
        raws = [*(item.encode() for item in carried), *raw_items(request)]
        values = [*(jsontext.parse_own(item.encode()) for item in carried), *request.items]
        return cls(raws, values, read_history(values, hosted=request.hosted))

    def with_references(self, batches: Mapping[BatchId, BatchRecord]) -> Sent:
        """The same, with references to surfaced calls as the calls that they stand for."""
        calls = {
            item_id: replace(call.call, call_id=CallId(call.given_id))
            for batch in batches.values()
            for call in batch.calls
            if call.stage is not None and (item_id := _id_of(call))
        }
        entries = list(self.entries)
        for index, value in enumerate(self.values):
            if isinstance(value, dict) and is_reference(value) and (found := calls.get(str(value.get("id")))):
                entries[index] = Entry(index, EntryKind.CALLS, calls=(found,))
        return Sent(self.raws, self.values, entries)


def _id_of(call: CallRecord) -> str:
    item = jsontext.parse_own(call.raw.encode())
    found = item.get("id") if isinstance(item, dict) else None
    return found if isinstance(found, str) else ""


def item_digest(item: dict[str, Any]) -> str:
    """What the message that ended a turn is found by: its id, and where that may come again, its text too."""
    item_id = item.get("id")
    parts = [item_id] if isinstance(item_id, str) and is_strong(item_id) else [item_id, message_text(item)]
    return hashlib.sha256(jsontext.render(["item", *parts])).hexdigest()


def response_form(request: ResponseRequest) -> Form:
    """What records of a response look like."""
    return Form(
        digest_of=item_digest,
        text_of=lambda _: "",  # what was said in a round stands in items of its own
        stored=request.stored,
        remembered=request.stored or request.remembered,
        wants_json=request.wants_json,
    )


# ---------------------------------------------------------------- results


def judge_results(
    sent: Sent, calls: Mapping[str, ToolCall], *, judge: Judge
) -> Generator[Consult, Reply, list[JudgedResult]]:
    """Every result of an input on its way to the model. `calls` are calls that the upstream has, by the ids that the
    client knows them by. Yields what has to be asked of the world."""
    shown = dict(calls)
    found: list[JudgedResult] = []
    for entry in sent.entries:
        shown |= {call.call_id: call for call in entry.calls}
        if entry.kind is not EntryKind.RESULT:
            continue
        call = shown.get(entry.call_id) or ToolCall(CallId(entry.call_id), entry.name, "")
        item = sent.values[entry.index]
        if item["type"] == "mcp_approval_response":
            found.append(JudgedResult(entry.index, call, ResultVerdict("", ResultOutcome.OK), None))
            continue
        verdict, changes = yield from judge_texts(judge, call, _texts(item), whole=partial(_whole, item))
        message = jsontext.edit(sent.raws[entry.index], changes) if changes else None
        found.append(JudgedResult(entry.index, call, verdict, message))
    return found


_SPOKEN = ("text", "stdout", "stderr")


def _texts(item: dict[str, Any]) -> dict[Path, str]:
    output = item.get("output")
    if isinstance(output, str):
        return {("output",): output}
    return {
        ("output", number, key): part[key]
        for number, part in enumerate(output if isinstance(output, list) else [])
        if isinstance(part, dict)
        for key in _SPOKEN
        if isinstance(part.get(key), str)
    }


def _whole(item: dict[str, Any], text: str) -> dict[Path, bytes | None]:
    """The changes that put a text in the place of a whole output."""
    kind = item["type"].removesuffix("_output")
    if kind == "tool_search":
        return {("tools",): b"[]"}  # it has no room for words
    call = ToolCall(CallId(""), "", "")
    if kind in ("shell_call", "computer_call"):
        call = replace(call, name=kind.removesuffix("_call"), kind=Kind.ACTION)
        own = result_items(call, text, blocked=False)[0]
        return {("output",): jsontext.raw(own, ("output",))}
    return {("output",): jsontext.render(text)}


# ---------------------------------------------------------------- pieces to items


class _Shown:
    """The client's items, found again by what tells them apart; each is taken once. `ends` are messages that ended
    turns: some frameworks put all that was said in a turn into the last, under the id of the first."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self.ends: frozenset[int] = frozenset()
        self._free: dict[tuple[str, str], list[int]] = {}
        self.taken: set[int] = set()
        for index, value in enumerate(sent.values):
            found = item_identities(value) if isinstance(value, dict) else []
            for identity in [*found[:1], *(one for one in found[1:] if one[0] != "call")]:  # ids of calls come again
                self._free.setdefault(identity, []).append(index)

    def take(self, item: dict[str, Any], near: int, end: int | None = None) -> int | None:
        """Where the client shows an item of the turn around the entry `near`; of all ends, it may be `end`."""
        first, last = self._turn(near)
        for identity in item_identities(item):
            for place in self._free.get(identity, ()):
                if first <= place <= last and place not in self.taken and (place == end or place not in self.ends):
                    self.taken.add(place)
                    return place
        return None

    def _turn(self, near: int) -> tuple[int, int]:
        """The items between the user's words before and behind an entry."""
        users = [e.index for e in self._sent.entries if e.kind is EntryKind.USER]
        before = max((u for u in users if u < near), default=-1)
        behind = min((u for u in users if u > near), default=len(self._sent.entries))
        return before + 1, behind - 1


@dataclass(frozen=True, slots=True)
class _Laid:
    """An item of a round; `value` None: a call of a batch, as it goes up. `by_id`: the client may name it by its id;
    `end`: where it shows the end of the turn, which may be this."""

    raw: bytes
    value: Any
    held: bool = False
    by_id: bool = True
    end: int | None = None

    @property
    def is_reasoning(self) -> bool:
        return self.value is not None and self.value.get("type") == "reasoning"


class Rendering:
    """The items that the upstream gets. `raws` are the client's, with their results as rules left them."""

    def __init__(self, sent: Sent, raws: Sequence[bytes]) -> None:
        self._sent = sent
        self._raws = raws
        self._shown = _Shown(sent)

    def items(self, pieces: Sequence[Piece]) -> list[bytes]:
        self._shown.ends = frozenset(piece.index for piece in pieces if isinstance(piece, PutText))
        rendered = [(piece, self._put(piece, near)) for piece, near in _with_places(pieces)]
        out: list[bytes] = []
        for piece, put in rendered:
            if not isinstance(piece, Kept):
                out += put
            elif piece.index not in self._shown.taken and (kept := self._kept(piece.index)) is not None:
                out.append(kept)
        return out

    def _kept(self, index: int) -> bytes | None:
        """A client's item. The upstream has never heard of the ids of the proxy's own messages."""
        value = self._sent.values[index]
        if not isinstance(value, dict) or not is_own_id(value.get("id")):
            return self._raws[index]
        return None if is_reference(value) else without_id(self._raws[index])

    def _put(self, piece: Piece, near: int) -> list[bytes]:
        match piece:
            case PutRound(hidden, trimmed):
                return [*self._round(hidden, near), *round_results(hidden, trimmed)]
            case PutText(index, content):
                return self._last_round(content, index)
            case PutBatch(anchor, results):
                calls = [] if anchor.recalled else list(self._batch(anchor))
                return [*calls, *self._results(anchor.batch, results)]
            case Kept():
                return []

    def _round(self, hidden: Round, near: int) -> list[bytes]:
        layout = [
            _Laid(raw, value, held="call_id" in value or _is_approval(value), by_id="call_id" not in value)
            for raw, value in _layout(hidden.message)
        ]
        return self._laid_out(layout, near)

    def _last_round(self, content: str, index: int) -> list[bytes]:
        """The items of the round that ended a turn, as far as the client shows them; its last words in any case, also
        where a framework has made one message of all that was said in the turn."""
        layout = [_Laid(raw, value, end=index) for raw, value in _layout(content)]
        out = self._laid_out(layout, index, behind_others=True)
        if index in self._shown.taken or (kept := self._kept(index)) is None:
            return out
        return [*out, kept]

    def _batch(self, anchor: Anchor) -> list[bytes]:
        batch, layout = anchor.batch, list[_Laid]()
        for raw, value in _layout(batch.message):
            if not isinstance(value, int):
                layout.append(_Laid(raw, value))
            elif value not in anchor.left_out:
                record = batch.calls[value]
                again, by_id = self._call_again(anchor, value, record)
                layout.append(_Laid(again, None, record.stage is None, by_id))
        for record in batch.calls:  # a reference to what the client should not know of gives way
            if record.stage is None:
                self._shown.take({"type": "item_reference", "id": _id_of(record)}, anchor.entries[0])
        return self._laid_out(layout, anchor.entries[0], behind_others=bool(batch.rounds))

    def _laid_out(self, layout: Sequence[_Laid], near: int, *, behind_others: bool = False) -> list[bytes]:
        """Calls as they are, other items as the client shows them.

        Reasoning that led to a held call stands before it in any case; a call that goes up without its reasoning has
        no id, unless the client names it: the upstream refuses the one without the other. In a round `behind_others` of
        the same response, what led to an item with an id comes back too: some clients keep one reasoning of each."""
        put = [item.raw if item.value is None else self._as_shown(item, near) for item in layout]
        out: list[bytes] = []
        let_go = False
        for at, item in enumerate(layout):
            raw = put[at]
            if item.is_reasoning:
                if raw is None and _leads_on(layout, put, at, to_any=behind_others):
                    raw = item.raw
                let_go = raw is None
            elif raw is not None and let_go and not item.by_id:
                raw = without_id(raw)
            out += [] if raw is None else [raw]
        return out

    def _as_shown(self, item: _Laid, near: int) -> bytes | None:
        """An item as the client has it; None: it has it no more. A held call as it came."""
        place = self._shown.take(item.value, near, item.end)
        if item.held:
            return item.raw
        if place is not None and is_own_id(item.value.get("id")):
            return without_id(item.raw)
        return None if place is None else self._raws[place]

    def _call_again(self, anchor: Anchor, ordinal: int, record: CallRecord) -> tuple[bytes, bool]:
        """A call as the upstream is to see it: a held one as the model made it, a surfaced one as it was given, with
        arguments that the client edited; a reference to it stays one. And whether the client names it by its id."""
        raw, by_id = record.raw.encode(), record.call.kind is Kind.APPROVAL
        if record.stage is None:
            return raw, by_id
        shown = anchor.shown.get(ordinal)
        for index in anchor.entries:
            value = self._sent.values[index]
            if value.get("id") != _id_of(record):
                continue
            if is_reference(value):
                return self._raws[index], True
            by_id = True
        given = record.call.text if record.given is None else record.given
        if shown is not None and meaning(shown.text) != meaning(given):
            raw = edited_call(raw, record.call, text=shown.text)
        elif record.given is not None and not record.original:
            raw = edited_call(raw, record.call, text=record.given)
        return raw, by_id

    def _results(self, batch: BatchRecord, results: Sequence[int | str | None]) -> list[bytes]:
        out: list[bytes] = []
        notes: list[bytes] = []
        for call, found in zip(batch.calls, results, strict=True):
            if isinstance(found, str):
                own, *more = result_items(call.call, found, blocked=call.blocked)
                out.append(own)
                notes += more
            elif found is not None and call.given_id == call.call.call_id:
                out.append(self._raws[found])
            elif found is not None:
                place = "call_id" if "call_id" in self._sent.values[found] else "id"
                out.append(jsontext.edit(self._raws[found], {(place,): jsontext.render(call.call.call_id)}))
        return [*out, *notes]


def _with_places(pieces: Sequence[Piece]) -> list[tuple[Piece, int]]:
    """Each piece with an entry of its turn; a hidden round belongs to the turn of the piece behind it."""
    found: list[tuple[Piece, int]] = []
    near = 0
    for piece in reversed(pieces):
        match piece:
            case Kept(index) | PutText(index):
                near = index
            case PutBatch(anchor):
                near = anchor.entries[0]
        found.append((piece, near))
    return found[::-1]


def _leads_on(layout: Sequence[_Laid], put: Sequence[bytes | None], at: int, *, to_any: bool) -> bool:
    """Whether what a reasoning led to is a held call, or `to_any`, an item that the upstream is shown by its id."""
    for item, raw in zip(layout[at + 1 :], put[at + 1 :], strict=True):
        if not item.is_reasoning:
            named = to_any and item.by_id and raw is not None
            return item.held or (named and bool(jsontext.parse_own(raw or b"{}").get("id")))
    return False


def _layout(message: str) -> list[tuple[bytes, Any]]:
    """The items of a round with their bytes; a number stands for a call of a batch."""
    data = message.encode()
    return list(zip(jsontext.elements(data), jsontext.parse_own(data), strict=True))


def _is_approval(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "mcp_approval_request"


def without_id(raw: bytes) -> bytes:
    return jsontext.edit(raw, {("id",): None})


def round_items(hidden: Round) -> list[bytes]:
    """A hidden round as items, behind the request that led to it."""
    return [*jsontext.elements(hidden.message.encode()), *round_results(hidden)]


def round_results(hidden: Round, trimmed: Sequence[bool] | None = None) -> list[bytes]:
    """The results of a hidden round; notes that go with some of them stand behind them all."""
    marks = trimmed or [False] * len(hidden.results)
    found = [
        result_items(result.call, TRIMMED if cut else result.text, blocked=result.blocked)
        for result, cut in zip(hidden.results, marks, strict=True)
    ]
    return [*(items[0] for items in found), *(note for items in found for note in items[1:])]


def results_again(sent: Sent, judged: Sequence[JudgedResult]) -> Sequence[bytes]:
    """The client's items with their results as rules left them."""
    changed = {j.index: j.message for j in judged if j.message is not None}
    return [changed.get(index, raw) for index, raw in enumerate(sent.raws)] if changed else sent.raws


def given_items(batch: BatchRecord, ordinals: Sequence[int]) -> list[bytes]:
    """Calls of a batch that are surfaced now, as the client gets them. A response that was not stored kept no ids of
    items, which clients expect."""
    found = []
    for record in (batch.calls[ordinal] for ordinal in ordinals):
        raw = edited_call(record.raw.encode(), record.call, call_id=record.given_id, text=record.given)
        if not _id_of(record):
            item_id = ("ctc_" if record.call.kind is Kind.CUSTOM else "fc_") + record.given_id.removeprefix("call_")
            raw = jsontext.edit(raw, {("id",): jsontext.render(item_id)})
        found.append(raw)
    return found
