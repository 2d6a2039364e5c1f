"""The calls of one answer on their way to their decision, and from there to the client or not.

The filters of all streams come here: which call is judged when, in which order calls may go, which of them wait for the
end of their batch, and what is asked of the ledger. How a call stands on its wire is the filter's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from proxy.core.batch.split import is_weak_id
from proxy.core.calls import Batch, Kind, ToolCall
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, conclude
from proxy.core.exchange.steps import Asked, Key, LookUp, Step
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import Needs


@dataclass(slots=True, kw_only=True)
class CallOnItsWay(ABC):
    """A call, and where it stands. `known` says whether the ledger has its id already, `freed` when it was let go or
    dropped, `given_id` what the client gets it under (None: its own)."""

    since: float
    asking: Generator[Consult, Reply, Judged] | None = None
    judged: Judged | None = None
    looked_up: bool = False
    known: bool | None = None
    freed: float | None = None
    given_id: str | None = None
    dropped: bool = False

    @property
    @abstractmethod
    def ordinal(self) -> int:
        """Its place in the model's order."""

    @property
    @abstractmethod
    def let_go(self) -> bool:
        """Whether it is settled that the client gets it."""

    @property
    @abstractmethod
    def may_be_renumbered(self) -> bool:
        """Whether its number may have to change, which shows only at the end of the batch."""

    @abstractmethod
    def whole(self) -> ToolCall:
        """The call as it is known by now, and once it was judged by all of it, as it was judged."""

    @abstractmethod
    def raw(self) -> str:
        """The same as it stands in its message."""

    @abstractmethod
    def seal(self, needs: Needs) -> None:
        """It is judged now, by what that needs."""

    @property
    def decided(self) -> bool:
        return self.dropped or self.let_go

    def may_change(self, used_ids: frozenset[str]) -> bool:
        """Whether its number or its id may have to change, which shows only at the end of the batch. An approval is
        asked for under the id that the upstream knows."""
        call = self.whole()
        if call.kind is Kind.APPROVAL:
            return False
        return self.may_be_renumbered or is_weak_id(call) or call.call_id in used_ids

    def look_up(self, index: int) -> list[Step]:
        """Ask, once, whether the ledger has its id."""
        if self.looked_up:
            return []
        self.looked_up = True
        return [LookUp((index, self.ordinal), self.whole().call_id)]

    def settled(self, now: float) -> tuple[Judged, float]:
        """The decided call as it is now, and the seconds that it was held."""
        assert self.judged is not None
        freed = self.freed if self.freed is not None else now
        return replace(self.judged, call=self.whole(), raw=self.raw()), max(0.0, freed - self.since)


S = TypeVar("S", bound=CallOnItsWay)


@dataclass(slots=True, kw_only=True)
class CallQueue(ABC, Generic[S]):
    """The calls of one answer in the model's order. `cursor` is the next to be judged, `released` the next to be let
    go. `finished`: no call comes any more, since the answer has ended, or was `cut` short."""

    slots: list[S] = field(default_factory=list)
    cursor: int = 0
    released: int = 0
    finished: bool = False
    cut: bool = False
    concluded: bool = False

    @abstractmethod
    def is_ready(self, slot: S, needs: Callable[..., Needs]) -> bool:
        """Whether all is there that the decision of a call needs."""

    @abstractmethod
    def let_go(self, slot: S) -> None:
        """The client gets this call, behind those that were let go before."""

    @property
    def all_judged(self) -> bool:
        return self.cursor == len(self.slots)

    def batch(self, at: int) -> Batch | None:
        """What call `at` may know of its batch; nothing before that is whole."""
        if not self.finished:
            return None
        names = tuple(slot.whole().name for slot in self.slots)
        return Batch(len(names), at, names)

    def drop(self) -> None:
        """Drop every call that has not gone to the client."""
        for slot in self.slots:
            slot.dropped = not slot.let_go

    def number(self, conclusion: Conclusion, ids: Sequence[str | None]) -> None:
        """Let the calls of stage 0 go that have not gone yet, under these ids (None: their own); the others are
        dropped."""
        for slot, stage, given in zip(self.slots, conclusion.stages, ids, strict=True):
            if stage != 0:
                slot.dropped = True
            elif not slot.let_go:
                slot.given_id = None if slot.whole().kind is Kind.APPROVAL else given
                self.let_go(slot)


class Decisions:
    """Judges the calls of one stream, and says which may go. `now` is the time of what is done at the moment."""

    def __init__(self, judge: Judge, bounds: Bounds, used_ids: frozenset[str]) -> None:
        self._judge = judge
        self._bounds = bounds
        self._used_ids = used_ids
        self.now = 0.0

    def judge(self, index: int, calls: CallQueue[S]) -> list[Step]:
        """Judge what can be judged, up to a call that something is asked for."""
        steps: list[Step] = []
        while not calls.all_judged:
            slot = calls.slots[calls.cursor]
            if slot.judged is None:
                if slot.asking is not None or not calls.is_ready(slot, self._judge.needs):
                    break
                call = slot.whole()
                slot.seal(self._judge.needs(call.name, namespace=call.namespace, kind=call.kind))
                slot.asking = self._judge.judge(call, slot.raw(), calls.batch(calls.cursor))
                steps += self.resume((index, calls.cursor), slot, None)
                if slot.judged is None:
                    break
            calls.cursor += 1
        return steps

    @staticmethod
    def resume(key: Key, slot: CallOnItsWay, given: Reply | None) -> list[Step]:
        """Go on with a judgement: `given` is the answer to what it asked."""
        assert slot.asking is not None
        try:
            return [Asked(key, slot.asking.send(given))]  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            slot.judged, slot.asking = stop.value, None
            slot.known = slot.judged.renamed if slot.known is None else slot.known
            return []

    def release(self, index: int, calls: CallQueue[S], turn: ChoiceTurn) -> list[Step]:
        """Let go the calls that nothing to come can change, in the model's order."""
        while calls.released < calls.cursor:
            slot = calls.slots[calls.released]
            assert slot.judged is not None
            if slot.judged.held:
                slot.dropped, slot.freed = True, slot.freed or self.now
            elif self._waits(turn, slot, calls.slots[: calls.released]) or slot.known:
                break
            elif slot.known is None and slot.judged.call.kind is not Kind.APPROVAL:
                return slot.look_up(index)
            else:
                slot.freed = self.now
                calls.let_go(slot)
            calls.released += 1
        return []

    def _waits(self, turn: ChoiceTurn, slot: S, before: Sequence[S]) -> bool:
        """Whether a call that goes ahead has to wait for the decision of its whole batch."""
        judged = slot.judged
        assert judged is not None
        if turn.closing or judged.verdict.deferred or judged.lanes:
            return True
        if not self._judge.could_hold and not turn.rounds:
            return False
        ends = self._judge.chain.ends_turns or turn.denied >= self._bounds.stop_after
        twice = any(s.let_go and s.whole().call_id == judged.call.call_id for s in before)
        return ends or twice or slot.may_change(self._used_ids)

    def conclude(
        self, index: int, calls: CallQueue[S], turn: ChoiceTurn
    ) -> tuple[tuple[Judged, ...], Conclusion] | list[Step]:
        """The decided batch and how its turn ends; or what has to be asked before that can be said."""
        batch = tuple(slot.settled(self.now)[0] for slot in calls.slots)
        conclusion = conclude(
            batch, cut=calls.cut, closing=turn.closing, denied=turn.denied, stop_after=self._bounds.stop_after
        )
        if conclusion.end in (End.PASS, End.SPLIT):
            open_slots = [s for s in calls.slots if s.known is None and _needs_look_up(s)]
            if open_slots:
                return [step for slot in open_slots for step in slot.look_up(index)]
        return batch, conclusion


def _needs_look_up(slot: CallOnItsWay) -> bool:
    return slot.judged is not None and not slot.judged.held and slot.judged.call.kind is not Kind.APPROVAL
