"""Streams of responses to feed: short ways to write what an upstream sends for an item, and for a whole response."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
USAGE = {"input_tokens": 5, "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 11}


@dataclass(slots=True)
class Item:
    """An item as the upstream sends it: its events, less numbers and places, and itself as the response lists it."""

    events: list[Event]
    listed: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)


def added(item: dict[str, Any]) -> Event:
    return {"type": "response.output_item.added", "output_index": 0, "item": item}


def done(item: dict[str, Any]) -> Event:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def message(text: str, item_id: str = "msg_1") -> Item:
    """A message whose text comes in two pieces."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    about = {"item_id": item_id, "output_index": 0, "content_index": 0}
    half = len(text) // 2
    return Item(
        [
            added({**item, "status": "in_progress", "content": []}),
            {"type": "response.content_part.added", **about, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **about, "delta": piece, "logprobs": [], "obfuscation": "zz"}
                for piece in (text[:half], text[half:])
                if piece
            ),
            {"type": "response.output_text.done", **about, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **about, "part": part},
            done(item),
        ],
        item,
    )


def reasoning(item_id: str = "rs_1") -> Item:
    item = {"id": item_id, "type": "reasoning", "summary": [], "encrypted_content": "ENC-full"}
    return Item([added({**item, "encrypted_content": "ENC"}), done(item)], item)


def call(
    name: str,
    args: str = "{}",
    call_id: str = "",
    *,
    item_id: str = "",
    cuts: Sequence[int] | None = None,
    custom: bool = False,
    **more: Any,
) -> Item:
    """A call whose text comes in pieces, cut at these places (by default in the middle; an empty list: in one)."""
    kind, place = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
    call_id = call_id or f"call_{name}_1234567890abcdef"
    item_id = item_id or f"{'ctc' if custom else 'fc'}_{call_id[5:]}"
    item = {"id": item_id, "type": kind, "status": "completed", place: args, "call_id": call_id, "name": name, **more}
    event = "custom_tool_call_input" if custom else "function_call_arguments"
    about = {"item_id": item_id, "output_index": 0}
    at = [0, *([len(args) // 2] if cuts is None else cuts), len(args)]
    pieces = [piece for a, b in itertools.pairwise(at) if (piece := args[a:b])]
    named = {} if custom else {"name": name}
    return Item(
        [
            added({**item, "status": "in_progress", place: ""}),
            *({"type": f"response.{event}.delta", **about, "delta": piece, "obfuscation": "zzQ"} for piece in pieces),
            {"type": f"response.{event}.done", **about, **named, place: args},
            done(item),
        ],
        item,
    )


def without(item: Item, *kinds: str) -> Item:
    """An item less events whose type ends so."""
    return Item([e for e in item.events if not e["type"].endswith(kinds)], item.listed)


def shell(commands: list[str], call_id: str = "call_shell_1234567890ab", item_id: str = "sh_1") -> Item:
    """A call of the shell, whose events have no id."""
    action = {"commands": commands, "timeout_ms": None}
    item = {"id": item_id, "type": "shell_call", "status": "completed", "call_id": call_id, "action": action}
    events = [added({**item, "status": "in_progress", "action": {"commands": []}})]
    for number, command in enumerate(commands):
        about = {"output_index": 0, "command_index": number}
        events += [
            {"type": "response.shell_call_command.added", **about, "command": ""},
            {"type": "response.shell_call_command.delta", **about, "delta": command},
            {"type": "response.shell_call_command.done", **about, "command": command},
        ]
    return Item([*events, done(item)], item)


def approval(name: str, args: str = "{}", item_id: str = "mcpr_1234567890abcdef", label: str = "docs") -> Item:
    item = {"id": item_id, "type": "mcp_approval_request", "server_label": label, "name": name, "arguments": args}
    return Item([added(item), done(item)], item)


def response(status: str, output: Sequence[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": True,
        "usage": USAGE if status not in ("in_progress", "queued") else None,
        **more,
    }


def events_of(
    *items: Item, status: str = "completed", output: Any = "all", ends: bool = True, **more: Any
) -> list[Event]:
    """The events of a response, one item after another, each at its place. `output` is its list in the end."""
    begun = response("in_progress", [], **more)
    found: list[Event] = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for index, item in enumerate(items):
        found += [{**event, "output_index": index} if "output_index" in event else event for event in item.events]
    listed = [item.listed for item in items] if output == "all" else output
    if ends:
        found.append({"type": f"response.{status}", "response": response(status, listed, **more)})
    return found


def numbered(events: Sequence[Event], first: int = 0) -> list[Event]:
    return [event | {"sequence_number": first + number} for number, event in enumerate(events)]


def sse(events: Sequence[Event | bytes], *, done: bool = False) -> bytes:
    out = [
        e if isinstance(e, bytes) else f"event: {e['type']}\ndata: {json.dumps(e, separators=(',', ':'))}\n\n".encode()
        for e in events
    ]
    return b"".join([*out, *([b"data: [DONE]\n\n"] if done else [])])


def stream(*items: Item, done: bool = False, **more: Any) -> bytes:
    """A response as OpenAI streams it."""
    return sse(numbered(events_of(*items, **more)), done=done)
