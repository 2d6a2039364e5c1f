"""A response as an answer in one piece: its output items, and where its calls stand among them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import ToolCall
from proxy.core.protocol.completion import UnreadableError, holds_call, read_odd
from proxy.core.protocol.response_items import read_call

__all__ = ["CUT_SHORT", "RUNNING", "Output", "UnreadableError", "is_cut_short", "read_output", "read_response"]

CUT_SHORT = frozenset({"incomplete", "failed", "cancelled"})
"""The states of a response whose calls the model may not have meant to make."""

RUNNING = frozenset({"queued", "in_progress"})
"""The states of a response in the background that has not ended."""


def is_cut_short(response: Mapping[str, Any]) -> bool:
    """Whether a response says that its turn was cut short."""
    status = response.get("status")
    return isinstance(status, str) and status in CUT_SHORT


@dataclass(frozen=True, slots=True)
class Output:
    """The items of a response in order, a number in the place of each call; and its calls with their bytes."""

    layout: tuple[bytes | int, ...]
    calls: tuple[tuple[ToolCall, bytes], ...]


def read_response(body: bytes) -> dict[str, Any] | None:
    """A body as a response; None where it is none. Raises UnreadableError where it could hide a call."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = read_odd(body)
    if isinstance(value, dict) and isinstance(value.get("output"), list):
        if holds_call(value.get("choices")) or holds_call(value.get("response")):
            raise UnreadableError("it has calls beside its output")
        return value
    if holds_call(value):
        raise UnreadableError("it is no response")
    return None


def read_output(body: bytes, value: Mapping[str, Any], *, hosted: Collection[str] = ()) -> Output:
    """The output items of a response. `hosted` are tools that the upstream runs."""
    layout: list[bytes | int] = []
    calls: list[tuple[ToolCall, bytes]] = []
    for item, raw in zip(value["output"], jsontext.elements(body, ("output",)), strict=True):
        call = read_call(item, raw, hosted=hosted) if isinstance(item, dict) else None
        if call is None:
            layout.append(raw)
        else:
            layout.append(len(calls))
            calls.append((call, raw))
    return Output(tuple(layout), tuple(calls))
