"""What the ledger keeps, as values and as bytes.

Every record carries the version of its form. A record is written once and never changed: what happens later
to a held call (its run) is kept under a key of its own, see `ledger.py`. Texts of JSON are kept as texts, so that
what goes back into a history is the same bytes each time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from proxy.core.calls import BatchId, CallId, Kind, Owner, ToolCall
from proxy.core.jsontext import parse_own, render

VERSION = 1


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a batch. `raw` is it as the model made it (the JSON text of its entry on the wire).

    `given_id` is the id that the client knows it by. `given` is its arguments text as its owner gets it where a
    rule changed that, and `original` says that the upstream is to see the model's own all the same. `stage` says
    when it is surfaced: 0 at once, 1 when the calls of stage 0 have results, and so on; None: it is held. A
    held call has its `result`, or none yet: then a proxy tool is to be run for it.
    """

    call: ToolCall
    raw: str
    owner: Owner
    given_id: str
    given: str | None = None
    original: bool = False
    stage: int | None = None
    result: str | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a call of a hidden round. `failed`: it was blocked or went wrong."""

    call: ToolCall
    text: str
    blocked: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class Round:
    """What the assistant said in one answer that the client did not see end, and the results of all its calls.

    `message` is JSON text in the form of the wire: a chat's message, or the list of a response's output items."""

    message: str
    results: tuple[RoundResult, ...]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch that a client saw a part of. `message` is the assistant's message without its calls, or the list of a
    response's output items with a number in the place of each call; `shown` is the text that the client was given with
    it (that of hidden rounds included)."""

    batch_id: BatchId
    message: str
    shown: str
    calls: tuple[CallRecord, ...]
    rounds: tuple[Round, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn that ended without surfaced calls after hidden rounds. `content` is the JSON text of its last round's
    own content (a response's output items). `unclear`: two turns came under one digest, so neither is used."""

    content: str
    rounds: tuple[Round, ...]
    unclear: bool = False


def says_the_same(one: TurnRecord, other: TurnRecord) -> bool:
    """Whether two turns tell a model the same: the same texts, calls and results. Ids of calls may differ, as they do
    when a request is sent again and answered alike."""
    return one.content == other.content and [_told(r) for r in one.rounds] == [_told(r) for r in other.rounds]


def _told(hidden: Round) -> tuple[Any, ...]:
    message = parse_own(hidden.message.encode())
    calls = [(r.call.name, r.call.text, r.call.kind, r.text, r.blocked) for r in hidden.results]
    if isinstance(message, list):
        return [item for item in message if not (isinstance(item, dict) and "call_id" in item)], calls
    return {key: value for key, value in message.items() if key != "tool_calls"}, calls


@dataclass(frozen=True, slots=True)
class ResumeRecord:
    """How far the rounds behind an answer that no client has seen end have come. `head` is the JSON text of the
    first answer's envelope, `usage` what its rounds used so far; `pending` is the round whose calls are run now."""

    resume_id: str
    head: str
    usage: str
    rounds: tuple[Round, ...]
    pending: BatchRecord | None


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """What has to be known later of a response that the upstream keeps, or of the last one of a conversation.

    `response_id` is the id that the upstream knows it by (empty: it does not know it). `owed` are results that the next
    request has to bring along, `carried` items of the client's that the upstream has not been given yet; `denied`
    counts the calls in a row that were blocked. `calls` are its calls as they were decided. What the client saw of it:
    `before` is the list of output items of earlier rounds and `usage` what they used (JSON texts), `said` the text of
    a message that was put at its end. `own` is the whole response where it was made here.
    """

    response_id: str
    owed: tuple[RoundResult, ...] = ()
    carried: tuple[str, ...] = ()
    denied: int = 0
    calls: tuple[CallRecord, ...] = ()
    before: str = "[]"
    usage: str = "null"
    said: str = ""
    own: str = ""


Record = TypeVar("Record", BatchRecord, TurnRecord, ResumeRecord, ResponseRecord)


def render_record(record: BatchRecord | TurnRecord | ResumeRecord | ResponseRecord) -> bytes:
    """A record to bytes."""
    return render({"v": VERSION, "record": asdict(record)})


class UnknownRecordError(ValueError):
    """A record of a form that this release does not know, or no record at all."""


def parse_record(data: bytes, kind: type[Record]) -> Record:
    """Bytes to a record. Raises UnknownRecordError."""
    try:
        value = parse_own(data)
        if value["v"] != VERSION:
            raise UnknownRecordError(f"a record of form {value['v']}, known is {VERSION}")
        return _READERS[kind](value["record"])  # type: ignore[no-any-return]  # the table is by kind
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownRecordError(f"no record: {error}") from error


def _call(value: dict[str, Any]) -> ToolCall:
    return ToolCall(**{**value, "call_id": CallId(value["call_id"]), "kind": Kind(value["kind"])})


def _call_record(value: dict[str, Any]) -> CallRecord:
    return CallRecord(**{**value, "call": _call(value["call"]), "owner": Owner(value["owner"])})


def _round(value: dict[str, Any]) -> Round:
    return Round(value["message"], tuple(map(_result, value["results"])))


def _result(value: dict[str, Any]) -> RoundResult:
    return RoundResult(**{**value, "call": _call(value["call"])})


def _rounds(value: dict[str, Any]) -> tuple[Round, ...]:
    return tuple(map(_round, value["rounds"]))


def _batch(value: dict[str, Any]) -> BatchRecord:
    calls = tuple(map(_call_record, value["calls"]))
    return BatchRecord(BatchId(value["batch_id"]), value["message"], value["shown"], calls, _rounds(value))


def _turn(value: dict[str, Any]) -> TurnRecord:
    return TurnRecord(value["content"], _rounds(value), value["unclear"])


def _resume(value: dict[str, Any]) -> ResumeRecord:
    pending = _batch(value["pending"]) if value["pending"] else None
    return ResumeRecord(value["resume_id"], value["head"], value["usage"], _rounds(value), pending)


def _response(value: dict[str, Any]) -> ResponseRecord:
    lists = {
        "owed": tuple(map(_result, value["owed"])),
        "carried": tuple(value["carried"]),
        "calls": tuple(map(_call_record, value["calls"])),
    }
    return ResponseRecord(**{**value, **lists})


_READERS: dict[Any, Any] = {
    BatchRecord: _batch,
    TurnRecord: _turn,
    ResumeRecord: _resume,
    ResponseRecord: _response,
}
