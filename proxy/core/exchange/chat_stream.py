"""A chat stream on its way to the client: text passes at once, calls wait for their decisions.

`ChatStream` takes the bytes of one answer of the upstream and gives steps: bytes to send, questions that only the
shell can answer, and the end of each choice, where the shell saves what has to be saved before the filter is
told how to go on (`surface`, `end_with`, `hide`). It never waits by itself, and an event without a tool call
is part of the steps of the very `feed` that completed it: nothing here keeps such an event for later, except
behind the end of its own turn. Events that need no change go on as the bytes they came as.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.split import is_weak_id
from proxy.core.calls import Batch
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, conclude
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.policy.verdicts import Consult, Needs
from proxy.core.protocol.assembly import Assembler, Fragment, OpenCall
from proxy.core.protocol.completion import CUT_SHORT, added_usage, edited_call
from proxy.core.protocol.sse import Event, EventSplitter, render
from proxy.errors import UpstreamError

Key = tuple[int, int]
"""A call of a stream: the index of its choice, and its place in the model's order."""


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """A judgement asks something of the world; `answer(key, …)` tells it."""

    key: Key
    consult: Consult


@dataclass(frozen=True, slots=True)
class LookUp:
    """Is this id in the ledger already? `known(key, …)` tells."""

    key: Key
    call_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A choice has ended and every call of it is decided. `message` is the assistant's message without its calls,
    `known` the ids of its calls that the ledger has already, `held_for` the seconds that each call was held."""

    index: int
    conclusion: Conclusion
    batch: tuple[Judged, ...]
    message: dict[str, Any]
    known: frozenset[str]
    held_for: tuple[float, ...]
    finish: str | None


Step = Send | Asked | LookUp | Ended


@dataclass(frozen=True, slots=True)
class StreamLimits:
    event_bytes: int
    batch_calls: int
    held_bytes: int


@dataclass(slots=True)
class Lead:
    """What the first answer fixed for all that follow it in one stream. `usage` is what earlier rounds used."""

    rounds: int = 1
    envelope: dict[str, Any] = field(default_factory=dict)
    role_sent: set[int] = field(default_factory=set)
    seen: dict[str, Any] = field(default_factory=dict)
    usage: Any = None
    usage_event: Event | None = None
    done_event: Event | None = None

    def learn(self, value: dict[str, Any]) -> None:
        if value.get("id") and not self.envelope.get("id"):
            self.envelope = {k: v for k, v in value.items() if k not in ("choices", "usage", "obfuscation")}

    def chunk(self, index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """An event of our own, as the upstream's are."""
        role = {} if index in self.role_sent else {"role": "assistant"}
        self.role_sent.add(index)
        choice = {"index": index, "delta": role | delta, "finish_reason": finish}
        return render(jsontext.render({**self.envelope, "choices": [choice]}))


@dataclass(slots=True)
class _Slot:
    """A call on its way. `closed`: no more of it is waited for. `whole`: it is sent in one piece, changed."""

    open: OpenCall
    since: float
    closed: bool = False
    asking: Generator[Consult, bool, Judged] | None = None
    judged: Judged | None = None
    looked_up: bool = False
    known: bool | None = None
    freed: float | None = None
    out_index: int | None = None
    given_id: str | None = None
    dropped: bool = False
    sent_whole: bool = False

    @property
    def whole(self) -> bool:
        assert self.judged is not None
        return self.judged.verdict.text is not None or self.given_id not in (None, self.open.call_id)


@dataclass(frozen=True, slots=True)
class _Held:
    """An event of one choice (`at` is its place in the event's list) that has fragments of calls, or the finish."""

    event: Event
    value: dict[str, Any]
    at: int
    fragments: tuple[Fragment, ...]

    @property
    def choice(self) -> dict[str, Any]:
        choice: dict[str, Any] = self.value["choices"][self.at]
        return choice

    @property
    def delta(self) -> dict[str, Any]:
        delta = self.choice.get("delta")
        return delta if isinstance(delta, dict) else {}


@dataclass(slots=True)
class _ChoiceState:
    assembler: Assembler = field(default_factory=Assembler)
    slots: list[_Slot] = field(default_factory=list)
    queue: list[_Held] = field(default_factory=list)
    cursor: int = 0  # the next call to be judged
    released: int = 0  # the next call to be let go
    surfaced: int = 0
    finish: _Held | None = None
    finished: bool = False
    cut: bool = False
    concluded: bool = False
    done: bool = False
    hidden: bool = False  # the turn goes on in another answer
    after: list[bytes] = field(default_factory=list)


class ChatStream:
    """One answer of the upstream. `only` is the client's index of the choice that a continuation is for."""

    def __init__(
        self,
        judge: Judge,
        lead: Lead,
        *,
        turn_of: Callable[[int], ChoiceTurn],
        bounds: Bounds,
        limits: StreamLimits,
        used_ids: frozenset[str],
        only: int | None = None,
    ) -> None:
        self._judge = judge
        self._lead = lead
        self._turn_of = turn_of
        self._bounds = bounds
        self._limits = limits
        self._used_ids = used_ids
        self._only = only
        self._splitter = EventSplitter()
        self._choices: dict[int, _ChoiceState] = {}
        self._tail: list[_Held | Event] = []
        self._usage: Any = None
        self._over = False
        self._now = 0.0
        self.failed = False  # the upstream sent an error event

    # -- what the shell tells

    @property
    def held_bytes(self) -> int:
        """Bytes and characters that are kept at the moment."""
        queued = sum(len(h.event.raw) for s in self._choices.values() for h in s.queue)
        return queued + sum(s.assembler.size for s in self._choices.values()) + self._splitter.pending

    @property
    def over(self) -> bool:
        """Whether every choice has ended, so that nothing but usage and the last event can come."""
        return self._over or (bool(self._choices) and all(s.finished for s in self._choices.values()))

    @property
    def usage(self) -> Any:
        """What this answer used, as far as it said."""
        return self._usage

    def feed(self, data: bytes, now: float) -> list[Step]:
        """Take bytes in. Raises UpstreamError when more would have to be held than may be."""
        self._now = now
        steps: list[Step] = []
        for event in self._splitter.feed(data):
            steps += self._event(event)
        if self._splitter.pending > self._limits.event_bytes:
            raise _too_long("An event of the stream", self._limits.event_bytes)
        if self.held_bytes > self._limits.held_bytes:
            raise _too_long("What has to be held of the stream", self._limits.held_bytes)
        return steps

    def finish(self, now: float) -> list[Step]:
        """The body has ended well: what was not finished is cut short."""
        self._now = now
        rest = self._splitter.finish()
        steps = self._event(rest) if rest is not None else []
        return steps + self._cut_short()

    def answer(self, key: Key, given: bool, now: float) -> list[Step]:
        """What the world said to a question."""
        self._now = now
        state = self._choices[key[0]]
        slot = state.slots[key[1]]
        return [*self._resume(key, slot, given), *self._advance(key[0], state)]

    def known(self, key: Key, found: bool, now: float) -> list[Step]:
        """Whether the ledger has the id of a call already."""
        self._now = now
        state = self._choices[key[0]]
        state.slots[key[1]].known = found
        return self._advance(key[0], state)

    def surface(self, index: int, conclusion: Conclusion, ids: Sequence[str | None]) -> list[Step]:
        """Let a choice end with the calls of stage 0, under these ids (None: its own)."""
        state = self._choices[index]
        for slot, stage, given in zip(state.slots, conclusion.stages, ids, strict=True):
            if stage != 0:
                slot.dropped = True
            elif slot.out_index is None:
                slot.out_index, slot.given_id = state.surfaced, given
                state.surfaced += 1
        steps = self._flush(index, state, everything=True)
        return [*steps, *self._finished(index, state, {})]

    def end_with(self, index: int, text: str) -> list[Step]:
        """Let a choice end without calls; `text` comes behind what it said."""
        state = self._choices[index]
        steps = self._drop(index, state)
        if text:
            if state.assembler.message.get("content") or self._turn_of(index).texts:
                text = "\n\n" + text
            steps.append(Send(self._lead.chunk(index, {"content": text})))
        at = state.finish.at if state.finish else 0
        return [*steps, *self._finished(index, state, {("choices", at, "finish_reason"): b'"stop"'})]

    def hide(self, index: int) -> list[Step]:
        """Keep the end of a choice from the client: the turn goes on with another answer."""
        state = self._choices[index]
        steps = self._drop(index, state)
        if state.finish is not None:
            gone: dict[Path, bytes | None] = {("choices", state.finish.at, "finish_reason"): b"null"}
            data = self._emit(index, state, state.finish, more=gone | {("usage",): None})
            steps += [Send(data)] if data else []
        state.done = state.hidden = True
        self._lead.rounds += self._lead.rounds == 1
        return [*steps, *self._release_tail()]

    def abandon(self) -> list[tuple[Judged, float]]:
        """The calls that were decided in choices that never ended, with the seconds that each was held."""
        states = (s for s in self._choices.values() if not s.concluded)
        return [self._settled(slot) for state in states for slot in state.slots if slot.judged is not None]

    # -- events

    def _event(self, event: Event) -> list[Step]:
        if event.data is None:
            return self._apart(event)
        if event.data.strip() == b"[DONE]":
            steps = self._cut_short()
            self._over = True
            return [*steps, *self._apart(event)]
        value = _read(event.data)
        if value is None:
            return self._apart(event)
        if value.get("error"):
            return self._error(event)
        self._lead.learn(value)
        choices = value.get("choices")
        if self._over:
            return []  # no client reads on behind the end
        if not isinstance(choices, list) or not any(isinstance(c, dict) for c in choices):
            self._note_usage(value)
            return self._apart(event)
        if len(choices) > 1:
            return self._several(event, value)
        self._note_usage(value)
        return self._one(event, value)

    def _note_usage(self, value: dict[str, Any]) -> None:
        if isinstance(value.get("usage"), dict):
            self._usage = value["usage"]

    def _error(self, event: Event) -> list[Step]:
        """The upstream failed in the middle of its answer: what was held goes no further, its word does."""
        self.failed = True
        for state in self._choices.values():
            state.queue, state.finished, state.done = [], True, True
        self._over = True
        return [Send(event.raw)]

    def _several(self, event: Event, value: dict[str, Any]) -> list[Step]:
        """An event for several choices, as one event for each where that makes a difference."""
        choices = [c for c in value["choices"] if isinstance(c, dict)]
        if not any(c.get("finish_reason") or _has_call(c) for c in choices) and self._lead.rounds == 1:
            for choice in choices:
                self._take(event, value, choice)
            return [Send(event.raw)]
        assert event.data is not None
        steps: list[Step] = []
        for number, raw in enumerate(jsontext.elements(event.data, ("choices",))):
            changes: dict[Path, bytes | None] = {("choices",): jsontext.array([raw])}
            if number:
                changes["usage",] = None
            data = jsontext.edit(event.data, changes)
            steps += self._event(Event(event.with_data(data), data))
        return steps

    def _take(self, event: Event, value: dict[str, Any], choice: dict[str, Any]) -> tuple[int, tuple[Fragment, ...]]:
        """Put a choice's delta to what came before; its index, and what its entries belong to."""
        index = choice.get("index")
        index = self._only if self._only is not None else index if isinstance(index, int) else 0
        state = self._choices.setdefault(index, _ChoiceState())
        delta, at = choice.get("delta"), value["choices"].index(choice)
        if not isinstance(delta, dict):
            return index, ()

        def raw_of(path: Path) -> str:
            assert event.data is not None
            return (jsontext.raw(event.data, ("choices", at, "delta", *path)) or b"").decode()

        fragments = tuple(state.assembler.add(delta, raw_of))
        for call in state.assembler.calls[len(state.slots) :]:
            state.slots.append(_Slot(call, self._now))
        if len(state.slots) > self._limits.batch_calls:
            raise _too_long("A batch of calls", self._limits.batch_calls)
        return index, fragments

    def _one(self, event: Event, value: dict[str, Any]) -> list[Step]:
        at, choice = next((i, c) for i, c in enumerate(value["choices"]) if isinstance(c, dict))
        index, fragments = self._take(event, value, choice)
        state = self._choices[index]
        held = _Held(event, value, at, fragments)
        finish = choice.get("finish_reason")
        if state.finished:
            return self._behind_the_end(index, state, held)
        if finish:
            state.finish, state.finished, state.cut = held, True, finish in CUT_SHORT
            return self._advance(index, state)
        if not fragments:
            data = self._emit(index, state, held)
            return [Send(data)] if data else []
        state.queue.append(held)
        self._close_earlier(state, fragments)
        return self._advance(index, state)

    def _behind_the_end(self, index: int, state: _ChoiceState, held: _Held) -> list[Step]:
        """An event of a choice that has ended already: what it says of itself passes, a call does not."""
        if held.fragments or state.hidden:
            return []
        data = self._emit(index, state, held)
        if not state.done:
            state.after += [data] if data else []
            return []
        return [Send(data)] if data else []

    @staticmethod
    def _close_earlier(state: _ChoiceState, fragments: Sequence[Fragment]) -> None:
        """A call is over when another one goes on and its own arguments are whole."""
        going = {f.ordinal for f in fragments}
        for slot in state.slots[state.cursor : max(going)]:
            if not slot.closed and slot.open.ordinal not in going:
                slot.closed = not slot.open.pieces or slot.open.reads_as_complete()

    # -- decisions

    def _advance(self, index: int, state: _ChoiceState) -> list[Step]:
        """Judge what can be judged, let go what may go, and conclude when nothing is open any more."""
        steps: list[Step] = []
        while state.cursor < len(state.slots):
            slot = state.slots[state.cursor]
            if slot.judged is None:
                if slot.asking is not None or not self._is_ready(state, slot):
                    break
                steps += self._judge_call((index, state.cursor), state, slot)
                if slot.judged is None:
                    break
            state.cursor += 1
        steps += self._release(index, state)
        steps += self._flush(index, state)
        if state.finished and not state.concluded and state.cursor == len(state.slots):
            steps += self._conclude(index, state)
        return steps

    def _is_ready(self, state: _ChoiceState, slot: _Slot) -> bool:
        over = state.finished or slot.closed
        if not over and not (slot.open.name and slot.open.pieces):
            return False  # the name may not be whole yet
        match self._judge.needs(slot.open.name):
            case Needs.NAME:
                return True
            case Needs.ARGUMENTS:
                slot.closed = over
                return over
            case Needs.BATCH:
                return state.finished

    def _judge_call(self, key: Key, state: _ChoiceState, slot: _Slot) -> list[Step]:
        batch = None
        if state.finished:
            names = tuple(s.open.name for s in state.slots)
            batch = Batch(len(names), key[1], names)
        call = slot.open.whole()
        slot.asking = self._judge.judge(call, jsontext.render_text(slot.open.entry()), batch)
        return self._resume(key, slot, None)

    def _resume(self, key: Key, slot: _Slot, given: bool | None) -> list[Step]:
        assert slot.asking is not None
        try:
            return [Asked(key, slot.asking.send(given))]  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            slot.judged, slot.asking = stop.value, None
            return []

    def _release(self, index: int, state: _ChoiceState) -> list[Step]:
        """Let go the calls that nothing to come can change, in the model's order."""
        while state.released < state.cursor:
            slot = state.slots[state.released]
            assert slot.judged is not None
            if slot.judged.held:
                slot.dropped, slot.freed = True, slot.freed or self._now
            elif self._waits(index, slot, slot.judged) or slot.known:
                break
            elif slot.known is None:
                return self._look_up(index, slot)
            else:
                slot.out_index, slot.freed = state.surfaced, self._now
                state.surfaced += 1
            state.released += 1
        return []

    @staticmethod
    def _look_up(index: int, slot: _Slot) -> list[Step]:
        if slot.looked_up:
            return []
        slot.looked_up = True
        return [LookUp((index, slot.open.ordinal), slot.open.call_id)]

    def _waits(self, index: int, slot: _Slot, judged: Judged) -> bool:
        """Whether a call that goes ahead has to wait for the decision of its whole batch."""
        turn = self._turn_of(index)
        if turn.closing or judged.verdict.deferred or judged.lanes:
            return True
        if not self._judge.could_hold and not turn.rounds:
            return False
        ends = self._judge.chain.ends_turns or turn.denied >= self._bounds.stop_after
        return ends or is_weak_id(slot.open.whole()) or slot.open.call_id in self._used_ids

    def _conclude(self, index: int, state: _ChoiceState) -> list[Step]:
        turn = self._turn_of(index)
        if not state.slots and not turn.rounds and not turn.closing:
            state.concluded = True
            return self._finished(index, state, {})
        batch = tuple(self._settled(slot)[0] for slot in state.slots)
        conclusion = conclude(
            batch, cut=state.cut, closing=turn.closing, denied=turn.denied, stop_after=self._bounds.stop_after
        )
        if conclusion.end in (End.PASS, End.SPLIT):
            open_slots = [s for s in state.slots if s.known is None and s.judged and not s.judged.held]
            if open_slots:
                return [step for slot in open_slots for step in self._look_up(index, slot)]
        state.concluded = True
        known = frozenset(s.open.call_id for s in state.slots if s.known)
        held_for = tuple(self._settled(slot)[1] for slot in state.slots)
        finish = state.finish.choice.get("finish_reason") if state.finish else None
        return [Ended(index, conclusion, batch, state.assembler.message, known, held_for, finish)]

    def _settled(self, slot: _Slot) -> tuple[Judged, float]:
        assert slot.judged is not None
        entry = jsontext.render_text(slot.open.entry())
        freed = slot.freed if slot.freed is not None else self._now
        return replace(slot.judged, call=slot.open.whole(), raw=entry), max(0.0, freed - slot.since)

    def _cut_short(self) -> list[Step]:
        """The stream ended: choices without a finish reason were cut off."""
        steps: list[Step] = []
        for index, state in self._choices.items():
            if not state.finished:
                state.finished = state.cut = True
                steps += self._advance(index, state)
        return steps

    # -- what goes out

    def _drop(self, index: int, state: _ChoiceState) -> list[Step]:
        for slot in state.slots:
            slot.dropped = slot.out_index is None
        return self._flush(index, state, everything=True)

    def _flush(self, index: int, state: _ChoiceState, *, everything: bool = False) -> list[Step]:
        """Send the events whose calls are all decided; the others keep their order and wait."""
        steps: list[Step] = []
        kept: list[_Held] = []
        for held in state.queue:
            slots = [state.slots[f.ordinal] for f in held.fragments]
            if not everything and not all(s.dropped or s.out_index is not None for s in slots):
                kept.append(held)
                continue
            data = self._emit(index, state, held)
            steps += [Send(data)] if data else []
        state.queue = kept
        return steps

    def _finished(self, index: int, state: _ChoiceState, changes: dict[Path, bytes | None]) -> list[Step]:
        state.done = True
        steps: list[Step] = []
        if state.finish is not None:
            data = self._emit(index, state, state.finish, more=changes)
            steps += [Send(data)] if data else []
        elif changes:
            steps.append(Send(self._lead.chunk(index, {}, "stop")))
        steps += [Send(data) for data in state.after]
        return [*steps, *self._release_tail()]

    def _apart(self, event: Event) -> list[Step]:
        """An event that belongs to no choice: it passes, but not before the end of a turn that came before it."""
        if any(s.finished and not s.done for s in self._choices.values()):
            self._tail.append(event)
            return []
        return self._pass_apart(event)

    def _release_tail(self) -> list[Step]:
        if any(s.finished and not s.done for s in self._choices.values()):
            return []
        tail, self._tail = self._tail, []
        return [step for event in tail if isinstance(event, Event) for step in self._pass_apart(event)]

    def _pass_apart(self, event: Event) -> list[Step]:
        """Of an answer with hidden rounds, usage and the last event are kept: they come once, at its very end."""
        if self._lead.rounds == 1 or event.data is None:
            return [Send(event.raw)]
        if event.data.strip() == b"[DONE]":
            self._lead.done_event = event
            return []
        value = _read(event.data)
        if value is None:
            return [Send(event.raw)]
        if isinstance(value.get("usage"), dict):
            self._lead.usage_event = event
            return []
        changes = self._as_first(value)
        return [Send(event.with_data(jsontext.edit(event.data, changes)) if changes else event.raw)]

    def _as_first(self, value: dict[str, Any]) -> dict[Path, bytes | None]:
        """The changes that give an event the id and time of the first answer."""
        first = self._lead.envelope
        return {
            (k,): jsontext.render(first[k])
            for k in ("id", "created")
            if value.get(k) and k in first and value[k] != first[k]
        }

    def _emit(
        self, index: int, state: _ChoiceState, held: _Held, *, more: dict[Path, bytes | None] | None = None
    ) -> bytes | None:
        """An event as the client gets it: its own bytes where nothing has to change, None where nothing is left."""
        assert held.event.data is not None
        changes = {**self._call_changes(state, held), **self._turn_changes(index, state, held), **(more or {})}
        role = held.delta.get("role")
        if not changes:
            self._lead.seen.update((k, v) for k, v in held.value.items() if k in _SAID_ONCE)
            if role:
                self._lead.role_sent.add(index)
            return held.event.raw
        if held.value.get("obfuscation"):
            changes["obfuscation",] = None
        if not self._says_something(index, held, changes):
            return None
        if role:
            self._lead.role_sent.add(index)
        return held.event.with_data(jsontext.edit(held.event.data, changes))

    def _call_changes(self, state: _ChoiceState, held: _Held) -> dict[Path, bytes | None]:
        """The changes to the call entries of an event."""
        below: Path = ("choices", held.at, "delta")
        entries: list[bytes] = []
        changes: dict[Path, bytes | None] = {}
        changed = False
        for fragment in held.fragments:
            raw = self._entry(held, fragment)
            now = self._entry_now(state, state.slots[fragment.ordinal], fragment, raw=raw)
            changed = changed or now != raw
            if fragment.position is None:
                changes |= {(*below, "function_call"): now} if now != raw else {}
            elif now is not None:
                entries.append(now)
        if changed and any(f.position is not None for f in held.fragments):
            changes[(*below, "tool_calls")] = jsontext.array(entries) if entries else None
        return changes

    @staticmethod
    def _entry(held: _Held, fragment: Fragment) -> bytes:
        assert held.event.data is not None
        place = ("function_call",) if fragment.position is None else ("tool_calls", fragment.position)
        return jsontext.raw(held.event.data, ("choices", held.at, "delta", *place)) or b"{}"

    @staticmethod
    def _entry_now(state: _ChoiceState, slot: _Slot, fragment: Fragment, *, raw: bytes) -> bytes | None:
        """A fragment as the client gets it; None: not at all."""
        if slot.dropped or slot.out_index is None or slot.sent_whole:
            return None
        assert slot.judged is not None
        if slot.whole:
            slot.sent_whole = True
            entry = jsontext.render(slot.open.entry())
            text = slot.judged.verdict.text
            entry = edited_call(entry, slot.open.whole(), call_id=slot.given_id, text=text)
            if fragment.position is None:
                return entry
            return jsontext.edit(entry, {("index",): jsontext.render(slot.out_index)})
        if fragment.position is None or not any(s.dropped or s.sent_whole for s in state.slots[: slot.open.ordinal]):
            return raw
        value = jsontext.parse_own(raw)
        changes: dict[Path, bytes | None] = {}
        if value.get("index") != slot.out_index:
            changes["index",] = jsontext.render(slot.out_index)
        if not fragment.opens:  # said again, which readers would add up
            changes |= {(k,): None for k in ("id", "type") if k in value}
            changes |= {("function", "name"): None} if "name" in (value.get("function") or {}) else {}
        return jsontext.edit(raw, changes)

    def _turn_changes(self, index: int, state: _ChoiceState, held: _Held) -> dict[Path, bytes | None]:
        """The changes that make an event of a later round one of the first answer."""
        changes: dict[Path, bytes | None] = {}
        turn, delta = self._turn_of(index), held.delta
        content = delta.get("content")
        if turn.texts and content and state.assembler.message.get("content") == content:
            changes["choices", held.at, "delta", "content"] = jsontext.render("\n\n" + content)
        if self._lead.rounds == 1 and self._only is None:
            return changes
        changes |= self._as_first(held.value)
        if held.choice.get("index") != index:
            changes["choices", held.at, "index"] = jsontext.render(index)
        if index in self._lead.role_sent and "role" in delta:
            changes["choices", held.at, "delta", "role"] = None
        if isinstance(held.value.get("usage"), dict):
            changes["usage",] = jsontext.render(added_usage(self._lead.usage, held.value["usage"]))
        return changes

    def _says_something(self, index: int, held: _Held, changes: dict[Path, bytes | None]) -> bool:
        """Whether a changed event still tells the client anything."""
        below: Path = ("choices", held.at, "delta")
        for key, value in held.delta.items():
            gone = (*below, key) in changes and changes[(*below, key)] is None
            if value not in (None, "", []) and not gone and (key != "role" or index not in self._lead.role_sent):
                return True
        finish = changes.get(("choices", held.at, "finish_reason"), jsontext.render(held.choice.get("finish_reason")))
        if finish != b"null" or (held.value.get("usage") and changes.get(("usage",), b"") is not None):
            return True
        if any(v for k, v in held.choice.items() if k not in ("index", "delta", "finish_reason", "logprobs")):
            return True
        new = {k: v for k, v in held.value.items() if k not in _ENVELOPE and v and self._lead.seen.get(k) != v}
        self._lead.seen.update(new)
        return bool(new)


_ENVELOPE = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_SAID_ONCE = frozenset({"system_fingerprint", "service_tier", "provider"})


def _has_call(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return isinstance(delta, dict) and bool(delta.get("tool_calls") or delta.get("function_call"))


def _read(data: bytes) -> dict[str, Any] | None:
    """An event's data as an object; by a reader that forgives where a strict one cannot."""
    try:
        value = jsontext.parse(data)
    except ValueError:
        try:
            value = jsontext.parse_lenient(data)
            jsontext.raw(data)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _too_long(what: str, most: int) -> UpstreamError:
    return UpstreamError(f"{what} is longer than the limit of {most}.", kind="protocol", code="limit_exceeded")
