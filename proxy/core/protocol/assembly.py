"""Deltas to whole calls and a whole message, for one choice of a chat stream.

Servers disagree on how fragments say which call they belong to: `index` may be missing, always 0, or changed
on the way; id and name may come in every fragment, as empty text, in pieces, or behind the arguments. The rules
here put each fragment to the call that a reader of the stream would put it to; the first identity that a call
shows is the one that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import join_surrogates, parse, render_text

Raw = Callable[[tuple[str | int, ...]], str]
"""Gives the JSON text of a value of the delta, by path: for arguments that came as an object."""


@dataclass(slots=True)
class OpenCall:
    """A call of which fragments have come. `ordinal` is its place in the model's order."""

    ordinal: int
    kind: Kind
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
        return ToolCall(CallId(self.call_id), join_surrogates(self.name), self.text, self.kind, self.unwrapped)

    def reads_as_complete(self) -> bool:
        """Whether its arguments are a whole JSON text by now."""
        try:
            parse(self.text)
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
        return {"id": self.call_id, "type": "function", "function": function, **self.extra}


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one entry of a delta is: entry `position` of `tool_calls` (None: the `function_call`) belongs to call
    `ordinal`; `opens`: it is the first of that call."""

    position: int | None
    ordinal: int
    opens: bool


class Assembler:
    """One choice of a stream: its calls and its message so far. `size` is what it holds, in characters."""

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.message: dict[str, Any] = {}
        self.size = 0
        self._by_index: dict[int, OpenCall] = {}
        self._legacy: OpenCall | None = None

    def add(self, delta: dict[str, Any], raw: Raw) -> list[Fragment]:
        """Take a delta in; says which calls its entries belong to. `raw` paths begin inside the delta."""
        found: list[Fragment] = []
        for position, entry in enumerate(_entries(delta)):
            before = len(self.calls)
            call = self._call_of(entry)
            self._take(call, entry, lambda *path, at=position: raw(("tool_calls", at, *path)))
            found.append(Fragment(position, call.ordinal, len(self.calls) > before))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            opens = self._legacy is None
            call = self._legacy = self._legacy or self._open(Kind.LEGACY)
            self._take_function(call, legacy, lambda *path: raw(("function_call", *path)))
            found.append(Fragment(None, call.ordinal, opens))
        self._merge(delta)
        return found

    def _merge(self, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key in ("tool_calls", "function_call"):
                continue
            self.size += len(value) if isinstance(value, str) else 16
            _merge_key(self.message, key, value)

    def _open(self, kind: Kind) -> OpenCall:
        call = OpenCall(len(self.calls), kind)
        self.calls.append(call)
        return call

    def _call_of(self, entry: dict[str, Any]) -> OpenCall:
        index, call_id, name = entry.get("index"), entry_id(entry), entry_name(entry)
        known = self._known(index, call_id, name)
        if known is None or _is_another(known, call_id, name):
            known = self._open(Kind.CUSTOM if isinstance(entry.get("custom"), dict) else Kind.FUNCTION)
        if isinstance(index, int):
            self._by_index[index] = known
        return known

    def _known(self, index: Any, call_id: str, name: str) -> OpenCall | None:
        if isinstance(index, int) and index in self._by_index:
            return self._by_index[index]
        if call_id and not (isinstance(index, int) and name):
            return next((c for c in reversed(self.calls) if c.call_id == call_id), None)
        if isinstance(index, int) or call_id:
            return None
        last = next((c for c in reversed(self.calls) if c.kind is not Kind.LEGACY), None)
        return None if last and name and last.pieces else last

    def _take(self, call: OpenCall, entry: dict[str, Any], raw: Callable[..., str]) -> None:
        call.call_id = call.call_id or entry_id(entry)
        for key, value in entry.items():
            if key not in ("index", "id", "type", "function", "custom"):
                _merge_key(call.extra, key, value)
        custom, function = entry.get("custom"), entry.get("function")
        if isinstance(custom, dict):
            call.kind = Kind.CUSTOM
            self._name(call, custom.get("name"))
            self._text(call, custom.get("input"), raw, ("custom", "input"))
        if isinstance(function, dict):
            self._take_function(call, function, lambda *path: raw("function", *path))

    def _take_function(self, call: OpenCall, function: dict[str, Any], raw: Callable[..., str]) -> None:
        self._name(call, function.get("name"))
        self._text(call, function.get("arguments"), raw, ("arguments",))
        for key, value in function.items():
            if key not in ("id", "name", "arguments"):
                _merge_key(call.inner, key, value)

    def _name(self, call: OpenCall, name: Any) -> None:
        if not isinstance(name, str) or not name or name == call.name:
            return  # left out, empty, or said again in every fragment
        if not call.pieces:
            call.name += name
            self.size += len(name)
        elif not call.name:
            call.name = name  # the arguments came first

    def _text(self, call: OpenCall, value: Any, raw: Callable[..., str], path: tuple[str, ...]) -> None:
        if isinstance(value, str):
            text = value
        elif value is None:
            return
        else:
            text, call.unwrapped = raw(*path), True
        if text:
            call.pieces.append(text)
            self.size += len(text)


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


def _is_another(call: OpenCall, call_id: str, name: str) -> bool:
    """Whether a fragment that stands where `call` stands begins another call."""
    if call_id and call.call_id:
        return call_id != call.call_id
    return bool(name and call.name and name != call.name and call.pieces)  # another name behind arguments


def _merge_key(into: dict[str, Any], key: str, value: Any) -> None:
    """Add a delta's value to what came before: text grows, lists grow by index, objects merge, the rest replaces."""
    old = into.get(key)
    if value is None:
        into.setdefault(key, None)
    elif isinstance(value, str) and isinstance(old, str) and key not in ("role", "type", "id", "format", "name"):
        into[key] = old + value
    elif isinstance(value, dict) and isinstance(old, dict):
        for inner, part in value.items():
            _merge_key(old, inner, part)
    elif isinstance(value, list) and isinstance(old, list):
        _merge_list(old, value)
    elif key == "role" and not value:
        return
    else:
        into[key] = dict(value) if isinstance(value, dict) else list(value) if isinstance(value, list) else value


def _merge_list(old: list[Any], new: list[Any]) -> None:
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        same = next((o for o in old if isinstance(o, dict) and index is not None and o.get("index") == index), None)
        if same is None:
            old.append(dict(item) if isinstance(item, dict) else item)
            continue
        for key, part in item.items():
            if key != "index":
                _merge_key(same, key, part)
