"""One choice of a chat stream: its calls on their way to the client, and the events that wait for them.

Values and what follows from them alone; `chat_stream.py` moves them on, `chat_events.py` writes them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import Kind, ToolCall
from proxy.core.exchange.deciding import CallOnItsWay, CallQueue
from proxy.core.exchange.judging import Conclusion, Judged
from proxy.core.exchange.steps import Ended, Step
from proxy.core.jsontext import Path
from proxy.core.policy.verdicts import Needs
from proxy.core.protocol.assembly import Assembler, Fragment, OpenCall
from proxy.core.protocol.sse import Event

CALLS = ("tool_calls", "function_call")


@dataclass(slots=True)
class Slot(CallOnItsWay):
    """A call on its way. `closed`: no more of it is waited for. `whole`: it is sent in one piece, changed."""

    open: OpenCall
    fragments: int = 0
    closed: bool = False
    out_index: int | None = None
    sent_whole: bool = False

    @property
    def ordinal(self) -> int:
        return self.open.ordinal

    @property
    def let_go(self) -> bool:
        return self.out_index is not None

    @property
    def in_one_piece(self) -> bool:
        assert self.judged is not None
        return self.judged.verdict.text is not None or self.given_id not in (None, self.open.call_id)

    @property
    def in_order(self) -> bool:
        """Whether the upstream numbers it as a client expects."""
        return self.open.kind is Kind.LEGACY or self.open.index == self.open.ordinal

    @property
    def may_be_renumbered(self) -> bool:
        return not self.in_order

    def whole(self) -> ToolCall:
        return self.open.whole()

    def raw(self) -> str:
        return jsontext.render_text(self.open.entry())

    def seal(self, needs: Needs) -> None:
        self.open.sealed = needs is not Needs.NAME


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """An event of one choice (`at` is its place in the event's list) that has fragments of calls, or the finish.
    `gone` are places in it that the client does not get, or has already."""

    event: Event
    value: dict[str, Any]
    at: int
    fragments: tuple[Fragment, ...]
    gone: tuple[Path, ...] = ()

    @property
    def choice(self) -> dict[str, Any]:
        choice: dict[str, Any] = self.value["choices"][self.at]
        return choice

    @property
    def delta(self) -> dict[str, Any]:
        delta = self.choice.get("delta")
        return delta if isinstance(delta, dict) else {}

    @property
    def speech(self) -> tuple[Path, ...]:
        """The places of what it says beside calls, the role too, as far as the client does not have that."""
        places = (("choices", self.at, "delta", key) for key, value in self.delta.items() if value and key not in CALLS)
        return tuple(place for place in places if place not in self.gone)

    def spoken(self) -> tuple[HeldEvent, HeldEvent]:
        """The event in two: what it says beside calls, and its calls."""
        delta: Path = ("choices", self.at, "delta")
        calls = tuple((*delta, key) for key in CALLS if key in self.delta)
        once = self.speech + ((("usage",),) if "usage" in self.value else ())
        return replace(self, fragments=(), gone=self.gone + calls), replace(self, gone=self.gone + once)


@dataclass(slots=True)
class ChoiceState(CallQueue[Slot]):
    """`parted`: a blank line is due before its first text. `renumber`: a call was changed or kept back in a batch whose
    numbers were not in order. `closed_by_us`: its finish is our own word."""

    assembler: Assembler = field(default_factory=Assembler)
    queue: list[HeldEvent] = field(default_factory=list)
    queued: int = 0  # bytes of the queue
    flushed: int = 0  # how many calls were let go when the queue was last looked through
    surfaced: int = 0
    finish: HeldEvent | None = None
    done: bool = False
    after: list[Step] = field(default_factory=list)
    hidden: bool = False  # the turn goes on in another answer
    parted: bool = False
    renumber: bool = False
    closed_by_us: bool = False

    @property
    def held_bytes(self) -> int:
        return self.queued + self.assembler.size

    def fail(self) -> None:
        """The upstream failed: nothing of it goes on."""
        self.requeue([])
        self.finished = self.done = True

    def ended(self, index: int, conclusion: Conclusion, batch: tuple[Judged, ...], *, now: float) -> Ended:
        """What the shell is told of its end."""
        known = frozenset(slot.open.call_id for slot in self.slots if slot.known)
        held_for = tuple(slot.settled(now)[1] for slot in self.slots)
        finish = self.finish.choice.get("finish_reason") if self.finish else None
        return Ended(index, conclusion, batch, self.assembler.message, known, held_for, finish)

    def push(self, held: HeldEvent) -> None:
        self.queue.append(held)
        self.queued += len(held.event.raw)

    def requeue(self, events: list[HeldEvent]) -> None:
        self.queue = events
        self.queued = sum(len(held.event.raw) for held in events)

    def to_look_through(self, *, everything: bool) -> tuple[list[HeldEvent], list[HeldEvent]]:
        """The events of the queue that may go by now, and those that wait in any case. Where no call was let go since,
        only the last event can be new."""
        if everything or self.released != self.flushed:
            self.flushed = self.released
            return self.queue, []
        if self.queue and self.is_decided(self.queue[-1]):
            return self.queue[-1:], self.queue[:-1]
        return [], self.queue

    def is_decided(self, held: HeldEvent) -> bool:
        """Whether every call of an event is to be let go or to be dropped."""
        slots = (self.slots[fragment.ordinal] for fragment in held.fragments)
        return all(slot.decided for slot in slots)

    def is_ready(self, slot: Slot, needs: Callable[..., Needs]) -> bool:
        """Whether all is there that the decision of a call needs."""
        over = self.finished or slot.closed
        if not over and not (slot.open.name and slot.open.pieces):
            return False  # the name may not be whole yet
        match needs(slot.open.name):
            case Needs.NAME:
                return True
            case Needs.ARGUMENTS:
                slot.closed = over
                return over
            case Needs.BATCH:
                return self.finished

    def let_go(self, slot: Slot) -> None:
        slot.out_index = self.surfaced
        self.surfaced += 1

    def close_earlier(self, fragments: Sequence[Fragment]) -> None:
        """A call is over when another one goes on, it has a name, and its arguments are whole."""
        going = {f.ordinal for f in fragments}
        for slot in self.slots[self.cursor : max(going)]:
            if not slot.closed and slot.open.ordinal not in going:
                slot.closed = bool(slot.open.name) and slot.open.reads_as_complete()

    def number(self, conclusion: Conclusion, ids: Sequence[str | None]) -> None:
        """Give the calls of stage 0 that are not let go yet their numbers and ids; the others are dropped."""
        CallQueue.number(self, conclusion, ids)
        if not all(slot.in_order for slot in self.slots):
            self.renumber = any(slot.dropped or slot.in_one_piece for slot in self.slots)


def spoken_apart(events: list[HeldEvent]) -> tuple[list[HeldEvent], list[HeldEvent]]:
    """What waiting events say beside their calls, as events of their own; and the events less that."""
    speeches, left = [], []
    for held in events:
        if held.speech:
            speech, held = held.spoken()
            speeches.append(speech)
        left.append(held)
    return speeches, left
