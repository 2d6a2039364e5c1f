"""The scripted upstream's Responses API: the same turns as for chat completions, on the other wire.

It keeps the latest responses, so that `previous_response_id` works. A history becomes chat messages, which the script
(`script.play`) reads; what it says becomes output items and, for a stream, events.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from proxy.core.jsontext import render, render_text
from proxy.demo.script import CREATED, MODEL, Turn, content_text, items_of, play

_MOST_KEPT = 1000

Object = dict[str, Any]


class UnknownResponseError(LookupError):
    """A `previous_response_id` that names nothing that is kept."""


@dataclass(slots=True)
class Kept:
    """The latest responses by their ids: the response, and the conversation to its end as chat messages."""

    responses: OrderedDict[str, tuple[Object, list[Object]]] = field(default_factory=OrderedDict)

    def add(self, response: Object, messages: list[Object]) -> None:
        self.responses[str(response["id"])] = (response, messages)
        if len(self.responses) > _MOST_KEPT:
            self.responses.popitem(last=False)


def respond(request: Object, kept: Kept) -> Object:
    """The response to a request, which is kept unless the request says otherwise. Raises UnknownResponseError."""
    previous = request.get("previous_response_id")
    before: list[Object] = []
    if previous is not None:
        if previous not in kept.responses:
            raise UnknownResponseError(f"Previous response with id '{previous}' not found.")
        before = kept.responses[str(previous)][1]
    messages = [*before, *_messages(request.get("input"))]
    turn = play({"messages": messages, "tools": [{"function": tool} for tool in items_of(request.get("tools"))]})
    output = _output(turn)
    words = len(turn.text.split()) + 8 * len(turn.calls)
    response: Object = {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "store": request.get("store") is not False,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": items_of(request.get("tools")),
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": words,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 10 + words,
        },
    }
    if response["store"]:
        kept.add(response, [*messages, *_messages(output)])
    return response


def _messages(given: Any) -> list[Object]:
    """Items as the chat messages that say the same."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[Object] = []
    for item in items_of(given):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            found.append({"role": item.get("role"), "content": content_text(item.get("content"))})
        elif kind == "function_call":
            call = {"id": item.get("call_id"), "function": {"name": item.get("name")}}
            found.append({"role": "assistant", "tool_calls": [call]})
        elif kind == "function_call_output":
            text = content_text(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
    return found


def _output(turn: Turn) -> list[Object]:
    if not turn.calls:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        item_id = f"msg_{secrets.token_hex(24)}"
        return [{"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}]
    return [
        {
            "id": f"fc_{secrets.token_hex(24)}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": render_text(call.arguments),
        }
        for call in turn.calls
    ]


def render_events(response: Object) -> list[bytes]:
    """The events of a response's stream: words one by one, arguments in two pieces."""
    return [
        b"event: " + event["type"].encode() + b"\ndata: " + render({**event, "sequence_number": number}) + b"\n\n"
        for number, event in enumerate(_events(response))
    ]


def _events(response: Object) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(items_of(response["output"])):
        of_item = {"output_index": index, "item_id": item["id"]}
        is_message = item["type"] == "message"
        added = {**item, "status": "in_progress", "content" if is_message else "arguments": [] if is_message else ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        yield from _message_events(item, of_item) if is_message else _call_events(item, of_item)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _message_events(item: dict[str, Any], of_item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    part = item["content"][0]
    of_part = {**of_item, "content_index": 0}
    yield {"type": "response.content_part.added", **of_part, "part": {**part, "text": ""}}
    for word in part["text"].replace(" ", " \n").split("\n"):
        yield {"type": "response.output_text.delta", **of_part, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **of_part, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **of_part, "part": part}


def _call_events(item: dict[str, Any], of_item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    arguments = item["arguments"]
    middle = len(arguments) // 2
    for piece in (arguments[:middle], arguments[middle:]):
        yield {"type": "response.function_call_arguments.delta", **of_item, "delta": piece}
    name = {"name": item["name"], "arguments": arguments}
    yield {"type": "response.function_call_arguments.done", **of_item, **name}
