"""Deltas to whole calls and a whole message, for one choice of a chat stream.

Servers disagree on how fragments say which call they belong to: `index` may be missing, always 0, or changed
on the way; id and name may come in every fragment, as empty text, in pieces, or behind the arguments. The rules
here put each fragment to the call that a reader of the stream would put it to; the first identity that a call
shows is the one that it keeps. What a fragment says again, and what is not taken for the call, is told with it: a
reader that added it up would see another call than the one that was judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import join_surrogates, parse, render, render_text
from proxy.errors import UpstreamError

Raw = Callable[[tuple[str | int, ...]], str]
"""Gives the JSON text of a value of the delta, by path: for arguments that came as an object."""


Place = tuple[str, ...]
"""Where something stands in an entry."""


@dataclass(slots=True)
class OpenCall:
    """A call of which fragments have come. `ordinal` is its place in the model's order, `index` the number that its
    first fragment gave it. `doubtful`: only its name tells it from the call before. `nameless`: a fragment names it by
    what is no text, so that no name that comes with it is believed. `sealed`: its arguments have been read, and what
    comes behind them is not taken."""

    ordinal: int
    kind: Kind
    index: Any = None
    doubtful: bool = False
    nameless: bool = False
    sealed: bool = False
    type: str = ""
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    unwrapped: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    inner: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return join_surrogates(self.pieces[0]) if self.pieces else ""

    def whole(self) -> ToolCall:
        unwrapped = self.unwrapped and self.kind is not Kind.CUSTOM
        return ToolCall(CallId(self.call_id), join_surrogates(self.name), self.text, self.kind, unwrapped)

    def reads_as_complete(self) -> bool:
        """Whether its arguments are a whole JSON text by now, to which nothing can be added. Free text never is."""
        text = self.text.rstrip()
        if self.kind is Kind.CUSTOM or not text.endswith(("}", "]", '"')):
            return False
        try:
            parse(text)
        except ValueError:
            return False
        return True

    def entry(self) -> dict[str, Any]:
        """The call as an entry of a message's `tool_calls` (or its `function_call`)."""
        arguments: Any = orjson.Fragment(self.text) if self.unwrapped else self.text
        if self.kind is Kind.LEGACY:
            return {"name": self.name, "arguments": arguments, **self.inner}
        if self.kind is Kind.CUSTOM:
            return {
                "id": self.call_id,
                "type": "custom",
                "custom": {"name": self.name, "input": self.text},
            } | self.extra
        function = {"name": self.name, "arguments": arguments, **self.inner}
        return {"id": self.call_id, "type": self.type or "function", "function": function, **self.extra}


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one entry of a delta is: entry `position` of `tool_calls` (None: the `function_call`) belongs to call
    `ordinal`. `again` are the places in it that say again who the call is, `stray` those that are not taken for it,
    or that stand under another call's number."""

    position: int | None
    ordinal: int
    again: tuple[Place, ...] = ()
    stray: tuple[Place, ...] = ()


class Assembler:
    """One choice of a stream: its calls and its message so far. `size` is what it holds, in characters."""

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}  # members that grow, in pieces: a long text is joined once
        self.size = 0  # characters of calls
        self.said = 0  # characters of the message
        self.lost = False  # the message became too long to be remembered
        self._by_index: dict[int, OpenCall] = {}
        self._legacy: OpenCall | None = None

    def add(self, delta: dict[str, Any], raw: Raw) -> list[Fragment]:
        """Take a delta in; says which calls its entries belong to. `raw` paths begin inside the delta."""
        found: list[Fragment] = []
        for position, entry in enumerate(_entries(delta)):
            before = len(self.calls)
            call = self._call_of(entry)
            opens = len(self.calls) > before
            again = () if opens else tuple(_said_again(call, entry))
            stray = self._take(call, entry, lambda *path, at=position: raw(("tool_calls", at, *path)))
            if not opens and isinstance(entry.get("index"), int) and entry["index"] != call.index:
                stray += [("index",)]
            found.append(Fragment(position, call.ordinal, again, tuple(stray)))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            call = self._legacy = self._legacy or self._open(Kind.LEGACY)
            stray = self._take_function(call, legacy, lambda *path: raw(("function_call", *path)))
            found.append(Fragment(None, call.ordinal, (), tuple(stray)))
        self._merge(delta)
        return found

    @property
    def message(self) -> dict[str, Any]:
        """The message without its calls."""
        return self._message | {key: "".join(pieces) for key, pieces in self._texts.items()}

    @property
    def speaks(self) -> bool:
        """Whether the message has content by now."""
        return bool(self._texts.get("content") or self._message.get("content"))

    def remember_at_most(self, size: int) -> None:
        """Let go what the message says when it becomes too long to be remembered."""
        if self.said <= size:
            return
        self._message, self._texts, self.said, self.lost = {"content": " "} if self.speaks else {}, {}, 0, True

    def _merge(self, delta: dict[str, Any]) -> None:
        if self.lost:
            return
        before = self.size
        self._merge_parts(delta)
        self.said += self.size - before
        self.size = before

    def _merge_parts(self, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key in ("tool_calls", "function_call"):
                continue
            if isinstance(value, str) and value and self._grows(key):
                self._texts.setdefault(key, []).append(value)
                self.size += len(value)
            elif key not in self._texts:
                self._add(self._message, key, value)
            elif value:  # another kind of value behind a text
                self._message[key] = "".join(self._texts.pop(key))
                self._add(self._message, key, value)

    def _grows(self, key: str) -> bool:
        """Whether a member is a text that further texts are added to."""
        if key not in self._texts and key not in _SAID_WHOLE and self._message.get(key) in (None, ""):
            self._message[key] = None  # its place among the members
            return True
        return key in self._texts

    def _add(self, into: dict[str, Any], key: str, value: Any) -> None:
        self.size += len(value) if isinstance(value, str) else len(render(value))
        if value or key != "role":
            into[key] = _merged(into.get(key), value, key)

    def _open(self, kind: Kind) -> OpenCall:
        call = OpenCall(len(self.calls), kind)
        self.calls.append(call)
        return call

    def _call_of(self, entry: dict[str, Any]) -> OpenCall:
        index, call_id, name = entry.get("index"), entry_id(entry), entry_name(entry)
        known = self._known(index, call_id, name)
        if known is None or _is_another(known, call_id, name):
            by_name_only = known is not None and call_id in ("", known.call_id)
            known = self._returned_to(call_id, name)
            if known is None:
                known = self._open(Kind.CUSTOM if isinstance(entry.get("custom"), dict) else Kind.FUNCTION)
                known.index, known.doubtful = index, by_name_only
        if isinstance(index, int):
            self._by_index[index] = known
        return known

    def _returned_to(self, call_id: str, name: str) -> OpenCall | None:
        """The call of that id that a fragment goes on with, though another stood at its index since."""
        call = next((c for c in reversed(self.calls) if call_id and c.call_id == call_id), None)
        if call is None or not name:
            return call
        return call if name == call.name and not call.reads_as_complete() else None

    def _known(self, index: Any, call_id: str, name: str) -> OpenCall | None:
        if isinstance(index, int) and index in self._by_index:
            return self._by_index[index]
        if call_id and not (isinstance(index, int) and name):
            return next((c for c in reversed(self.calls) if c.call_id == call_id), None)
        last = next((c for c in reversed(self.calls) if c.kind is not Kind.LEGACY), None)
        if isinstance(index, int) or call_id:  # a new number without a name goes on with the call that is not over
            unfinished = last is not None and last.pieces and not last.reads_as_complete()
            return last if unfinished and not call_id and not name else None
        return None if last and name and last.pieces else last

    def _take(self, call: OpenCall, entry: dict[str, Any], raw: Callable[..., str]) -> list[Place]:
        """Add an entry to its call; the places of it that are not taken."""
        if not call.call_id:
            call.call_id = entry_id(entry)
            self.size += len(call.call_id)
        if not call.type and isinstance(entry.get("type"), str):
            call.type = entry["type"]
        stray: list[Place] = []
        for key, value in entry.items():
            if key not in ("index", "id", "type", "function", "custom"):
                self._add(call.extra, key, value)
        custom, function = entry.get("custom"), entry.get("function")
        _check_kind(call, custom, function)
        if isinstance(custom, dict):
            call.kind = Kind.CUSTOM
            if not self._name(call, custom.get("name")):
                stray.append(("custom", "name"))
            if not self._text(call, custom.get("input"), raw, ("custom", "input")):
                stray.append(("custom", "input"))
        if isinstance(function, dict):
            inner = self._take_function(call, function, lambda *path: raw("function", *path))
            stray += [("function", *place) for place in inner]
        return stray

    def _take_function(self, call: OpenCall, function: dict[str, Any], raw: Callable[..., str]) -> list[Place]:
        stray: list[Place] = []
        if not self._name(call, function.get("name")):
            stray.append(("name",))
        if not self._text(call, function.get("arguments"), raw, ("arguments",)):
            stray.append(("arguments",))
        for key, value in function.items():
            if key not in ("id", "name", "arguments"):
                self._add(call.inner, key, value)
        return stray

    def _name(self, call: OpenCall, name: Any) -> bool:
        """Add to a call's name; False where that comes too late for it to be another."""
        if not isinstance(name, str | None):
            if call.name and call.pieces:
                return False
            call.nameless, call.name = True, ""
        if call.nameless or not name or name == call.name:
            return True  # left out, empty, or said again in every fragment
        if call.name and call.pieces:
            return False
        call.name += name
        self.size += len(name)
        return True

    def _text(self, call: OpenCall, value: Any, raw: Callable[..., str], path: tuple[str, ...]) -> bool:
        """Add to a call's arguments; False where they have been read already."""
        if value is None or value == "":
            return True
        if call.sealed:
            return False
        text = value if isinstance(value, str) else raw(*path)
        call.unwrapped = not isinstance(value, str) and not call.pieces  # a value in pieces is text
        call.pieces.append(text)
        self.size += len(text)
        return True


def _check_kind(call: OpenCall, custom: Any, function: Any) -> None:
    """One call is of one kind: what is both is read by some clients as the one and by others as the other."""
    as_custom = isinstance(custom, dict) and bool(custom.get("name") or custom.get("input"))
    as_function = isinstance(function, dict) and bool(function.get("name") or function.get("arguments"))
    begun = bool(call.name or call.pieces)
    of_both = (as_custom and begun and call.kind is not Kind.CUSTOM) or (
        as_function and begun and call.kind is Kind.CUSTOM
    )
    if of_both or (as_custom and as_function):
        raise UpstreamError("A call of the stream is both a function and a custom tool.", kind="protocol")


def _entries(delta: dict[str, Any]) -> list[dict[str, Any]]:
    entries = delta.get("tool_calls")
    return [e if isinstance(e, dict) else {} for e in entries] if isinstance(entries, list) else []


def entry_id(entry: dict[str, Any]) -> str:
    """The id of a call's entry: text, a number that some servers send, or inside `function`; empty: none."""
    function = entry.get("function")
    for value in (entry.get("id"), function.get("id") if isinstance(function, dict) else None):
        if value is not None and value != "":
            return value if isinstance(value, str) else render_text(value)
    return ""


def entry_name(entry: dict[str, Any]) -> str:
    for key in ("function", "custom"):
        part = entry.get(key)
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            return str(part["name"])
    return ""


def _said_again(call: OpenCall, entry: dict[str, Any]) -> Iterator[Place]:
    """The places of a later entry that say who the call is, though that is known, or that say it with nothing."""
    if "id" in entry and (call.call_id or not entry["id"]):
        yield ("id",)
    if "type" in entry and (call.type or not entry["type"]):
        yield ("type",)
    for key in ("function", "custom"):
        part = entry.get(key)
        if isinstance(part, dict) and "name" in part and (not part["name"] or part["name"] == call.name):
            yield (key, "name")


def _is_another(call: OpenCall, call_id: str, name: str) -> bool:
    """Whether a fragment that stands where `call` stands begins another call."""
    if call_id and call.call_id and call_id != call.call_id:
        return True
    return bool(name and call.name and name != call.name and call.pieces)  # another name behind arguments


_SAID_WHOLE = frozenset({"role", "type", "id", "format", "name"})


def _merged(old: Any, value: Any, key: str) -> Any:
    """A delta's value behind what came before: text grows, lists grow by index, objects merge, the rest replaces.
    Neither is changed, since events are kept that hold them."""
    if value is None:
        return old
    if isinstance(value, str) and isinstance(old, str) and key not in _SAID_WHOLE:
        return old + value
    if isinstance(value, dict) and isinstance(old, dict):
        found = dict(old)
        for inner, part in value.items():
            found[inner] = _merged(old.get(inner), part, inner)
        return found
    if isinstance(value, list):
        return _merged_list(old if isinstance(old, list) else [], value)
    return value


def _merged_list(old: list[Any], new: list[Any]) -> list[Any]:
    found = list(old)
    for item in new:
        at = _place_of(item, found)
        if at is None:
            found.append(item)
        else:
            found[at] = {**_merged(found[at], item, ""), "index": item["index"]}
    return found


def _place_of(item: Any, items: list[Any]) -> int | None:
    index = item.get("index") if isinstance(item, dict) else None
    if index is None:
        return None
    return next((at for at, known in enumerate(items) if isinstance(known, dict) and known.get("index") == index), None)
