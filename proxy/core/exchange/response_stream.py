"""A response's stream on its way to the client: text passes at once, calls wait for their decisions.

`ResponseStream` takes the bytes of one answer of the upstream and gives steps, as `ChatStream` does for chat
completions. Items are numbered here, so that an item behind a call that is not decided waits for it; and what clients
act on, a call's whole text and its whole item, waits for the end of the turn wherever a call could be held: by then the
shell has saved what has to be saved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from proxy.core import jsontext
from proxy.core.exchange.chat_reading import check_once
from proxy.core.exchange.deciding import Decisions
from proxy.core.exchange.intake import Intake
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged, check_approvals
from proxy.core.exchange.response_outgoing import (
    Outgoing,
    ResponseLead,
    final_output,
    shown_items,
    unstreamed,
)
from proxy.core.exchange.response_reading import (
    BEGINNINGS,
    ENDS,
    check_apart,
    has_loose_text,
    hides_call,
    may_be_call,
    part_of,
    read_event,
    text_at,
    type_of,
)
from proxy.core.exchange.response_state import HeldEvent, ResponseState
from proxy.core.exchange.steps import Ended, Key, Send, Step, StreamLimits, too_long
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Reply
from proxy.core.protocol.completion import added_usage
from proxy.core.protocol.response_answer import is_cut_short
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.response_items import message_item
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError


class ResponseStream(Intake):
    """One answer of the upstream. `hosted` are tools that the upstream runs itself."""

    def __init__(
        self,
        judge: Judge,
        lead: ResponseLead,
        *,
        turn: ChoiceTurn,
        bounds: Bounds,
        limits: StreamLimits,
        used_ids: frozenset[str],
        hosted: Collection[str] = (),
    ) -> None:
        super().__init__(Decisions(judge, bounds, used_ids), limits)
        self._judge = judge
        self._lead = lead
        self._turn = turn
        self._hosted = frozenset(hosted)
        self._outgoing = Outgoing(lead, self._hosted, anew=judge.could_hold or lead.rounds > 1)
        self._state = ResponseState(strict=judge.could_hold, hosted=self._hosted, most=limits.held_bytes)
        self._tail: list[HeldEvent] = []
        self._done = False
        self._hidden = False
        self._closed = False  # a last event was sent, though no end of the response: the upstream's word or our own
        self._bare = False  # the last event showed no response
        self.over = False
        self.failed = False  # the upstream sent an error event
        self.usage: Any = None  # what this answer used, as far as it said
        self.response: dict[str, Any] = {}  # the response as the upstream showed it last

    # -- what the shell tells

    @property
    def broken_off(self) -> bool:
        """Whether the answer, when its body has ended, had no end: no last event of any kind."""
        return not (self._closed or self.failed) and self._state.finish is None

    @property
    def held_bytes(self) -> int:
        return self._state.held_bytes + self._splitter.pending

    @property
    def kept_bytes(self) -> int:
        """The same with the items that are remembered, though the client has them."""
        return self.held_bytes + self._state.remembered

    def answer(self, key: Key, given: Reply, now: float) -> list[Step]:
        """What the world said to a question."""
        self._decisions.now = now
        return self._answered([*self._decisions.resume(key, self._state.slots[key[1]], given), *self._advance()])

    def known(self, key: Key, found: bool, now: float) -> list[Step]:
        """Whether the ledger has the id of a call already."""
        self._decisions.now = now
        self._state.slots[key[1]].known = found
        return self._answered(self._advance())

    def surface(self, index: int, conclusion: Conclusion, ids: Sequence[str | None]) -> list[Step]:
        """Let the turn end with the calls of stage 0, under these ids (None: their own)."""
        self._state.number(conclusion, ids)
        return self._answered([*self._flush(everything=True), *self._finished()])

    def end_with(self, index: int, text: str) -> list[Step]:
        """Let the turn end without calls; `text` comes as a message of its own behind what it said."""
        self._state.drop()
        steps = self._flush(everything=True)
        if not text:
            return self._answered([*steps, *self._finished()])
        own = jsontext.render(message_item(text, own_message_id(text_at(self.response, "id"))))
        more = unstreamed(self._state)
        steps += [Send(self._lead.item(raw)) for raw in (*more, own)]
        return self._answered([*steps, *self._finished(own)])

    def hide(self, index: int) -> list[Step]:
        """Keep the end from the client: the turn goes on with another answer."""
        self._state.drop()
        steps = self._flush(everything=True)
        self._lead.items += shown_items(self._state)
        if more := unstreamed(self._state):
            steps.append(Send(self._lead.show(more)))
        self._done = self._hidden = True
        return self._answered([*steps, *self._release_tail()])

    def abandon(self) -> list[tuple[Judged, float]]:
        """The calls that were decided in an answer that never ended, with the seconds that each was held."""
        slots = [] if self._state.concluded else [s for s in self._state.slots if s.judged is not None]
        return [slot.settled(self._decisions.now) for slot in slots]

    def layout(self) -> tuple[bytes | int, ...]:
        """The output of this answer as the upstream gave it; a number stands for a call of the batch."""
        return self._state.layout()

    # -- events

    @property
    def _may_be_followed(self) -> bool:
        return self._lead.rounds > 1 or self._hidden or (bool(self._state.slots) and not self.over)

    def _event(self, event: Event) -> list[Step]:
        check_apart(event)
        if event.data is None:
            return self._apart(HeldEvent(event, {}, ""))
        if event.data.strip() == b"[DONE]":
            steps = self._cut_short()
            self.over = self._closed = True
            return [*steps, *self._apart(HeldEvent(event, {}, ""))]
        self._check(event)
        value = read_event(event.data)
        if self._judge.could_hold:
            check_once(event.data)
        if value is None:
            return self._apart(HeldEvent(event, {}, ""))
        kind = type_of(event, value)
        if self.over:
            return self._behind_the_end(HeldEvent(event, value, kind))
        return self._read(event, value, kind)

    def _read(self, event: Event, value: dict[str, Any], kind: str) -> list[Step]:
        """An event of a response that goes on."""
        held, response, item = HeldEvent(event, value, kind), value.get("response"), value.get("item")
        is_error = kind == "error" or bool(value.get("error") and not isinstance(response, dict))
        out_of_place = (is_error or kind in ENDS) and may_be_call(item, self._hosted)
        if self._judge.could_hold and (out_of_place or has_loose_text(kind, value) or self._hides_call(held)):
            raise UpstreamError("A tool call stands in an event that has no place for one.", kind="protocol")
        if is_error:
            return self._error(held)
        if isinstance(response, dict):
            self._learn(response)
        if kind in ENDS:
            return self._end(held)
        if isinstance(response, dict) and not isinstance(item, dict) and not part_of(kind)[1]:
            again = self._lead.rounds > 1 and kind in BEGINNINGS
            return [] if again else self._send(held)
        return self._of_item(event, value, kind)

    def _learn(self, response: dict[str, Any]) -> None:
        self._lead.learn(response)
        self.response = response
        if isinstance(response.get("usage"), dict):
            self.usage = response["usage"]

    def _of_item(self, event: Event, value: dict[str, Any], kind: str) -> list[Step]:
        state = self._state
        held = state.take(event, value, kind=kind, now=self._decisions.now)
        if held is None:
            return []
        if len(state.slots) > self._limits.batch_calls:
            raise too_long("A batch of calls", self._limits.batch_calls)
        item = held.item
        if item is None or (item.call is None and item.out_index is not None):
            return self._send(held)
        state.push(held)
        return self._advance()

    def _error(self, held: HeldEvent) -> list[Step]:
        """The upstream failed in the middle of its answer: what was held goes no further, its word does."""
        self.failed = self.over = self._done = True
        self._state.fail()
        return self._send(held)

    def _end(self, held: HeldEvent) -> list[Step]:
        state = self._state
        if not isinstance(held.value.get("response"), dict) and (state.slots or self._lead.rounds > 1):
            held = self._with_response(held)
        response = held.value.get("response")
        response = response if isinstance(response, dict) else {}
        self.over = True
        state.finish, state.finished = held, True
        state.cut = held.kind != "response.completed" or is_cut_short(response)
        raws = jsontext.elements(held.event.data or b"", ("response", "output"))
        state.take_list(response.get("output"), raws, self._decisions.now)
        if len(state.slots) > self._limits.batch_calls:
            raise too_long("A batch of calls", self._limits.batch_calls)
        return self._advance()

    def _with_response(self, held: HeldEvent) -> HeldEvent:
        """The last event with what is known of the response, where it shows none and its output has to be told."""
        self._bare = True
        known = {**self._lead.envelope, "status": held.kind.removeprefix("response."), "output": []}
        data = jsontext.edit(held.event.data or b"", {("response",): jsontext.render(known)})
        return replace(held, event=Event(held.event.with_data(data), data), value={**held.value, "response": known})

    def _cut_short(self) -> list[Step]:
        if self._state.finished:
            return []
        self._state.finished = self._state.cut = self.over = True
        return self._advance()

    def _behind_the_end(self, held: HeldEvent) -> list[Step]:
        """An event of a response that has ended: no client reads on, and no call stands there. What an upstream says
        of a failure it often says twice."""
        if held.kind in ENDS and self.failed:
            return self._send(replace(held, kind=""))  # as one that is no end: it shows no call
        shown = (held.value.get("item"), held.value.get("response"))
        beside = part_of(held.kind)[1] or any(isinstance(value, dict) for value in shown)
        if beside or self._lead.rounds > 1 or self._hidden or self._hides_call(held):
            return []
        return self._apart(held)

    def _hides_call(self, held: HeldEvent) -> bool:
        return hides_call(held.event, held.value, self._hosted)

    # -- decisions

    def _advance(self) -> list[Step]:
        """Judge what can be judged, let go what may go, and conclude when nothing is open any more."""
        state = self._state
        asked = self._decisions.judge(0, state)
        asked += self._decisions.release(0, state, self._turn)
        steps = self._flush() + asked  # what an answer brings comes behind what goes out now
        if state.finished and not state.concluded and state.all_judged and not self.failed:
            steps += self._conclude()
        return steps

    def _conclude(self) -> list[Step]:
        state, turn = self._state, self._turn
        if not (state.slots or turn.rounds or turn.closing or turn.settles):
            state.concluded = True
            return self._finished()
        found = self._decisions.conclude(0, state, turn)
        if isinstance(found, list):
            return found
        batch, conclusion = found
        check_approvals(batch if self._judge.could_hold else ())
        if state.is_forgotten and (turn.rounds or conclusion.end in (End.SPLIT, End.CONTINUE)):
            raise too_long("What a turn with held calls says", self._limits.held_bytes)
        state.concluded = True
        known = frozenset(str(slot.whole().call_id) for slot in state.slots if slot.known)
        held_for = tuple(slot.settled(self._decisions.now)[1] for slot in state.slots)
        status = self.response.get("status") if state.finish is not None else None
        return [Ended(0, conclusion, batch, {}, known, held_for, status if isinstance(status, str) else None)]

    # -- what goes out

    def _place(self) -> None:
        self._lead.places = self._state.place(self._lead.places)

    def _flush(self, *, everything: bool = False) -> list[Step]:
        """Send the events whose items have their places; the others keep their order and wait."""
        self._place()
        going = self._state.going(self._may_go, everything=everything)
        return [step for held in going for step in self._send(held)]

    def _may_go(self, held: HeldEvent) -> bool:
        """Whether an event's item has its place, and nothing is left to be saved before it."""
        assert held.item is not None
        if held.item.gone:
            return True
        return held.item.out_index is not None and not (held.is_acted_on and self._judge.could_hold)

    def _send(self, held: HeldEvent, more: dict[Path, bytes | None] | None = None, name: str = "") -> list[Step]:
        data = self._outgoing.emit(held, more, name=name)
        return [Send(data)] if data else []

    def _finished(self, own: bytes | None = None) -> list[Step]:
        """The end of the response; `own` is the message that closes it."""
        self._done = True
        output = final_output(self._state, self._lead.items, [] if own is None else [own])
        held = self._state.finish
        if held is None:
            usage = added_usage(self._lead.usage, self.usage)
            self._closed = self._closed or own is not None
            steps: list[Step] = [Send(self._lead.end(jsontext.array(output or []), usage))] if own is not None else []
            return [*steps, *self._release_tail()]
        if output is None and self._bare:
            output = shown_items(self._state)
        changes: dict[Path, bytes | None] = {}
        if output is not None:
            changes["response", "output"] = jsontext.array(output)
        name = ""
        if own is not None and self.response.get("status") not in (None, "completed"):
            changes["response", "status"] = b'"completed"'
            for key in ("error", "incomplete_details"):
                changes |= {("response", key): b"null"} if self.response.get(key) else {}
        if own is not None and held.kind != "response.completed":
            name = "response.completed"
        return [*self._send(held, changes, name), *self._release_tail()]

    def _apart(self, held: HeldEvent) -> list[Step]:
        """An event that belongs to nothing: it passes, but not before the end of a turn that came before it."""
        self._tail.append(held)
        return self._release_tail()

    def _release_tail(self) -> list[Step]:
        if self._state.finished and not self._done:
            return []
        passing, self._tail = self._tail, []
        steps: list[Step] = []
        for held in passing:
            if held.value:
                steps += self._send(held)
            elif not (self._hidden and (held.event.data or b"").strip() == b"[DONE]"):
                steps.append(Send(held.event.raw))
        return steps
