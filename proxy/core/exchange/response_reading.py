"""Reading an event of a response's stream: what it is to an item, and what of it could hide a call.

A call is where the wire puts one: in an event that is of its kind, in an event's `item`, and in the list of a
response's output. Where else it stands, nothing of it passes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from proxy.core.exchange import chat_reading
from proxy.core.protocol.completion import holds_call
from proxy.core.protocol.response_items import call_type, is_call_type
from proxy.core.protocol.sse import Event

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
BEGINNINGS = frozenset({"response.created", "response.queued", "response.in_progress"})

_MARKS = (b'"tool_calls"', b'_call"', b"_call_", b"_call.", b'"mcp_approval_request"')
_CALL_EVENT = re.compile(r"response\.(\w+?_call|mcp_approval_request)(?:_(\w+))?\.(\w+)")
_TEXTS = {("function_call", "arguments"), ("custom_tool_call", "input")}
_EVENT_LINE = re.compile(rb"^event:[ ]?([^\r\n]*)", re.MULTILINE)


class Part(Enum):
    """What an event is to its item."""

    ADDED = auto()  # the item as it begins
    PIECE = auto()  # a piece of what a call is to do
    TEXT = auto()  # its arguments, whole
    DONE = auto()  # the item, whole
    OTHER = auto()


@lru_cache(maxsize=512)
def part_of(kind: str) -> tuple[Part, str]:
    """What a type of event is to its item, and the type of the call that such an event belongs to (or none)."""
    if kind == "response.output_item.added":
        return Part.ADDED, ""
    if kind == "response.output_item.done":
        return Part.DONE, ""
    found = _CALL_EVENT.fullmatch(kind)
    if found is None or not is_call_type(found[1]) or (found[2] or "").startswith("output"):
        return Part.OTHER, ""
    if (found[1], found[2]) in _TEXTS and found[3] == "done":
        return Part.TEXT, found[1]
    return Part.PIECE, found[1]


def read_event(data: bytes) -> dict[str, Any] | None:
    """An event's data as an object; None where it is none. Raises UpstreamError where it could hide a call."""
    return chat_reading.read_event(data, _MARKS)


def check_apart(event: Event) -> None:
    """Look at what of an event is no field of it. Raises UpstreamError where a client could find a call in it."""
    chat_reading.check_apart(event, _MARKS)


def type_of(event: Event, value: dict[str, Any]) -> str:
    """The type of an event: what its data say, and where they say nothing, its name."""
    kind = value.get("type")
    if kind is None and (named := _EVENT_LINE.search(event.raw)):
        return named[1].strip().decode("utf-8", "replace")
    return kind if isinstance(kind, str) else ""


def text_at(value: dict[str, Any], key: str) -> str:
    """A member that is a text; empty where it is none."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def number_at(value: dict[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def may_be_call(item: Any, hosted: Collection[str], *, whole: bool = False) -> bool:
    """Whether an item, which need not be `whole` yet, could be a call that somebody other than the upstream runs."""
    kind = call_type(item, whole=whole) if isinstance(item, dict) else ""
    if not kind or kind.removesuffix("_call") in hosted:
        return False
    return not (kind == "tool_search_call" and item.get("execution") == "server")


def has_loose_text(kind: str, value: dict[str, Any]) -> bool:
    """Whether an event that nobody knows as one of a call's has what those have: pieces of a text, where its type does
    not say of what, or arguments."""
    places = ("arguments", "input") if kind else ("arguments", "input", "delta")
    if all(value.get(place) is None for place in places):
        return False
    return not (kind and (part_of(kind)[1] or _CALL_EVENT.fullmatch(kind) or "item" in value))


def hides_call(event: Event, value: dict[str, Any], hosted: Collection[str]) -> bool:
    """Whether a call stands in an event where the wire has no place for one."""
    data = event.data or b""
    if b"_call" not in data and b"call_id" not in data and b"mcp_approval" not in data and b"\\u" not in data:
        return False  # as is nearly all text
    if value.get("tool_calls") or any(holds_call(value.get(place)) for place in ("choices", "message", "delta")):
        return True  # as a chat completion has it
    item, response = value.get("item"), value.get("response")
    found = [inner for key, inner in value.items() if key not in ("item", "response")]
    found += item.values() if isinstance(item, dict) else [item]
    if not isinstance(response, dict):
        return _holds_call([*found, response], hosted)
    output = response.get("output")
    for listed in output if isinstance(output, list) else [[output]]:
        found += listed.values() if isinstance(listed, dict) else [listed]
    return _holds_call(found, hosted)


def _holds_call(value: Any, hosted: Collection[str]) -> bool:
    if isinstance(value, list):
        return any(_holds_call(inner, hosted) for inner in value)
    if not isinstance(value, dict):
        return False
    is_odd = not is_call_type(text_at(value, "type")) and value.get("call_id") is None
    if not is_odd and may_be_call(value, hosted, whole=True):
        return True
    return any(_holds_call(inner, hosted) for inner in value.values())
