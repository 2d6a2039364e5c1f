"""A client that is as strict about a chat stream as the strictest of the real ones, and an answer's folding.

It refuses what some SDK breaks on: gaps in `index`, an id or name said twice, a role said twice, something of a
choice behind its finish, two usage events, anything behind usage but the last event, ids that change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.core.protocol.sse import EventSplitter

Json = Any


@dataclass(slots=True)
class Folded:
    """One choice, put together. Calls are (id, type, name, arguments)."""

    role: str = ""
    content: str = ""
    reasoning: str = ""
    calls: list[list[Any]] = field(default_factory=list)
    function_call: list[str] | None = None
    finish: str | None = None

    @property
    def names(self) -> list[str]:
        return [call[2] for call in self.calls]


@dataclass(slots=True)
class Stream:
    choices: dict[int, Folded] = field(default_factory=dict)
    usage: Json = None
    done: int = 0
    errors: list[Json] = field(default_factory=list)
    id: str = ""
    repeats: bool = False


def data_of(out: bytes) -> list[bytes]:
    """The data of each event, less comments."""
    splitter = EventSplitter()
    events = splitter.feed(out)
    rest = splitter.finish()
    return [e.data for e in [*events, *([rest] if rest else [])] if e.data is not None]


def read_strictly(out: bytes, *, repeats: bool = False) -> Stream:
    """What a strict client makes of a stream. Raises AssertionError. `repeats`: the upstream says again who a call is,
    and what it sent before something had to change went out so."""
    stream = Stream(repeats=repeats)
    for data in data_of(out):
        if data.strip() == b"[DONE]":
            stream.done += 1
            continue
        assert not stream.done, "something behind the last event"
        _event(stream, json.loads(data))
    assert stream.done <= 1
    assert all(call[2] for choice in stream.choices.values() for call in choice.calls), "a call without a name"
    return stream


def _event(stream: Stream, event: dict[str, Any]) -> None:
    if event.get("error"):
        stream.errors.append(event["error"])
        return
    if event.get("id"):
        assert stream.id in ("", event["id"]), "the id changes"
        stream.id = event["id"]
    for choice in event.get("choices") or []:
        assert stream.usage is None or event.get("usage"), "a choice behind the usage"
        _choice(stream.choices.setdefault(choice["index"], Folded()), choice, repeats=stream.repeats)
    if event.get("usage"):
        stream.usage = event["usage"]


def _choice(folded: Folded, choice: dict[str, Any], *, repeats: bool) -> None:
    delta = choice.get("delta") or {}
    assert folded.finish is None or not any(delta.get(k) for k in ("content", "tool_calls", "function_call")), (
        "something of a choice behind its end"
    )
    if delta.get("role"):
        assert not folded.role, "the role comes twice"
        folded.role = delta["role"]
    assert folded.role, "no role before everything else"
    content = delta.get("content")
    folded.content += content if isinstance(content, str) else ""
    folded.reasoning += delta.get("reasoning_content") or ""
    for entry in delta.get("tool_calls") or []:
        _entry(folded, entry, repeats=repeats)
    if delta.get("function_call"):
        folded.function_call = folded.function_call or ["", ""]
        folded.function_call[0] += delta["function_call"].get("name") or ""
        folded.function_call[1] += delta["function_call"].get("arguments") or ""
    if choice.get("finish_reason"):
        assert folded.finish is None, "it ends twice"
        folded.finish = choice["finish_reason"]


def _entry(folded: Folded, entry: dict[str, Any], *, repeats: bool) -> None:
    index, part = entry["index"], entry.get("function") or entry.get("custom") or {}
    assert isinstance(index, int)
    assert index <= len(folded.calls), "a gap in the numbers of calls"
    if index == len(folded.calls):
        assert isinstance(entry["id"], str)
        folded.calls.append([entry["id"], entry["type"], part.get("name", ""), ""])
    else:
        call = folded.calls[index]
        if repeats:
            assert entry.get("id") in (call[0], "", None)
        else:
            assert not ({"id", "type"} & entry.keys()), "a call says again who it is"
            assert part.get("name", "more") is not None, "a name that is null"
        call[2] += "" if repeats and part.get("name") == call[2] else part.get("name") or ""
    for key in ("arguments", "input"):
        value = part.get(key)
        assert value is None or isinstance(value, str)
        folded.calls[index][3] += value or ""
