"""The script of the demonstration's upstream, and its answers as chat completions.

It looks for a word in the last user message and "calls" the tools that a model would call there; when the results
have come, it answers with a text that quotes them, so that anybody can see what the model was told. The words
and calls stand in `SCENES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.jsontext import Object, render, render_text

MODEL = "demo"
CREATED = 1_750_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the script makes. Ids are long and of letters, so that clients get them as they are."""

    call_id: str
    name: str
    arguments: Object


@dataclass(frozen=True, slots=True)
class Scene:
    """When the last user message holds `word`, these calls are made, as far as the request declares the tools."""

    word: str
    calls: tuple[Call, ...]


SCENES = (
    Scene("delete", (Call("call_DemoDeletesAnOrderXqTz", "delete_order", {"order_id": "7"}),)),
    Scene("search", (Call("call_DemoSearchesForShoesQw", "search_products", {"query": "shoes", "limit": 500}),)),
    Scene(
        "calendar",
        (
            Call("call_DemoAsksForTheOrderPlm", "get_order_status", {"order_id": "7"}),
            Call("call_DemoReadsTheCalendarVb", "read_calendar", {"day": "Thursday"}),
        ),
    ),
)
_STORY = (
    "Once there was a proxy that every tool call had to pass. It let the good ones through, "
    "kept the bad ones back, and told the model each time what it had done."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the script answers: a text, or calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def play(request: dict[str, Any]) -> Turn:
    """The turn that follows a chat completions request."""
    messages = [m for m in items_of(request.get("messages")) if isinstance(m, dict)]
    last_user = max((at for at, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    since = messages[last_user + 1 :]
    if results := _results(since):
        return Turn("The tools said: " + " ".join(f"{name}: {text}" for name, text in results))
    said = content_text(messages[last_user].get("content")).casefold() if last_user >= 0 else ""
    scene = next((s for s in SCENES if s.word in said), None)
    if scene is None:
        return Turn(_STORY)
    declared = _declared(request)
    calls = tuple(call for call in scene.calls if call.name in declared)
    if not calls:
        wanted = " and ".join(call.name for call in scene.calls)
        return Turn(f"I would call {wanted}, but the request declares no such tool.")
    return Turn(calls=calls)


def _results(messages: Sequence[Object]) -> list[tuple[str, str]]:
    """The tools' results in these messages, by the names of their calls."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        for call in items_of(message.get("tool_calls")):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(function, dict):
                names[str(call.get("id"))] = str(function.get("name"))
        if message.get("role") == "tool":
            found.append((names.get(str(message.get("tool_call_id")), "?"), content_text(message.get("content"))))
    return found


def _declared(request: Object) -> set[str]:
    functions = (tool.get("function") for tool in items_of(request.get("tools")) if isinstance(tool, dict))
    return {str(function.get("name")) for function in functions if isinstance(function, dict)}


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in items_of(content) if isinstance(part, dict))


# ---------------------------------------------------------------- on the wire


def render_completion(turn: Turn) -> bytes:
    """The whole answer of a turn."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [_wire_call(call) for call in turn.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}
    return render({**_envelope("chat.completion"), "choices": [choice], "usage": _usage(turn)})


def render_events(turn: Turn, *, with_usage: bool) -> list[bytes]:
    """The events of a turn's stream: words one by one, arguments in two pieces."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if turn.text else None}]
    deltas += [{"content": word} for word in turn.text.replace(" ", " \n").split("\n") if word]
    for index, call in enumerate(turn.calls):
        whole = _wire_call(call)
        arguments = whole["function"]["arguments"]
        middle = len(arguments) // 2
        begin = {**whole, "index": index, "function": {"name": call.name, "arguments": ""}}
        pieces = [{"index": index, "function": {"arguments": a}} for a in (arguments[:middle], arguments[middle:])]
        deltas += [{"tool_calls": [piece]} for piece in (begin, *pieces)]
    chunks = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk([{"index": 0, "delta": {}, "finish_reason": _finish(turn)}]))
    if with_usage:
        chunks.append({**_chunk([]), "usage": _usage(turn)})
    return [b"data: " + render(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def _wire_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": render_text(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


def _finish(turn: Turn) -> str:
    return "tool_calls" if turn.calls else "stop"


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-demo", "object": kind, "created": CREATED, "model": MODEL}


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_envelope("chat.completion.chunk"), "choices": choices}


def _usage(turn: Turn) -> dict[str, int]:
    words = len(turn.text.split()) + 8 * len(turn.calls)
    return {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words}
