"""A call of a response's stream: what its events say of it, and how each place that shows it has to look.

A call stands in up to four places (its pieces, its text, its item when that is done, and the response's list), and
clients differ in which of them they act on. What a place says otherwise than what was decided is changed to agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.exchange.deciding import CallOnItsWay
from proxy.core.exchange.response_reading import Part, text_at
from proxy.core.jsontext import Path, join_surrogates
from proxy.core.policy.verdicts import Needs
from proxy.core.protocol.response_items import call_type, edited_call, read_as, read_call
from proxy.errors import UpstreamError

_NAMED = {"function_call": Kind.FUNCTION, "custom_tool_call": Kind.CUSTOM, "mcp_approval_request": Kind.APPROVAL}
TEXTS = {Kind.FUNCTION: "arguments", Kind.CUSTOM: "input", Kind.APPROVAL: "arguments"}


@dataclass(slots=True)
class CallSlot(CallOnItsWay):
    """A call on its way. `type` is its item's, `place` its number in the batch.

    `begun` and `final` are the call as the first and the last item of it show it; `uncertain`: its type alone does not
    say that it is a call, and its item is not whole. `fixed` is the call as it was judged, `by_all` whether that read
    more than its name; then `settles` says whether the places before agreed with it."""

    type: str
    place: int
    item_id: str = ""
    begun: ToolCall | None = None
    final: ToolCall | None = None
    uncertain: bool = False
    latest: bytes = b""  # its item as it stood last
    pieces: list[str] = field(default_factory=list)
    said: dict[tuple[str, Any], str] = field(default_factory=dict)  # what an action is said to be, in parts
    said_whole: list[str] = field(default_factory=list)
    text: str | None = None
    named: str = ""
    called: str = ""  # its id, as events beside its items have it
    size: int = 0
    fixed: ToolCall | None = None
    by_all: bool = False
    settles: bool = True
    goes: bool = False
    piece_sent: bool = False

    @property
    def kind(self) -> Kind:
        return _NAMED.get(self.type, Kind.ACTION)

    @property
    def ordinal(self) -> int:
        return self.place

    @property
    def let_go(self) -> bool:
        return self.goes

    @property
    def may_be_renumbered(self) -> bool:
        return False  # its events wait for what comes before them

    @property
    def is_nothing_yet(self) -> bool:
        """Whether nothing was said of it that makes it a call."""
        return not (self.fixed or self.begun or self.final or self.pieces or self.said or self.text)

    @property
    def text_is_whole(self) -> bool:
        return self.final is not None or self.text is not None

    @property
    def in_one_piece(self) -> bool:
        """Whether it is sent in one piece, changed."""
        assert self.judged is not None
        if self.judged.verdict.text is not None or (self.by_all and not self.settles):
            return True
        return self.given_id not in (None, self.whole().call_id)

    @property
    def given_text(self) -> str:
        """The text that the client gets."""
        assert self.judged is not None
        return self.whole().text if self.judged.verdict.text is None else self.judged.verdict.text

    # -- what events say

    def asks_otherwise(self, item: dict[str, Any], raw: bytes) -> bool:
        """Whether an item asks for something else than it did before, under the same id."""
        known, found = self.final or self.begun, read_call(item, raw)
        if known is None or found is None:
            return False
        if (found.name, found.namespace) != (known.name, known.namespace):
            return True
        return self.final is not None and found.text != known.text

    def take_item(self, item: dict[str, Any], raw: bytes, *, last: bool) -> None:
        """Its item, as it begins or as it is in the end. Raises UpstreamError for one of another type."""
        if call_type(item, whole=False) != self.type:
            raise UpstreamError("An item of the answer is of two types, and a tool call.", kind="protocol")
        found = read_call(item, raw)
        if found is None:
            self.uncertain = not last
            return
        self.uncertain = False
        self.size += len(raw)
        if last:
            self.final = self.final or found
        else:
            self.begun = self.begun or found
        if last or not self.latest:
            self.latest = raw

    def take_event(self, value: dict[str, Any], part: Part) -> bool:
        """What an event beside its items says; whether that is behind what it was judged by, and must not go on."""
        self.called = self.called or text_at(value, "call_id")
        if part is Part.TEXT:
            given = value.get(TEXTS[self.kind])
            text = given if isinstance(given, str) else "" if given is None else jsontext.render_text(given)
            self.named = self.named or text_at(value, "name")
            self.text = text if self.text is None else self.text
            self.size += len(text)
            return False
        if part is not Part.PIECE:
            return False
        if self.by_all:
            return True
        if self.kind is Kind.ACTION:
            self._take_part(value)
        elif piece := text_at(value, "delta"):
            self.pieces.append(piece)
            self.size += len(piece)
        return False

    def _take_part(self, value: dict[str, Any]) -> None:
        """A part of an action, as a command of many or the patch that it is to make."""
        kind = text_at(value, "type")
        key = kind.rpartition(".")[0], value.get("command_index") if isinstance(value.get("command_index"), int) else 0
        piece = text_at(value, "delta")
        whole = next((t for k in ("command", "diff", "arguments", "input") if (t := text_at(value, k))), "")
        self.size += len(piece) + len(whole)
        if kind.endswith(".done"):
            self.said_whole += [whole] if whole else []
        elif piece or whole:
            self.said[key] = self.said.get(key, "") + piece + whole

    # -- the call as it is known

    def whole(self) -> ToolCall:
        fixed, known = self.fixed, self._known()
        if fixed is None:
            return known
        call_id = fixed.call_id or known.call_id
        if self.by_all:
            return replace(fixed, call_id=call_id)
        return replace(known, call_id=call_id, name=fixed.name, namespace=fixed.namespace)

    def _known(self) -> ToolCall:
        """The call by the places that say most of it."""
        shown = [call for call in (self.final, self.begun) if call is not None]
        call_id = next((c.call_id for c in shown if c.call_id), CallId(self.called))
        if self.kind is Kind.ACTION:
            return replace(shown[0] if shown else self._bare(), call_id=call_id)
        if self.kind is Kind.APPROVAL:
            call_id = call_id or CallId(self.item_id)
        final, begun = self.final.text if self.final else "", self.begun.text if self.begun else ""
        text = final or self.text or self._joined() or begun
        return ToolCall(
            call_id,
            next((n for n in (self.final and self.final.name, self.named, self.begun and self.begun.name) if n), ""),
            text,
            self.kind,
            unwrapped=bool(final and self.final and self.final.unwrapped),
            namespace=next((c.namespace for c in shown if c.namespace), ""),
        )

    def _joined(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return join_surrogates(self.pieces[0]) if self.pieces else ""

    def seal(self, needs: Needs) -> None:
        self.fixed = self._known()
        self.by_all = needs is not Needs.NAME
        self.settles = self._agrees(self.fixed.text)

    def _agrees(self, text: str) -> bool:
        """Whether what was said of it in pieces is what it is in the end."""
        if self.kind is Kind.ACTION:
            strings = set(_strings(jsontext.parse_own(text.encode())))
            return strings.issuperset(self.said.values()) and strings.issuperset(self.said_whole)
        begun = self.begun.text if self.begun else ""
        if not self.pieces:
            return begun in ("", text)
        return begun == "" and self._joined() == text

    # -- the call as its places show it

    def raw(self) -> str:
        """Its item, whole, as the model made it."""
        call = self.whole()
        if self.latest:
            item = jsontext.parse_own(self.latest)
            raw = self._with_text(self.latest, self._read(item, self.latest), call.text)
            raw = self._named(raw, self._read(item, raw), call_id=str(call.call_id))
            if item.get("status") == "in_progress":
                raw = jsontext.edit(raw, {("status",): b'"completed"'})
            return raw.decode("utf-8", "replace")
        item = {"type": self.type} | ({"id": self.item_id} if self.item_id else {})
        if self.kind is not Kind.ACTION:
            item |= {"call_id": call.call_id, "name": call.name, TEXTS[self.kind]: call.text}
        return jsontext.render_text(item | {"status": "completed"})

    def item(self, item: dict[str, Any], raw: bytes, *, begins: bool = False) -> bytes:
        """An item of it as the client gets it; `begins`: it stands before the pieces."""
        found = self._read(item, raw)
        text = self._first_text(found) if begins else self._last_text(found)
        raw = self._with_text(raw, found, text)
        return self._named(raw, found, call_id=self.given_id or str(self.whole().call_id))

    def _read(self, item: dict[str, Any], raw: bytes) -> ToolCall:
        if (found := read_call(item, raw)) is not None:
            return found
        if self.type in _NAMED:
            return read_as(item, raw, self.type)
        return replace(self._bare(), call_id=CallId(text_at(item, "call_id")))

    def _bare(self) -> ToolCall:
        return ToolCall(CallId(""), self.type.removesuffix("_call"), "{}", self.kind, True)

    def _last_text(self, found: ToolCall) -> str:
        return self.given_text if self.by_all or self.in_one_piece or not found.text else found.text

    def _first_text(self, found: ToolCall) -> str:
        """What its item says at first of what it is to do: nothing that is not so in the end, nor twice."""
        given = self.given_text
        if self.kind is Kind.ACTION:
            if not (self.by_all or self.in_one_piece):
                return found.text
            allowed = set(_strings(jsontext.parse_own(given.encode())))
            return found.text if allowed.issuperset(_strings(jsontext.parse_own(found.text.encode()))) else given
        if self.kind is Kind.APPROVAL:
            return given if found.text and self.by_all else found.text
        if not self.in_one_piece:
            return found.text
        return given if found.text and not self.pieces else ""

    def _with_text(self, raw: bytes, found: ToolCall, text: str) -> bytes:
        if found.text == text or (self.kind is Kind.ACTION and _same(found.text, text)):
            return raw
        if self.kind is Kind.APPROVAL:
            return jsontext.edit(raw, {("arguments",): jsontext.render(text)})
        return edited_call(raw, found, text=text)

    def _named(self, raw: bytes, found: ToolCall, *, call_id: str) -> bytes:
        """The item with the name and the id that the call is known by."""
        call = self.whole()
        changes: dict[Path, bytes | None] = {}
        if self.kind is Kind.ACTION:
            if (found.namespace, found.name) != (call.namespace, call.name):  # of a type that has no name else
                changes["name",] = jsontext.render(call.name) if call.namespace else None
        else:
            space = "server_label" if self.kind is Kind.APPROVAL else "namespace"
            if found.name != call.name:
                changes["name",] = jsontext.render(call.name)
            if found.namespace != call.namespace:
                changes[space,] = jsontext.render(call.namespace) if call.namespace else None
        if found.call_id != call_id and self.kind is not Kind.APPROVAL:
            changes["call_id",] = jsontext.render(call_id)
        return jsontext.edit(raw, changes)

    def event(self, value: dict[str, Any], part: Part) -> dict[Path, bytes | None] | None:
        """The changes to an event beside its items; None: it does not go on."""
        changes: dict[Path, bytes | None] = {}
        call = self.whole()
        call_id = self.given_id or str(call.call_id)
        for key in ("call_id", "item_id"):
            said = text_at(value, key)
            if said and said != call_id and (key == "call_id" or (said == call.call_id and said != self.item_id)):
                changes[key,] = jsontext.render(call_id)
        if part is Part.PIECE and self.in_one_piece:
            if self.kind is Kind.ACTION or self.piece_sent or not self.given_text:
                return None
            self.piece_sent = True
            changes["delta",] = jsontext.render(self.given_text)
        elif part is Part.TEXT:
            place = TEXTS[self.kind]
            if (self.by_all or self.in_one_piece) and value.get(place) != self.given_text:
                changes[place,] = jsontext.render(self.given_text)
            if "name" in value and value["name"] != call.name:
                changes["name",] = jsontext.render(call.name)
        if changes and value.get("obfuscation") is not None:
            changes["obfuscation",] = None
        return changes


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _same(one: str, other: str) -> bool:
    return bool(jsontext.parse_own(one.encode()) == jsontext.parse_own(other.encode()))
