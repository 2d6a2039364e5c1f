"""A chat stream on its way to the client: text passes at once, calls wait for their decisions.

`ChatStream` takes the bytes of one answer of the upstream and gives steps: bytes to send, questions that only the
shell can answer, and the end of each choice, where the shell saves what has to be saved before the filter is
told how to go on (`surface`, `end_with`, `hide`). It never waits by itself, and an event without a tool call
is part of the steps of the very `feed` that completed it, except behind a question of the same bytes: then it
comes with the answer, or with `go_on` where that takes its time. Events that need no change go on as the bytes
they came as.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.core import jsontext
from proxy.core.exchange.chat_choice import ChoiceState, HeldEvent, Slot, spoken_apart
from proxy.core.exchange.chat_events import Lead, Outgoing, without_end
from proxy.core.exchange.chat_reading import (
    apart,
    check_apart,
    check_once,
    choices_of,
    delta_of,
    has_call,
    has_message,
    has_stray_call,
    read_event,
    without_calls,
)
from proxy.core.exchange.deciding import Decisions
from proxy.core.exchange.intake import Intake
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged
from proxy.core.exchange.steps import Key, Send, Step, StreamLimits, too_long
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Reply
from proxy.core.protocol.assembly import Fragment
from proxy.core.protocol.completion import CUT_SHORT
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError


class ChatStream(Intake):
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
        super().__init__(Decisions(judge, bounds, used_ids), limits)
        self._judge = judge
        self._lead = lead
        self._turn_of = turn_of
        self._outgoing = Outgoing(lead, only)
        self._only = only
        self._tail: list[Event] = []
        self._choices: dict[int, ChoiceState] = {}
        self.usage: Any = None  # what this answer used, as far as it said
        self._over = False
        self.failed = False  # the upstream sent an error event

    # -- what the shell tells

    @property
    def held_bytes(self) -> int:
        """Bytes and characters of calls, and of events that wait, that are kept from the client at the moment."""
        return sum(state.held_bytes for state in self._choices.values()) + self._splitter.pending

    @property
    def kept_bytes(self) -> int:
        """The same with the text that is remembered of what the client has already."""
        return self.held_bytes + sum(state.assembler.said for state in self._choices.values())

    @property
    def broken_off(self) -> bool:
        """Whether the answer, when its body has ended, had no end: neither a last event nor the finish of what it
        said."""
        if self._over:
            return False
        states = self._choices.values()
        open_ones = [s for s in states if s.finish is None and not s.closed_by_us]
        return len(open_ones) == len(states) or any(s.slots or s.assembler.said for s in open_ones)

    @property
    def over(self) -> bool:
        """Whether every choice has ended, so that nothing but usage and the last event can come."""
        return self._over or (bool(self._choices) and all(s.finished for s in self._choices.values()))

    def answer(self, key: Key, given: Reply, now: float) -> list[Step]:
        """What the world said to a question."""
        self._decisions.now = now
        state = self._choices[key[0]]
        slot = state.slots[key[1]]
        return self._answered([*self._decisions.resume(key, slot, given), *self._advance(key[0], state)])

    def known(self, key: Key, found: bool, now: float) -> list[Step]:
        """Whether the ledger has the id of a call already."""
        self._decisions.now = now
        state = self._choices[key[0]]
        state.slots[key[1]].known = found
        return self._answered(self._advance(key[0], state))

    def surface(self, index: int, conclusion: Conclusion, ids: Sequence[str | None]) -> list[Step]:
        """Let a choice end with the calls of stage 0, under these ids (None: its own)."""
        state = self._choices[index]
        state.number(conclusion, ids)
        steps = self._flush(index, state, everything=True)
        return self._answered([*steps, *self._finished(index, state, {})])

    def end_with(self, index: int, text: str) -> list[Step]:
        """Let a choice end without calls; `text` comes behind what it said."""
        state = self._choices[index]
        steps = self._drop(index, state)
        changes: dict[Path, bytes | None] = {}
        if state.finish is not None:
            changes["choices", state.finish.at, "finish_reason"] = b'"stop"'
            if text and state.finish.speech:  # the end itself says something, which comes first
                spoken, state.finish = state.finish.spoken()
                steps += self._send(index, state, spoken, more=without_end(spoken))
        if text:
            if state.assembler.speaks or self._turn_of(index).texts:
                text = "\n\n" + text
            steps.append(Send(self._lead.chunk(index, {"content": text})))
        if state.finish is None:
            steps.append(Send(self._lead.chunk(index, {}, "stop")))
        state.closed_by_us = True
        return self._answered([*steps, *self._finished(index, state, changes)])

    def hide(self, index: int) -> list[Step]:
        """Keep the end of a choice from the client: the turn goes on with another answer."""
        state = self._choices[index]
        steps = self._drop(index, state)
        if state.finish is not None:
            steps += self._send(index, state, state.finish, more=without_end(state.finish))
        state.done = state.hidden = True
        self._lead.rounds += self._lead.rounds == 1
        return self._answered([*steps, *state.after, *self._release_tail()])

    def abandon(self) -> list[tuple[Judged, float]]:
        """The calls that were decided in choices that never ended, with the seconds that each was held."""
        states = (s for s in self._choices.values() if not s.concluded)
        return [
            slot.settled(self._decisions.now) for state in states for slot in state.slots if slot.judged is not None
        ]

    # -- events

    @property
    def _may_be_followed(self) -> bool:
        return self._lead.rounds > 1

    def _event(self, event: Event) -> list[Step]:
        check_apart(event)
        if event.data is None:
            return self._apart(event)
        if event.data.strip() == b"[DONE]":
            steps = self._cut_short()
            self._over = True
            return [*steps, *self._apart(event)]
        self._check(event)
        value = read_event(event.data)
        if self._judge.could_hold:
            check_once(event.data)
        if value is None:
            return self._apart(event)
        if value.get("error"):
            return self._error(event, value)
        choices = value.get("choices")
        if self._judge.could_hold and has_stray_call(event.data, value):
            if self.over:
                return []
            raise UpstreamError("An event of the stream has a tool call where none has its place.", kind="protocol")
        self._lead.learn(value)
        if not isinstance(choices, list) or not any(isinstance(c, dict) for c in choices):
            self._note_usage(value)
            return self._apart(event)
        if self._over:  # no client reads on behind the end; no call stands there
            return [] if any(map(has_call, choices_of(value))) or self._lead.rounds > 1 else [Send(event.raw)]
        if len(choices) > 1:
            return self._several(event, value)
        self._note_usage(value)
        return self._one(event, value)

    def _note_usage(self, value: dict[str, Any]) -> None:
        if isinstance(value.get("usage"), dict):
            self.usage = value["usage"]

    def _error(self, event: Event, value: dict[str, Any]) -> list[Step]:
        """The upstream failed in the middle of its answer: what was held goes no further, its word does."""
        self.failed = True
        for state in self._choices.values():
            state.fail()
        self._over = True
        return [Send(without_calls(event, value))]

    def _several(self, event: Event, value: dict[str, Any]) -> list[Step]:
        """An event for several choices, as one event for each where that makes a difference."""
        choices = choices_of(value)
        told = any(c.get("finish_reason") or has_call(c) for c in choices)
        if self._only is None and not told and not any(state.finished for state in self._choices.values()):
            steps: list[Step] = []
            for choice in choices:
                index, _ = self._take(event, value, choice)
                steps += self._speak(index, self._choices[index])
                self._lead.role_sent |= {index} if delta_of(choice).get("role") else set()
            self._note_usage(value)
            return [*steps, Send(event.raw)]
        self._backlog.extendleft(reversed(apart(event)))
        return []

    def _take(self, event: Event, value: dict[str, Any], choice: dict[str, Any]) -> tuple[int, tuple[Fragment, ...]]:
        """Put a choice's delta to what came before; its index, and what its entries belong to."""
        index = choice.get("index")
        index = self._only if self._only is not None else index if isinstance(index, int) else 0
        if index not in self._choices:
            self._choices[index] = ChoiceState(parted=bool(self._turn_of(index).texts))
        state = self._choices[index]
        delta, at = delta_of(choice), value["choices"].index(choice)

        def raw_of(path: Path) -> str:
            assert event.data is not None
            return (jsontext.raw(event.data, ("choices", at, "delta", *path)) or b"").decode("utf-8", "replace")

        fragments = tuple(state.assembler.add(delta, raw_of))
        state.assembler.remember_at_most(self._limits.held_bytes)
        for call in state.assembler.calls[len(state.slots) :]:
            state.slots.append(Slot(call, since=self._decisions.now))
        for fragment in fragments:
            state.slots[fragment.ordinal].fragments += 1
        if len(state.slots) > self._limits.batch_calls:
            raise too_long("A batch of calls", self._limits.batch_calls)
        return index, fragments

    def _one(self, event: Event, value: dict[str, Any]) -> list[Step]:
        at, choice = next((i, c) for i, c in enumerate(value["choices"]) if isinstance(c, dict))
        if self._only is not None and choice.get("index") not in (None, 0):
            return []  # a continuation asks for one choice, and some upstreams give more
        index, fragments = self._take(event, value, choice)
        state = self._choices[index]
        gone: tuple[Path, ...] = (("choices", at, "message"),) if self._judge.could_hold and has_message(choice) else ()
        held = HeldEvent(event, value, at, fragments, gone)
        finish = choice.get("finish_reason")
        if state.finished:
            return self._behind_the_end(index, state, held)
        if finish:
            state.finish, state.finished, state.cut = held, True, finish in CUT_SHORT
            return self._advance(index, state)
        if not fragments:
            return [*self._speak(index, state), *self._send(index, state, held)]
        state.push(held)
        state.close_earlier(fragments)
        return self._advance(index, state)

    def _behind_the_end(self, index: int, state: ChoiceState, held: HeldEvent) -> list[Step]:
        """An event of a choice that has ended already: what it says of itself passes, a call does not."""
        if held.fragments:
            return []
        more = without_end(held) if state.hidden else {}
        if state.closed_by_us and held.choice.get("finish_reason"):
            more["choices", held.at, "finish_reason"] = b"null"
        steps = self._send(index, state, held, more=more)
        if not state.done:
            state.after += steps
            return []
        return steps

    # -- decisions

    def _advance(self, index: int, state: ChoiceState) -> list[Step]:
        """Judge what can be judged, let go what may go, and conclude when nothing is open any more."""
        asked = self._decisions.judge(index, state)
        asked += self._decisions.release(index, state, self._turn_of(index))
        steps = self._flush(index, state) + asked  # what an answer brings comes behind what goes out now
        if state.finished and not state.concluded and state.all_judged:
            steps += self._conclude(index, state)
        return steps

    def _conclude(self, index: int, state: ChoiceState) -> list[Step]:
        turn = self._turn_of(index)
        if not state.slots and not turn.rounds and not turn.closing:
            state.concluded = True
            return self._finished(index, state, {})
        found = self._decisions.conclude(index, state, turn)
        if isinstance(found, list):
            return found
        batch, conclusion = found
        if state.assembler.lost and (turn.rounds or conclusion.end in (End.SPLIT, End.CONTINUE)):
            raise too_long("What a turn with held calls says", self._limits.held_bytes)
        state.concluded = True
        return [state.ended(index, conclusion, batch, now=self._decisions.now)]

    def _cut_short(self) -> list[Step]:
        """The stream ended: choices without a finish reason were cut off."""
        steps: list[Step] = []
        for index, state in self._choices.items():
            if not state.finished:
                state.finished = state.cut = True
                steps += self._advance(index, state)
        return steps

    # -- what goes out

    def _drop(self, index: int, state: ChoiceState) -> list[Step]:
        state.drop()
        return self._flush(index, state, everything=True)

    def _flush(self, index: int, state: ChoiceState, *, everything: bool = False) -> list[Step]:
        """Send the events whose calls are all decided; the others keep their order and wait."""
        steps: list[Step] = []
        events, kept = state.to_look_through(everything=everything)
        for held in events:
            if not everything and not state.is_decided(held):
                kept.append(held)
                continue
            if held.speech:
                said, kept = self._said(index, state, kept)
                steps += said
            steps += self._send(index, state, held)
        if events:
            state.requeue(kept)
        return steps

    def _speak(self, index: int, state: ChoiceState) -> list[Step]:
        """Send what events that wait for a call say beside it, so that text keeps its order and waits for nothing."""
        if not state.queue:
            return []
        steps, queue = self._said(index, state, state.queue)
        state.requeue(queue)
        return steps

    def _said(self, index: int, state: ChoiceState, waiting: list[HeldEvent]) -> tuple[list[Step], list[HeldEvent]]:
        speeches, left = spoken_apart(waiting)
        return [step for speech in speeches for step in self._send(index, state, speech)], left

    def _send(
        self, index: int, state: ChoiceState, held: HeldEvent, *, more: dict[Path, bytes | None] | None = None
    ) -> list[Step]:
        data = self._outgoing.emit(index, state, held, more=more)
        return [Send(data)] if data else []

    def _finished(self, index: int, state: ChoiceState, changes: dict[Path, bytes | None]) -> list[Step]:
        state.done = True
        steps = self._send(index, state, state.finish, more=changes) if state.finish is not None else []
        return [*steps, *state.after, *self._release_tail()]

    def _apart(self, event: Event) -> list[Step]:
        """An event that belongs to no choice: it passes, but not before the end of a turn that came before it."""
        self._tail.append(event)
        return self._release_tail()

    def _release_tail(self) -> list[Step]:
        if any(s.finished and not s.done for s in self._choices.values()):
            return []
        passing, self._tail = [self._outgoing.apart(event) for event in self._tail], []
        return [Send(data) for data in passing if data]
