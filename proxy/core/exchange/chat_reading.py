"""Reading an event of a chat stream: what it says, whether a call is in it, and what cannot be read in one way.

An event that is no JSON passes as it came, unless a call could be in it: then the answer is broken off. A call is
only where the wire puts one, in a choice's delta; where else it stands, nothing of it passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.core import jsontext
from proxy.core.jsontext import Path
from proxy.core.protocol.completion import UnreadableError, holds_call, read_odd, reads_two_ways
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError

_NAMES = (b'"tool_calls"', b'_call"')


def read_event(data: bytes, marks: Sequence[bytes] = _NAMES) -> dict[str, Any] | None:
    """An event's data as an object; None where it is none. Raises UpstreamError where it could hide a call: `marks` are
    what a call has in it."""
    try:
        value = jsontext.parse(data)
    except ValueError:
        value = _read_odd(data, marks)
    if isinstance(value, list) and any(mark in data for mark in marks):
        raise _unreadable()
    return value if isinstance(value, dict) else None


def _read_odd(data: bytes, marks: Sequence[bytes]) -> Any:
    try:
        value = read_odd(data)
    except UnreadableError as error:
        raise _unreadable() from error
    if value is None and any(mark in data for mark in marks):
        raise _unreadable()
    return value


_FIELDS = (b"data:", b"event:", b"id:", b"retry:")


def check_apart(event: Event, marks: Sequence[bytes] = _NAMES) -> None:
    """Look at what of an event is no field of it, as all is of what is no stream of events. Raises UpstreamError where
    a client that reads line by line could find a call in it."""
    raw = event.raw
    if (b"_call" not in raw and b"mcp_" not in raw) or not any(mark in raw for mark in marks):
        return
    known = () if event.data is None else _FIELDS
    said = b"\n".join(line for line in raw.splitlines() if not line.startswith((b":", *known)))
    if any(mark in said for mark in marks):
        raise _unreadable()


def _is_misplaced(choice: Any) -> bool:
    """Whether a choice has a call beside its delta and its message."""
    if not isinstance(choice, dict):
        return holds_call(choice)
    beside = {key: inner for key, inner in choice.items() if key not in ("message", "delta")}
    delta = choice.get("delta")
    return holds_call(beside) or (not isinstance(delta, dict) and holds_call(delta))


def has_stray_call(data: bytes, value: dict[str, Any]) -> bool:
    """Whether an event of a chat stream has a call anywhere but where a choice has it."""
    if b"_call" not in data:
        return False
    kind, choices = value.get("type"), value.get("choices")
    if isinstance(kind, str) and kind.startswith("response.") and "_call" in kind:
        return True  # as the Responses API has it
    listed = choices if isinstance(choices, list) else [choices]
    beside = {key: inner for key, inner in value.items() if key not in ("choices", "usage")}
    return holds_call(beside) or any(map(_is_misplaced, listed))


def check_once(data: bytes) -> None:
    """Look for what an event says twice. Raises UpstreamError where two readers could find two calls in it."""
    if reads_two_ways(data):
        raise UpstreamError("An event of the stream says twice what its tool call is.", kind="protocol")


def _unreadable() -> UpstreamError:
    return UpstreamError("An event of the stream is no plain JSON and could hold a tool call.", kind="protocol")


def choices_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice for choice in value["choices"] if isinstance(choice, dict)]


def delta_of(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice's delta; empty where it has none. Raises UpstreamError for calls that are no list."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return {}
    if delta.get("tool_calls") and not isinstance(delta["tool_calls"], list):
        raise UpstreamError("The tool calls of an event are no list.", kind="protocol")
    return delta


def has_call(choice: dict[str, Any]) -> bool:
    """Whether a call is in a choice, or in a message that it repeats whole."""
    delta = delta_of(choice)
    return bool(delta.get("tool_calls") or delta.get("function_call")) or has_message(choice)


def has_message(choice: dict[str, Any]) -> bool:
    """Whether a choice has a whole message with calls, as some servers add to the last event of a stream."""
    return holds_call(choice.get("message"))


def without_calls(event: Event, value: dict[str, Any]) -> bytes:
    """An event that is passed on for what it says beside choices, less choices that have a call."""
    if event.data is None or not holds_call(value.get("choices")):
        return event.raw
    return event.with_data(jsontext.edit(event.data, {("choices",): b"[]"}))


def apart(event: Event) -> list[Event]:
    """An event for several choices as one event for each; what it used stays with the first."""
    assert event.data is not None
    found: list[Event] = []
    for number, raw in enumerate(jsontext.elements(event.data, ("choices",))):
        changes: dict[Path, bytes | None] = {("choices",): jsontext.array([raw])}
        if number:
            changes["usage",] = None
        data = jsontext.edit(event.data, changes)
        found.append(Event(event.with_data(data), data))
    return found
