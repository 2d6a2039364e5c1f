"""What a request shows of its conversation, in words that both wires share: value types only.

`protocol/` reads a chat's messages or a response's items into entries; `batch/` finds in them what it split or
hid; nobody else needs to know how a message looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.calls import ToolCall


class EntryKind(StrEnum):
    USER = "user"
    CALLS = "calls"  # the assistant's, with tool calls
    TEXT = "text"  # the assistant's, without
    RESULT = "result"  # of a tool call
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One message or item. `text` is its content as text (a result's, or an assistant's); `call_id` and `name`
    are a result's (name: only where the wire gives one)."""

    index: int
    kind: EntryKind
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
