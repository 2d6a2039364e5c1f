"""One response on its way: its output items, which of its events belong to which, and what of it waits.

Servers disagree on how an event says which item it is of: by the item's id, by its place in the output, by a call's
id; one place may be that of several items, and ids may change on the way. Values and what follows from them alone;
`response_stream.py` moves them on, `response_outgoing.py` writes them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.exchange.deciding import CallQueue
from proxy.core.exchange.response_calls import CallSlot
from proxy.core.exchange.response_reading import Part, may_be_call, number_at, part_of, text_at
from proxy.core.policy.verdicts import Needs
from proxy.core.protocol.response_items import call_type, is_call_type, is_known_type, read_call
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError

APPROVAL = "mcp_approval_request"
_ASKED_TWICE = "Two approvals are asked for under one id."
_SPOKEN = re.compile(r"response\.(output_text|content_part|refusal|reasoning)")


@dataclass(slots=True)
class OutputItem:
    """An item of the output. `index` is its place as the upstream has it, `out_index` as the client gets it; `raw` is
    what it was last shown as, where it is no call. `begun` and `whole`: it has been shown as it begins, and in the end;
    `listed`: it stands in the response's list; `streamed`: it had events."""

    index: int | None = None
    id: str = ""
    type: str = ""
    raw: bytes = b""
    call: CallSlot | None = None
    begun: bool = False
    whole: bool = False
    listed: bool = False
    streamed: bool = True
    out_index: int | None = None

    @property
    def undecided(self) -> bool:
        return self.call is not None and not self.call.decided

    @property
    def gone(self) -> bool:
        return self.call is not None and self.call.dropped

    def is_other_than(self, call_type: str) -> bool:
        """Whether it is no call of this type: by its own type, or since it has gone out as none."""
        if self.type:
            return self.type != call_type
        return self.call is None and self.out_index is not None


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """An event, and what it is to which item."""

    event: Event
    value: dict[str, Any]
    kind: str
    part: Part = Part.OTHER
    item: OutputItem | None = None

    @property
    def ends_item(self) -> bool:
        return self.part is Part.DONE

    @property
    def is_acted_on(self) -> bool:
        """Whether clients may run a call by this event."""
        return self.part in (Part.TEXT, Part.DONE) and self.item is not None and self.item.call is not None


@dataclass(slots=True)
class ResponseState(CallQueue[CallSlot]):
    """`strict`: a call could be held, so that what hides one is refused. `hosted` are tools that the upstream runs,
    `most` how many bytes of items are remembered; `lost`: there were more. `listing` is the response's own list of its
    output, each with the item that it is."""

    strict: bool = False
    hosted: Collection[str] = ()
    most: int = 1 << 30
    items: list[OutputItem] = field(default_factory=list)
    by_id: dict[str, OutputItem] = field(default_factory=dict)
    by_call: dict[str, OutputItem] = field(default_factory=dict)
    unplaced: int = 0  # the first item that has no place yet
    queue: list[HeldEvent] = field(default_factory=list)
    queued: int = 0
    looked: tuple[int, int] = (0, 0)
    listing: list[tuple[OutputItem | None, bytes]] = field(default_factory=list)
    finish: HeldEvent | None = None
    remembered: int = 0
    lost: bool = False

    @property
    def held_bytes(self) -> int:
        return self.queued + sum(slot.size for slot in self.slots)

    # -- events to items

    def take(self, event: Event, value: dict[str, Any], *, kind: str, now: float) -> HeldEvent | None:
        """Put an event to its item; None where it must not go on. Raises UpstreamError."""
        part, call_type = part_of(kind)
        shown = value.get("item")
        if isinstance(shown, dict):
            part = part if part in (Part.ADDED, Part.DONE) else Part.ADDED
            item = self._item_of(shown, number_at(value, "output_index"), part)
            raw = jsontext.raw(event.data or b"", ("item",)) or b"{}"
            self._show(item, shown, raw, last=part is Part.DONE, now=now)
            return HeldEvent(event, value, kind, part, item)
        if call_type.removesuffix("_call") in self.hosted:
            part, call_type = Part.OTHER, ""
        found = self._named(value, kind, call_type)
        if found is None:
            return HeldEvent(event, value, kind)
        if call_type and found.is_other_than(call_type):
            self._refuse("Pieces of a tool call belong to an item of another type.")
            return HeldEvent(event, value, kind, Part.OTHER, found)
        if call_type and found.call is None:
            self._make_call(found, call_type, now)
        if found.call is not None and found.call.take_event(value, part):
            return None
        return HeldEvent(event, value, kind, part, found)

    def _named(self, value: dict[str, Any], kind: str, call_type: str) -> OutputItem | None:
        """The item that an event without one belongs to; None where it belongs to none."""
        item_id, call_id = text_at(value, "item_id"), text_at(value, "call_id")
        index = number_at(value, "output_index")
        found = self.by_id.get(item_id) or self.by_call.get(call_id) or self.by_call.get(item_id)
        if found is not None:
            return found
        spoken = _SPOKEN.match(kind)
        if index is None and not call_type and not (item_id and spoken):
            return None
        here = [i for i in self._at(index) if not (item_id and i.id and i.whole)]
        fitting = (i for i in here if (i.call is not None) is bool(call_type) or not (i.type or i.call))
        found = next(fitting, None)
        if found is None and here and not call_type and not spoken:
            found = here[0]
        if found is None or (index is None and not call_type):
            found = self._add(OutputItem(index, item_id))
        elif item_id:
            self.by_id[item_id] = found
        if call_id and call_type:
            self.by_call[call_id] = found
        return found

    def _at(self, index: int | None) -> Iterator[OutputItem]:
        """The items at one place of the output (None: at any), the newest first."""
        return (item for item in reversed(self.items) if index is None or item.index == index)

    def _item_of(self, shown: dict[str, Any], index: int | None, part: Part) -> OutputItem:
        """The item that an event shows as it begins, or whole."""
        item_id, call_id = text_at(shown, "id"), text_at(shown, "call_id")
        kind = _type_of(shown, whole=part is Part.DONE)
        found = self.by_id.get(item_id)
        if found is None and call_id and is_call_type(kind):
            found = self.by_call.get(call_id)
            if found is not None and (found.type not in ("", kind) or (part is Part.ADDED and found.begun)):
                found = None
        if found is not None and not _is_another(found, call_id, begins=part is Part.ADDED):
            return found
        if found is not None and found.call is not None and kind == APPROVAL:
            self._refuse(_ASKED_TWICE)
        for item in self._at(index) if found is None and index is not None else ():
            if item.whole or (part is Part.ADDED and item.begun):
                continue
            if item.type in ("", kind) or not (item_id and item.id):
                return item
        return self._add(OutputItem(index, item_id))

    def _refuse(self, why: str) -> None:
        if self.strict:
            raise UpstreamError(why, kind="protocol")

    def _add(self, item: OutputItem) -> OutputItem:
        self.items.append(item)
        if item.id:
            self.by_id[item.id] = item
        return item

    def _show(self, item: OutputItem, shown: dict[str, Any], raw: bytes, *, last: bool, now: float) -> None:
        """Take what a place shows of an item. Raises UpstreamError for a call of two types."""
        item_id, call_id = text_at(shown, "id"), text_at(shown, "call_id")
        item.id = item.id or item_id
        if item_id:
            self.by_id[item_id] = item
        item.begun, item.whole = True, item.whole or last
        kind = _type_of(shown, whole=last)
        if item.call is None and may_be_call(shown, self.hosted, whole=last):
            self._make_call(item, kind, now)
        item.type = kind
        if item.call is None:
            if text_at(shown, "call_id") in self.by_call and not is_known_type(text_at(shown, "type")):
                self._refuse("An item of the answer names a tool call, and is none.")
            self._remember(item, raw)
            return
        is_none = last and item.call.is_nothing_yet and read_call(shown, raw, hosted=self.hosted) is None
        if is_none and call_type(shown, whole=False) == item.call.type:  # it had to be taken for a call until now
            self._is_no_call(item, item.call)
            self._remember(item, raw)
            return
        if kind == APPROVAL and item.call.asks_otherwise(shown, raw):
            self._refuse(_ASKED_TWICE)
        item.call.take_item(shown, raw, last=last)
        if call_id:
            self.by_call[call_id] = item

    def _make_call(self, item: OutputItem, kind: str, now: float) -> None:
        item.type = kind
        item.call = CallSlot(since=now, type=kind, place=len(self.slots), item_id=item.id)
        self.slots.append(item.call)

    def _is_no_call(self, item: OutputItem, slot: CallSlot) -> None:
        self.slots.remove(slot)
        for place, left in enumerate(self.slots):
            left.place = place
        item.call = None

    def _remember(self, item: OutputItem, raw: bytes) -> None:
        """Keep an item that is no call, as long as there is room: the turn may have to be put together of it."""
        self.remembered += len(raw) - len(item.raw)
        item.raw = raw
        if self.remembered > self.most:
            self.remembered -= len(raw)
            item.raw, self.lost = b"", True

    # -- the response's own list

    def take_list(self, output: Any, raws: list[bytes], now: float) -> None:
        """The output as the response lists it at its end. Raises UpstreamError."""
        shown = [item if isinstance(item, dict) else None for item in output] if isinstance(output, list) else []
        found: list[OutputItem | None] = [None] * len(shown)
        for pass_over in (self._by_name, self._by_place):
            for at, item in enumerate(shown):
                if item is not None and found[at] is None and (match := pass_over(item, at)) is not None:
                    match.listed, found[at] = True, match
        for at, item in enumerate(shown):
            if item is None:
                continue
            if (match := found[at]) is None:
                self._check_listed(item)
                match = found[at] = OutputItem(at, text_at(item, "id"), listed=True, streamed=False)
                self.items.append(match)
            self._show(match, item, raws[at], last=True, now=now)
        self.listing = list(zip(found, raws, strict=True))

    def _check_listed(self, shown: dict[str, Any]) -> None:
        """An entry of the list that had no events is not one that had, asked for again."""
        if call_type(shown) == APPROVAL and text_at(shown, "id") in self.by_id:
            self._refuse(_ASKED_TWICE)

    def _by_name(self, shown: dict[str, Any], at: int) -> OutputItem | None:
        """The item with the id of one in the list, or with its call's."""
        call_id = text_at(shown, "call_id")
        named = self.by_id.get(text_at(shown, "id"))
        called = self.by_call.get(call_id) if call_type(shown) else None
        if called is not None and (named is None or named.call is None or named.call.whole().call_id != call_id):
            named = called
        return None if named is None or named.listed else named

    def _by_place(self, shown: dict[str, Any], at: int) -> OutputItem | None:
        """The item at the place of one in the list, if that has another id there."""
        kind = _type_of(shown, whole=True)
        if kind == APPROVAL and text_at(shown, "id") in self.by_id:
            return None
        return next((i for i in self._at(at) if not i.listed and i.type in ("", kind) and i.streamed), None)

    # -- calls

    def is_ready(self, slot: CallSlot, needs: Callable[..., Needs]) -> bool:
        if self.finished:
            return True
        call = slot.whole()
        if not call.name or slot.uncertain or not (slot.begun or slot.final):
            return False  # its name may not be whole, or not its own
        match needs(call.name, namespace=call.namespace, kind=call.kind):
            case Needs.NAME:
                return True
            case Needs.ARGUMENTS:
                return slot.text_is_whole
            case Needs.BATCH:
                return False

    def let_go(self, slot: CallSlot) -> None:
        slot.goes = True

    # -- what waits

    def place(self, first: int) -> int:
        """Give the items their places from `first` on, up to a call that is not decided; the next free place."""
        while self.unplaced < len(self.items) and not (item := self.items[self.unplaced]).undecided:
            if item.streamed and not item.gone and item.out_index is None:
                item.out_index, first = first, first + 1
            self.unplaced += 1
        return first

    def push(self, held: HeldEvent) -> None:
        self.queue.append(held)
        self.queued += len(held.event.raw)

    def _requeue(self, events: list[HeldEvent]) -> None:
        self.queue = events
        self.queued = sum(len(held.event.raw) for held in events)

    def going(self, may_go: Callable[[HeldEvent], bool], *, everything: bool) -> list[HeldEvent]:
        """The events of the queue that go now. Where nothing was decided since it was looked through, only the last one
        can be new."""
        now = (self.unplaced, self.released)
        if not everything and now == self.looked:
            if not (self.queue and may_go(self.queue[-1])):
                return []
            self.queued -= len(self.queue[-1].event.raw)
            return [self.queue.pop()]
        self.looked = now
        going: list[HeldEvent] = []
        kept: list[HeldEvent] = []
        for held in self.queue:
            (going if everything or may_go(held) else kept).append(held)
        self._requeue(kept)
        return going

    def fail(self) -> None:
        """The upstream failed: nothing that is held goes on."""
        self._requeue([])
        self.drop()
        self.finished = True

    # -- the output as it came

    @property
    def is_forgotten(self) -> bool:
        """Whether an item had to be forgotten, and does not stand in the response's list."""
        return self.lost and not self._lists_all

    @property
    def _lists_all(self) -> bool:
        return bool(self.listing) and all(item.listed for item in self.items)

    def layout(self) -> tuple[bytes | int, ...]:
        """The items in order, as the model made them; a number stands for a call."""
        if self._lists_all:
            return tuple(raw if item is None or item.call is None else item.call.place for item, raw in self.listing)
        found = (item.raw if item.call is None else item.call.place for item in self.items)
        return tuple(part for part in found if part != b"")


def _type_of(shown: dict[str, Any], *, whole: bool) -> str:
    """The type that an item is read as."""
    return call_type(shown, whole=whole) or text_at(shown, "type")


def _is_another(item: OutputItem, call_id: str, *, begins: bool) -> bool:
    """Whether an item that comes under the name of one is not that one."""
    known = str(item.call.whole().call_id) if item.call is not None else ""
    if call_id and known and call_id != known and (begins or item.whole):
        return True
    return begins and item.whole
