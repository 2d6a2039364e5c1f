"""A chat's history as the model is to see it: batches whole again, hidden rounds in their places, results judged.

`batch/rejoin.py` says what stands where; here it becomes messages. The same history gives the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

from proxy.core import jsontext
from proxy.core.batch.record import BatchRecord, CallRecord, Round
from proxy.core.batch.rejoin import TRIMMED, Anchor, Kept, Piece, PutBatch, PutRound, PutText
from proxy.core.calls import CallId, ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.results import JudgedResult, judge_texts
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import ResultVerdict
from proxy.core.protocol.chat import ChatRequest, content_text, meaning
from proxy.core.protocol.completion import edited_call, result_message

NO_RESULT = "Error: there is no result for this call."
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class RawMessages(Sequence[bytes]):
    """The bytes of each message of a request; found when they are first needed, since most requests change none."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request

    @cached_property
    def _found(self) -> list[bytes]:
        return jsontext.elements(self._request.body, ("messages",)) if self._request.messages else []

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)


def judge_results(
    request: ChatRequest, raws: Sequence[bytes], entries: Sequence[Entry], *, judge: Judge
) -> Generator[Consult, Reply, list[JudgedResult]]:
    """Every result of a history on its way to the model. Yields what has to be asked of the world."""
    calls: dict[str, ToolCall] = {}
    last_legacy = ToolCall(CallId(""), "", "")
    found: list[JudgedResult] = []
    for entry in entries:
        for call in entry.calls:
            calls[call.call_id] = call
            last_legacy = call
        if entry.kind is not EntryKind.RESULT:
            continue
        call = calls.get(entry.call_id) or ToolCall(CallId(entry.call_id), entry.name, "")
        if entry.name and last_legacy.name == entry.name:
            call = last_legacy
        verdict, changes = yield from _judged(request.messages[entry.index], call, judge=judge)
        message = jsontext.edit(raws[entry.index], changes) if changes else None
        found.append(JudgedResult(entry.index, call, verdict, message))
    return found


def _judged(
    message: dict[str, Any], call: ToolCall, *, judge: Judge
) -> Generator[Consult, Reply, tuple[ResultVerdict, dict[Path, bytes | None]]]:
    """What rules make of a result, and the changes to its message."""
    return (yield from judge_texts(judge, call, _texts(message.get("content")), whole=_whole_content))


def _whole_content(text: str) -> dict[Path, bytes | None]:
    return {("content",): jsontext.render(text)}


def _texts(content: Any) -> dict[Path, str]:
    if isinstance(content, str):
        return {("content",): content}
    return {
        ("content", number, "text"): part["text"]
        for number, part in enumerate(content if isinstance(content, list) else [])
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    }


# ---------------------------------------------------------------- pieces to messages


def render_pieces(request: ChatRequest, pieces: Sequence[Piece], raws: Sequence[bytes]) -> list[bytes]:
    """The messages that the upstream gets. `raws` are the client's, with their results as rules left them."""
    out: list[bytes] = []
    for piece in pieces:
        match piece:
            case Kept(index):
                out.append(raws[index])
            case PutRound(hidden, trimmed):
                out += round_messages(hidden, trimmed)
            case PutText(index, content):
                out.append(jsontext.edit(raws[index], {("content",): content.encode()}))
            case PutBatch(anchor, results):
                out.append(_whole_message(request, anchor, raws))
                out += _batch_results(anchor.batch, results, raws)
    return out


def round_text(message: str) -> str:
    """The text of a round's message."""
    return content_text(jsontext.parse_own(message.encode()).get("content"))


def round_messages(hidden: Round, trimmed: Sequence[bool] | None = None) -> list[bytes]:
    """A hidden round as messages."""
    marks = trimmed or [False] * len(hidden.results)
    results = (result_message(r.call, TRIMMED if cut else r.text) for r, cut in zip(hidden.results, marks, strict=True))
    return [hidden.message.encode(), *results]


def _batch_results(batch: BatchRecord, results: Sequence[int | str | None], raws: Sequence[bytes]) -> Iterator[bytes]:
    for call, found in zip(batch.calls, results, strict=True):
        if isinstance(found, str):
            yield result_message(call.call, found)
        elif found is not None and call.given_id == call.call.call_id:
            yield raws[found]
        elif found is not None:
            yield jsontext.edit(raws[found], {("tool_call_id",): jsontext.render(call.call.call_id)})


def _whole_message(request: ChatRequest, anchor: Anchor, raws: Sequence[bytes]) -> bytes:
    """The assistant's message with every call, and with every field that the upstream or the client gave it."""
    batch = anchor.batch
    first = anchor.entries[0]
    calls = [
        _call_again(call, anchor.shown.get(ordinal))
        for ordinal, call in enumerate(batch.calls)
        if ordinal not in anchor.left_out
    ]
    extra = [jsontext.raw(raws[index], ("tool_calls", at)) or b"{}" for index, at in anchor.extra]
    changes: dict[Path, bytes | None] = {("tool_calls",): jsontext.array([*calls, *extra])}
    message, own = batch.message.encode(), jsontext.parse_own(batch.message.encode())
    shown = request.messages[first]
    text = content_text(shown.get("content"))
    if text and text != batch.shown:
        changes["content",] = jsontext.raw(raws[first], ("content",))
    for key, value in shown.items():
        if key not in own and key not in ("tool_calls", "function_call", "content") and value not in _EMPTY:
            changes[key,] = jsontext.raw(raws[first], (key,))
    return jsontext.edit(message, changes)


def _call_again(record: CallRecord, shown: ToolCall | None) -> bytes:
    """A call as the upstream is to see it: a held one as the model made it, a surfaced one as it was given, with
    arguments that the client edited."""
    raw = record.raw.encode()
    if record.stage is None:
        return raw
    given = record.call.text if record.given is None else record.given
    if shown is not None and meaning(shown.text) != meaning(given):
        return edited_call(raw, record.call, text=shown.text)
    return raw if record.original or record.given is None else edited_call(raw, record.call, text=record.given)


def repaired(messages: Sequence[bytes]) -> list[bytes]:
    """The messages with an error result for each call that has none, behind the results that are there."""
    out: list[bytes] = []
    missing: list[str] = []
    for raw in messages:
        value = jsontext.parse_own(raw)
        value = value if isinstance(value, dict) else {}
        if value.get("role") == "tool":
            missing = [call_id for call_id in missing if call_id != value.get("tool_call_id")]
        else:
            out += [_error_result(call_id) for call_id in missing]
            calls = value.get("tool_calls") if value.get("role") == "assistant" else None
            missing = [c["id"] for c in calls or [] if isinstance(c, dict) and isinstance(c.get("id"), str)]
        out.append(raw)
    return [*out, *(_error_result(call_id) for call_id in missing)]


def _error_result(call_id: str) -> bytes:
    return result_message(ToolCall(CallId(call_id), "", ""), NO_RESULT)


def given_calls(batch: BatchRecord, ordinals: Sequence[int]) -> list[bytes]:
    """Calls of a batch that are surfaced now, as the client gets them."""
    calls = (batch.calls[ordinal] for ordinal in ordinals)
    return [edited_call(c.raw.encode(), c.call, call_id=c.given_id, text=c.given) for c in calls]


def results_by_index(raws: Sequence[bytes], judged: Sequence[JudgedResult]) -> Sequence[bytes]:
    """The messages with their results as rules left them."""
    changed = {j.index: j.message for j in judged if j.message is not None}
    return [changed.get(index, raw) for index, raw in enumerate(raws)] if changed else raws


def is_as_sent(pieces: Sequence[Piece], judged: Sequence[JudgedResult], entries: Sequence[Entry]) -> bool:
    """Whether the upstream gets the very messages that the client sent."""
    kept = len(pieces) == len(entries) and all(isinstance(piece, Kept) for piece in pieces)
    return kept and all(j.message is None for j in judged)
