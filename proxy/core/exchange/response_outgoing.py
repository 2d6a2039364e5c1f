"""What of a response's events goes out: as it came, changed where something has to change, or not at all.

Which call may go is decided in `response_stream.py`; here an event is made of that decision. What the client gets is
one response, however many the upstream gave: one id, items without gaps in their places, events without gaps in their
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.exchange.response_reading import ENDS, may_be_call, number_at
from proxy.core.exchange.response_state import HeldEvent, OutputItem, ResponseState
from proxy.core.jsontext import Path
from proxy.core.protocol.completion import added_usage
from proxy.core.protocol.response_events import item_events
from proxy.core.protocol.sse import render


@dataclass(slots=True)
class ResponseLead:
    """What is carried over the answers that one stream of a client is made of.

    `envelope` is the response as the client knows it, less output and usage; `items` the output that it has of earlier
    rounds, which used `usage`; `number` and `places` are those of the next event and item. `last_id` is the upstream's
    newest id. `previous` stands, as JSON, where the upstream names another response before; events up to number `after`
    are not sent, since the client has them."""

    rounds: int = 1
    envelope: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    places: int = 0
    items: list[bytes] = field(default_factory=list)
    usage: Any = None
    last_id: str = ""
    previous: bytes | None = None
    after: int = -1
    numbered: bool = True
    begun: bool = False

    @property
    def shown_ids(self) -> list[str]:
        """Ids of the response that the client has seen, and that are not the upstream's last."""
        shown = self.envelope.get("id")
        return [shown] if isinstance(shown, str) and shown not in ("", self.last_id) else []

    def learn(self, response: dict[str, Any]) -> None:
        if not self.envelope.get("id"):
            self.envelope = {k: v for k, v in response.items() if k not in ("output", "usage")}
        if isinstance(response.get("id"), str) and response["id"]:
            self.last_id = response["id"]

    def count(self, number: int | None, *, anew: bool) -> int | None:
        """The client's number of an event that the upstream gave one, or none; `anew`: by the client's own count."""
        if not self.begun:
            self.begun, self.numbered = True, number is not None
            self.number = number or 0
        if number is None:
            return None
        counted = self.number if anew else number
        self.number = counted + 1
        return counted

    def own(self, payload: dict[str, Any]) -> bytes:
        """An event of our own."""
        self.begun = True
        number = self.number
        if self.numbered:
            payload = payload | {"sequence_number": number}
            self.number += 1
            if number <= self.after:
                return b""
        return render(jsontext.render(payload), payload["type"])

    def item(self, raw: bytes) -> bytes:
        """The events of a whole item, at the next place."""
        events = [self.own(event | {"output_index": self.places}) for event in item_events(jsontext.parse_own(raw))]
        self.places += 1
        return b"".join(events)

    def show(self, items: Sequence[bytes]) -> bytes:
        """The events of whole items, which the client has from now on."""
        self.items += items
        return b"".join(map(self.item, items))

    def take_up(self, head: dict[str, Any], items: Sequence[bytes]) -> bytes:
        """The beginning of a response whose first rounds are known already, with their items."""
        self.envelope = dict(head)
        begun = {**head, "status": "in_progress", "output": [], "usage": None}
        first = [self.own({"type": f"response.{kind}", "response": begun}) for kind in ("created", "in_progress")]
        return b"".join(first) + self.show(items)

    def end(self, output: bytes, usage: Any) -> bytes:
        """An end of our own, where the upstream's answer has none."""
        response = {**self.envelope, "status": "completed", "output": jsontext.parse_own(output), "usage": usage}
        return self.own({"type": "response.completed", "response": response})


class Outgoing:
    """The events of one answer on their way out. `hosted` are tools that the upstream runs; `anew`: events and items
    may be taken out, so that they are numbered anew."""

    def __init__(self, lead: ResponseLead, hosted: frozenset[str], *, anew: bool) -> None:
        self._lead = lead
        self._hosted = hosted
        self._anew = anew

    def emit(self, held: HeldEvent, more: dict[Path, bytes | None] | None = None, *, name: str = "") -> bytes | None:
        """An event as the client gets it: its own bytes where nothing has to change, None where it does not go on.
        `name` is its type where that changes."""
        item, value, data = held.item, held.value, held.event.data
        assert data is not None
        changes: dict[Path, bytes | None] = dict(more or {})
        if item is not None:
            found = self._of_item(held, item, data)
            if found is None:
                return None
            changes |= found
        if isinstance(response := value.get("response"), dict):
            changes |= self._of_response(response, data, ends=held.kind in ENDS)
        if value.get("response_id") and value["response_id"] == self._lead.last_id:
            changes |= self._as_first(value, "response_id", "id", path=("response_id",))
        number = number_at(value, "sequence_number")
        counted = self._lead.count(number, anew=self._anew)
        if counted is not None and counted <= self._lead.after:
            return None
        if counted != number:
            changes["sequence_number",] = jsontext.render(counted)
        if name:
            return render(jsontext.edit(data, changes | {("type",): jsontext.render(name)}), name)
        return held.event.with_data(_edited(data, value, changes)) if changes else held.event.raw

    def _of_item(self, held: HeldEvent, item: OutputItem, data: bytes) -> dict[Path, bytes | None] | None:
        if item.gone or item.out_index is None:
            return None
        value, call = held.value, item.call
        changes: dict[Path, bytes | None] = {}
        if call is not None and call.judged is not None:
            found = call.event(value, held.part)
            if found is None:
                return None
            changes |= found
            if isinstance(shown := value.get("item"), dict):
                raw = jsontext.raw(data, ("item",)) or b"{}"
                now = call.item(shown, raw, begins=not held.ends_item)
                changes |= {("item",): now} if now != raw else {}
        index = number_at(value, "output_index")
        if self._anew and index not in (None, item.out_index):
            changes["output_index",] = jsontext.render(item.out_index)
        return changes

    def _of_response(self, response: dict[str, Any], data: bytes, *, ends: bool) -> dict[Path, bytes | None]:
        changes = self._as_first(response, "id", "id", path=("response", "id"))
        changes |= self._as_first(response, "created_at", "created_at", path=("response", "created_at"))
        previous = self._lead.previous
        place: Path = ("response", "previous_response_id")
        if previous is not None and jsontext.raw(data, place) not in (None, b"null", previous):
            changes[place] = previous
        output = response.get("output")
        if self._anew and not ends and isinstance(output, list):
            raws = jsontext.elements(data, ("response", "output"))
            kept = [raw for item, raw in zip(output, raws, strict=True) if not may_be_call(item, self._hosted)]
            changes |= {("response", "output"): jsontext.array(kept)} if kept != raws else {}
        if ends and self._lead.usage is not None:
            changes["response", "usage"] = jsontext.render(added_usage(self._lead.usage, response.get("usage")))
        return changes

    def _as_first(self, value: dict[str, Any], key: str, known: str, *, path: Path) -> dict[Path, bytes | None]:
        """The change that gives a member what the first answer had."""
        first = self._lead.envelope
        if not value.get(key) or known not in first or value[key] == first[known]:
            return {}
        return {path: jsontext.render(first[known])}


_NUMBERS = frozenset({"sequence_number", "output_index"})


def _edited(data: bytes, value: dict[str, Any], changes: dict[Path, bytes | None]) -> bytes:
    """The event's data with its changes. Where only its numbers change, which is so of each event behind one that was
    taken out, they are found without reading the rest: inside a text no key has its quotes unescaped."""
    edited = data
    for path, number in changes.items():
        key = str(path[0])
        old = b'"%s":%d' % (key.encode(), value[key]) if key in _NUMBERS and number is not None else b""
        if not old or data.count(key.encode()) != 1 or (at := edited.find(old)) < 0:
            return jsontext.edit(data, changes)
        end = at + len(old)
        if edited[end : end + 1] not in (b",", b"}") or number is None:
            return jsontext.edit(data, changes)
        edited = b"".join((edited[:at], b'"', key.encode(), b'":', number, edited[end:]))
    return edited


def final_output(state: ResponseState, before: Sequence[bytes], behind: Sequence[bytes]) -> list[bytes] | None:
    """The response's list as the client gets it, between items of our own; None: as it came."""
    shown: list[bytes] = []
    for item, raw in state.listing:
        if item is None or item.call is None:
            shown.append(raw)
        elif item.call.let_go:
            shown.append(item.call.item(jsontext.parse_own(raw), raw))
    if not before and not behind and shown == [raw for _, raw in state.listing]:
        return None
    if not state.listing:
        shown = shown_items(state)
    return [*before, *shown, *behind]


def shown_items(state: ResponseState) -> list[bytes]:
    """The items that the client has of an answer, in their places."""
    listed = {id(item): raw for item, raw in state.listing if item is not None}
    placed = sorted((i for i in state.items if i.out_index is not None), key=lambda i: i.out_index or 0)
    found = []
    for item in placed:
        if item.call is None:
            raw = listed.get(id(item), item.raw)
            found += [raw] if raw else []
        elif item.call.let_go:
            raw = item.call.raw().encode()
            found.append(item.call.item(jsontext.parse_own(raw), raw))
    return found


def unstreamed(state: ResponseState) -> list[bytes]:
    """Items that are no calls, and that stand in the response's list alone."""
    return [raw for item, raw in state.listing if item is not None and not item.streamed and item.call is None]
