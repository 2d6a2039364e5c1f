"""The turn of one choice over its rounds: what was hidden so far, how often it may go on, and the records of it.

A turn is what one client sees as one answer of one choice. It may take several answers of the upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult
from proxy.core.batch.split import given_ids
from proxy.core.calls import BatchId
from proxy.core.exchange.judging import Conclusion, Ids, Judged, is_blocked

LIMIT_REACHED = "The limit of tool calls for one answer was reached."


@dataclass(slots=True)
class Bounds:
    """The limits of `continuations` and `denials`."""

    most: int
    most_errors: int
    stop_after: int


@dataclass(frozen=True, slots=True)
class Form:
    """What the records of a turn take from its wire.

    `digest_of` gives the digest under which a turn is found that ended with a message, `text_of` the text of a round's
    message. `stored`: the upstream keeps the answer, `remembered`: and the conversation too. `wants_json`: the client
    parses the text of an answer, so that only its last round's is shown."""

    digest_of: Callable[[dict[str, Any]], str]
    text_of: Callable[[str], str]
    stored: bool = False
    remembered: bool = False
    wants_json: bool = False


@dataclass(slots=True)
class ChoiceTurn:
    """One choice. `denied` counts calls in a row that were blocked (`denied_before` it began); `failures` counts rounds
    in a row of nothing but errors.

    `settles`: its end is waited for whatever it brings, since something has to be done before the client has it.
    `texts` are the texts that the client was shown so far, one a round that had some."""

    denied_before: int = 0
    settles: bool = False
    rounds: list[Round] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    failures: int = 0
    asked: int = 0
    closing: bool = False
    denied: int = field(init=False)

    def __post_init__(self) -> None:
        self.denied = self.denied_before

    def restart(self) -> None:
        """Forget the rounds: those of another try of the same request take their place."""
        self.rounds, self.texts = [], []
        self.failures, self.asked, self.closing, self.denied = 0, 0, False, self.denied_before

    def add_round(self, hidden: Round, bounds: Bounds) -> None:
        """A round was held whole and has its results: the upstream is to be asked again."""
        self.rounds.append(hidden)
        for result in hidden.results:
            self.denied = self.denied + 1 if result.blocked else 0
        self.failures = self.failures + 1 if all(r.failed for r in hidden.results) else 0
        self.asked += 1
        self.closing = self.asked > bounds.most or self.failures >= bounds.most_errors

    def limit(self, bounds: Bounds) -> str:
        """Which limit closed the turn; empty: none did."""
        if not self.closing:
            return ""
        return "errors" if self.failures >= bounds.most_errors else "limit"

    @property
    def shown(self) -> str:
        """The text of the turn as the client has it."""
        return "\n\n".join(self.texts)


def call_records(batch: Sequence[Judged], conclusion: Conclusion, ids: Sequence[str | None]) -> tuple[CallRecord, ...]:
    """The calls of a batch as the ledger keeps them; `ids` are what the client knows the surfaced ones by."""
    return tuple(
        CallRecord(
            call=judged.call,
            raw=judged.raw,
            owner=judged.owner,
            given_id=given or "",
            given=judged.verdict.text,
            original=judged.verdict.original_history,
            stage=stage,
            result=judged.result,
            blocked=is_blocked(judged),
        )
        for judged, stage, given in zip(batch, conclusion.stages, ids, strict=True)
    )


def ids_to_give(
    batch: Sequence[Judged], conclusion: Conclusion, *, taken: Collection[str], fresh_id: Ids
) -> list[str | None]:
    """An id for each call that is surfaced at any time; None for the held ones."""
    surfaced = [j.call for j, stage in zip(batch, conclusion.stages, strict=True) if stage is not None]
    given = iter(given_ids(surfaced, taken, fresh_id))
    return [None if stage is None else next(given) for stage in conclusion.stages]


def hidden_round(message: str, pending: BatchRecord, results: Sequence[tuple[str, bool, bool]]) -> Round:
    """A round whose calls were all held; `results` are (text, blocked, failed) in the order of its calls."""
    found = (
        RoundResult(call.call, text, blocked, failed)
        for call, (text, blocked, failed) in zip(pending.calls, results, strict=True)
    )
    return Round(message, tuple(found))


def pending_batch(batch: Sequence[Judged], conclusion: Conclusion, *, batch_id: BatchId, message: str) -> BatchRecord:
    """A round that is held whole, before its calls have been answered."""
    return BatchRecord(batch_id, message, "", call_records(batch, conclusion, [None] * len(batch)))
