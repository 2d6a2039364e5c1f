"""Finding in a conversation what was split or hidden, and where it has to be put back.

The input is a history as entries and what the ledger knows; the output is a list of pieces that stand in the
place of the entries. Nothing here knows a wire: `protocol/` renders the pieces. Nothing is consumed: the same
history gives the same pieces for as long as the ledger remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from proxy.core.batch.ledger import Run
from proxy.core.batch.record import BatchRecord, Round, TurnRecord
from proxy.core.calls import BatchId, ToolCall
from proxy.core.history import Entry, EntryKind

ABANDONED = "(not run: the conversation went on without it)"
TRIMMED = "(trimmed)"


class Progress(Enum):
    """How far the client has come with a batch that its history shows."""

    WAITING = auto()  # no surfaced call has a result: nothing is released
    DUE = auto()  # every call that it was given has one, and others are to be surfaced now
    WHOLE = auto()  # every surfaced call has one
    PARTIAL = auto()  # some have none


@dataclass(frozen=True, slots=True)
class Anchor:
    """A batch that a history shows. `shown` are the client's own calls by ordinal (the ones it edited included),
    `results` the entries of its results by ordinal, `entries` the assistant's entries that show its calls, `extra`
    calls of those entries that belong to no batch, `dropped` entries of results that a client made up for held calls.
    `recalled`: the upstream has its calls, and results alone show them here; a client that names the response before
    may still send calls that came behind that one.
    """

    batch: BatchRecord
    entries: tuple[int, ...]
    shown: Mapping[int, ToolCall]
    results: Mapping[int, int]
    progress: Progress
    due: tuple[int, ...] = ()
    extra: tuple[tuple[int, int], ...] = ()
    dropped: tuple[int, ...] = ()
    recalled: bool = False

    @property
    def released(self) -> bool:
        return self.progress in (Progress.WHOLE, Progress.PARTIAL)

    @property
    def left_out(self) -> frozenset[int]:
        """Ordinals of calls that the client was given and that its history shows no more: they stay out of it."""
        stages = [c.stage for c in self.batch.calls]
        reached = max(stages[i] or 0 for i in self.shown)
        given = (i for i, stage in enumerate(stages) if stage is not None and stage <= reached)
        return frozenset(given) - self.shown.keys()

    def to_run(self) -> list[int]:
        """Ordinals of held calls whose proxy tool has to have run before the batch is put back."""
        return [i for i, c in enumerate(self.batch.calls) if c.stage is None and c.result is None]


@dataclass(frozen=True, slots=True)
class Found:
    """What a history shows of the ledger. `mismatched` are batches under whose ids it has calls of another name."""

    anchors: tuple[Anchor, ...] = ()
    turns: Mapping[int, TurnRecord] = field(default_factory=dict)
    mismatched: frozenset[BatchId] = frozenset()


def find(
    entries: Sequence[Entry],
    pointers: Mapping[str, BatchId],
    *,
    batches: Mapping[BatchId, BatchRecord],
    turns: Mapping[int, TurnRecord],
    remembered: bool = False,
) -> Found:
    """The batches and turns that a history shows. `pointers` map ids that a client was given to batches; `turns` are
    turns by the index of the entry that ended them; `remembered`: the upstream has the calls, so that a result alone
    shows its call."""
    shown: dict[BatchId, dict[int, tuple[int, ToolCall]]] = {}
    owners: dict[int, BatchId] = {}  # a message belongs to one batch, and a call is shown where it stands first
    mismatched: set[BatchId] = set()
    extras: list[tuple[int, int]] = []
    for entry in entries:
        for position, call in enumerate(entry.calls):
            record = batches.get(pointers.get(call.call_id, BatchId("")))
            ordinal = _ordinal(record, call) if record else None
            if record is None or ordinal is None:
                extras.append((entry.index, position))
                mismatched |= {record.batch_id} if record is not None else set()
                continue
            of_batch = shown.setdefault(record.batch_id, {})
            if ordinal in of_batch or owners.setdefault(entry.index, record.batch_id) != record.batch_id:
                extras.append((entry.index, position))
            else:
                of_batch[ordinal] = (entry.index, call)
    sent = {batch_id for batch_id, calls in shown.items() if calls}
    if remembered:
        _show_answered(shown, entries, pointers=pointers, batches=batches)
    usable = {index: turn for index, turn in turns.items() if not turn.unclear}
    anchors = [_anchor(batches[b], calls, entries=entries, extras=extras) for b, calls in shown.items() if calls]
    found = tuple(anchor if anchor.batch.batch_id in sent else replace(anchor, recalled=True) for anchor in anchors)
    return Found(found, usable, frozenset(mismatched))


def _show_answered(
    shown: dict[BatchId, dict[int, tuple[int, ToolCall]]],
    entries: Sequence[Entry],
    *,
    pointers: Mapping[str, BatchId],
    batches: Mapping[BatchId, BatchRecord],
) -> None:
    """Take the calls that results answer as shown, where their results stand."""
    for entry in entries:
        record = batches.get(pointers.get(entry.call_id, BatchId(""))) if entry.kind is EntryKind.RESULT else None
        for ordinal, known in enumerate(record.calls if record else ()):
            if known.given_id == entry.call_id and known.stage is not None:
                assert record is not None
                shown.setdefault(record.batch_id, {}).setdefault(ordinal, (entry.index, known.call))


def _ordinal(record: BatchRecord, call: ToolCall) -> int | None:
    """Which call of a batch is shown; None: another, under the id of one."""
    for ordinal, known in enumerate(record.calls):
        if (known.given_id, known.call.name) == (call.call_id, call.name) and known.stage is not None:
            return ordinal
    return None


def _anchor(
    batch: BatchRecord,
    shown: Mapping[int, tuple[int, ToolCall]],
    *,
    entries: Sequence[Entry],
    extras: Sequence[tuple[int, int]],
) -> Anchor:
    places = tuple(sorted({index for index, _ in shown.values()}))
    by_id = {batch.calls[ordinal].given_id: ordinal for ordinal in shown}
    held = {str(c.call.call_id) for c in batch.calls if c.stage is None} - {""} - by_id.keys()
    results: dict[int, int] = {}
    dropped: list[int] = []
    for entry in entries[places[0] :]:
        if entry.kind is not EntryKind.RESULT:
            continue
        if entry.call_id in by_id:
            results.setdefault(by_id[entry.call_id], entry.index)
        elif entry.call_id in held and _answers(entries, places, entry.index):
            dropped.append(entry.index)
    progress, due = _progress(batch, shown.keys(), results=results, entries=entries)
    calls = {ordinal: call for ordinal, (_, call) in shown.items()}
    extra = tuple(e for e in extras if e[0] in places)
    return Anchor(batch, places, calls, results, progress, due, extra, tuple(dropped))


def _answers(entries: Sequence[Entry], places: tuple[int, ...], index: int) -> bool:
    """Whether a result stands behind one of the places with nothing of the assistant's between."""
    said = (e.index for e in reversed(entries[:index]) if e.kind in (EntryKind.CALLS, EntryKind.TEXT))
    return (before := next(said, None)) is None or before in places


def _progress(
    batch: BatchRecord, shown: Iterable[int], *, results: Mapping[int, int], entries: Sequence[Entry]
) -> tuple[Progress, tuple[int, ...]]:
    stage_of = {i: c.stage for i, c in enumerate(batch.calls) if c.stage is not None}
    reached = max(stage_of[i] for i in shown)
    expected = [i for i, stage in stage_of.items() if stage <= reached]
    if not results:
        return Progress.WAITING, ()
    if any(i not in results for i in expected):
        return Progress.PARTIAL, ()
    due = tuple(i for i, stage in stage_of.items() if stage == reached + 1)
    if due and not _went_on(entries, max(results.values())):
        return Progress.DUE, due
    return (Progress.PARTIAL if due else Progress.WHOLE), ()


def _went_on(entries: Sequence[Entry], after: int) -> bool:
    return any(e.kind in (EntryKind.CALLS, EntryKind.TEXT) for e in entries[after + 1 :])


# ---------------------------------------------------------------- what stands in the place of the entries


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as the client sent it."""

    index: int


@dataclass(frozen=True, slots=True)
class PutRound:
    """A hidden round; `trimmed` are the results that became too old to be shown in full."""

    round: Round
    trimmed: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class PutBatch:
    """A whole batch: its message with every call but those that are left out, and every result in the order of the
    calls: an entry of the client's, or a text (None: there is none)."""

    anchor: Anchor
    results: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class PutText:
    """The entry that ended a turn after hidden rounds, with its last round's own content."""

    index: int
    content: str


Piece = Kept | PutRound | PutBatch | PutText


def pieces(
    entries: Sequence[Entry], found: Found, *, runs: Mapping[tuple[BatchId, int], Run], restore_bytes: int
) -> list[Piece]:
    """The history that the model is to see. `runs` has the finished run of every held call that needed one."""
    gone: set[int] = set()
    first: dict[int, Anchor] = {}
    for anchor in found.anchors:
        if anchor.released:
            gone.update(anchor.entries, anchor.results.values(), anchor.dropped)
            first[anchor.entries[0]] = anchor
    out: list[Piece] = []
    for entry in entries:
        if entry.index in first:
            anchor = first[entry.index]
            rounds = () if anchor.recalled else anchor.batch.rounds
            out += [PutRound(r, (False,) * len(r.results)) for r in rounds]
            out.append(PutBatch(anchor, tuple(_results(anchor, runs))))
        elif entry.index in found.turns:
            turn = found.turns[entry.index]
            out += [PutRound(r, (False,) * len(r.results)) for r in turn.rounds]
            out.append(PutText(entry.index, turn.content))
        elif entry.index not in gone:
            out.append(Kept(entry.index))
    return _trimmed(out, restore_bytes)


def _results(anchor: Anchor, runs: Mapping[tuple[BatchId, int], Run]) -> list[int | str | None]:
    """The result of each call. A deferred call that was never surfaced gets a word that it was not run."""
    found: list[int | str | None] = []
    for ordinal, call in enumerate(anchor.batch.calls):
        if call.stage is None:
            found.append(call.result if call.result is not None else runs[anchor.batch.batch_id, ordinal].text)
        elif ordinal in anchor.results:
            found.append(anchor.results[ordinal])
        else:
            found.append(None if ordinal in anchor.shown or ordinal in anchor.left_out else ABANDONED)
    return found


def _trimmed(out: list[Piece], restore_bytes: int) -> list[Piece]:
    """With the results of hidden rounds beyond a number of bytes trimmed, the oldest first."""
    left = restore_bytes
    for at in range(len(out) - 1, -1, -1):
        piece = out[at]
        if not isinstance(piece, PutRound):
            continue
        marks = []
        for result in reversed(piece.round.results):
            left -= len(result.text.encode("utf-8", "replace"))
            marks.append(left < 0)
        out[at] = PutRound(piece.round, tuple(reversed(marks)))
    return out


def denied_in_a_row(entries: Sequence[Entry], out: Sequence[Piece], before: int = 0) -> int:
    """How many calls in a row were blocked last, since the last message of the user; `before`: in what the upstream
    remembers of the conversation."""
    count = before
    kinds = {e.index: e for e in entries}
    for piece in out:
        if isinstance(piece, Kept | PutText):
            entry = kinds[piece.index]
            count = 0 if entry.kind is EntryKind.USER or entry.calls else count
            continue
        for call in piece.anchor.batch.calls if isinstance(piece, PutBatch) else piece.round.results:
            count = count + 1 if call.blocked else 0
    return count
