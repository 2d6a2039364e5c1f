"""What of a stream's events goes out: as it came, changed where something has to change, or not at all.

Which call may go is decided in `chat_stream.py`; here an event is made of that decision. Calls are numbered
without gaps, a changed call is sent in one piece, and an event from which calls were taken is sent on only if
it still tells the client something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.exchange.chat_choice import ChoiceState, HeldEvent, Slot
from proxy.core.exchange.chat_reading import read_event
from proxy.core.jsontext import Path
from proxy.core.protocol.assembly import Fragment
from proxy.core.protocol.completion import added_usage, edited_call
from proxy.core.protocol.sse import Event, render


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


class Outgoing:
    """The events of one answer on their way out. `only` is the client's index of the choice of a continuation."""

    def __init__(self, lead: Lead, only: int | None) -> None:
        self._lead = lead
        self._only = only

    def apart(self, event: Event) -> bytes | None:
        """An event that belongs to no choice. Of an answer with hidden rounds, usage and the last event are kept: they
        come once, at its very end."""
        if self._lead.rounds == 1 or event.data is None:
            return event.raw
        if event.data.strip() == b"[DONE]":
            self._lead.done_event = event
            return None
        value = read_event(event.data)
        if value is None:
            return event.raw
        if isinstance(value.get("usage"), dict):
            self._lead.usage_event = event
            return None
        changes = self.as_first(value)
        return event.with_data(jsontext.edit(event.data, changes)) if changes else event.raw

    def as_first(self, value: dict[str, Any]) -> dict[Path, bytes | None]:
        """The changes that give an event the id and time of the first answer."""
        first = self._lead.envelope
        return {
            (k,): jsontext.render(first[k])
            for k in ("id", "created")
            if value.get(k) and k in first and value[k] != first[k]
        }

    def emit(
        self, index: int, state: ChoiceState, held: HeldEvent, *, more: dict[Path, bytes | None] | None = None
    ) -> bytes | None:
        """An event as the client gets it: its own bytes where nothing has to change, None where nothing is left."""
        assert held.event.data is not None
        changes = {**self._call_changes(state, held), **self._turn_changes(index, state, held), **(more or {})}
        changes |= dict.fromkeys(held.gone)
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

    def _call_changes(self, state: ChoiceState, held: HeldEvent) -> dict[Path, bytes | None]:
        """The changes to the call entries of an event."""
        if all(_passes(state, state.slots[f.ordinal], f) and not f.stray for f in held.fragments):
            return {}
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
        if changed and held.choice.get("logprobs"):  # they spell what was taken out
            changes["choices", held.at, "logprobs"] = b"null"
        return changes

    @staticmethod
    def _entry(held: HeldEvent, fragment: Fragment) -> bytes:
        assert held.event.data is not None
        place = ("function_call",) if fragment.position is None else ("tool_calls", fragment.position)
        return jsontext.raw(held.event.data, ("choices", held.at, "delta", *place)) or b"{}"

    @staticmethod
    def _entry_now(state: ChoiceState, slot: Slot, fragment: Fragment, *, raw: bytes) -> bytes | None:
        """A fragment as the client gets it; None: not at all."""
        if slot.dropped or slot.out_index is None or slot.sent_whole:
            return None
        assert slot.judged is not None
        if slot.in_one_piece:
            slot.sent_whole = True
            entry = raw if slot.fragments == 1 and _says_all(raw) else jsontext.render(slot.open.entry())
            text = slot.judged.verdict.text
            entry = edited_call(entry, slot.open.whole(), call_id=slot.given_id, text=text)
            if fragment.position is None:
                return entry
            return jsontext.edit(entry, {("index",): jsontext.render(slot.out_index)})
        if _passes(state, slot, fragment):
            return jsontext.edit(raw, dict.fromkeys(fragment.stray)) if fragment.stray else raw
        changes: dict[Path, bytes | None] = dict.fromkeys((*fragment.again, *fragment.stray))
        changes["index",] = jsontext.render(slot.out_index)
        return jsontext.edit(raw, {k: v for k, v in changes.items() if jsontext.raw(raw, k) != v})

    def _turn_changes(self, index: int, state: ChoiceState, held: HeldEvent) -> dict[Path, bytes | None]:
        """The changes that make an event of a later round one of the first answer."""
        changes: dict[Path, bytes | None] = {}
        delta = held.delta
        content, place = delta.get("content"), ("choices", held.at, "delta", "content")
        if state.parted and content and isinstance(content, str) and place not in held.gone:
            state.parted = False
            changes[place] = jsontext.render("\n\n" + content)
        if self._only is None:
            return changes
        changes |= self.as_first(held.value)
        if held.choice.get("index") != index:
            changes["choices", held.at, "index"] = jsontext.render(index)
        if index in self._lead.role_sent and delta.get("role"):
            changes["choices", held.at, "delta", "role"] = None
        if isinstance(held.value.get("usage"), dict) and self._lead.usage is not None:
            changes["usage",] = jsontext.render(added_usage(self._lead.usage, held.value["usage"]))
        return changes

    def _says_something(self, index: int, held: HeldEvent, changes: dict[Path, bytes | None]) -> bool:
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


def without_end(held: HeldEvent) -> dict[Path, bytes | None]:
    """The changes that take the end of a turn that goes on out of an event; what it used is added up elsewhere."""
    return {("choices", held.at, "finish_reason"): b"null", ("usage",): None}


def _passes(state: ChoiceState, slot: Slot, fragment: Fragment) -> bool:
    """Whether a fragment goes to the client with the number and identity that it came with."""
    if slot.dropped or slot.out_index is None or slot.sent_whole or slot.in_one_piece:
        return False
    in_order = not any(s.dropped or s.sent_whole for s in state.slots[: slot.open.ordinal])
    return fragment.position is None or (in_order and not state.renumber and not slot.open.doubtful)


def _says_all(raw: bytes) -> bool:
    """Whether an entry has, in their places, what readers of a call need first."""
    return all(jsontext.raw(raw, (key,)) not in (None, b"null") for key in ("id", "type"))
