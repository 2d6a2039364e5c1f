"""Chat completions as tests write them: calls, messages, answers in one piece and as streams."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_upstream import Asked, Events, Whole

PATH = "/v1/chat/completions"
A, B, C, D = (f"call_{letter * 24}" for letter in "ABCD")
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_ENVELOPE = {"id": "chatcmpl-0001", "created": 1760000000, "model": "gpt-test"}

Message = dict[str, Any]


def call(call_id: str, name: str, **arguments: Any) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def tool(name: str, **properties: Any) -> Message:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def user(text: str = "hello") -> Message:
    return {"role": "user", "content": text}


def said(*calls: Message, text: str | None = None) -> Message:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def result(call_id: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def body(*messages: Message, tools: tuple[str, ...] = (), **more: Any) -> Message:
    declared = {"tools": [tool(name) for name in tools]} if tools else {}
    return {"model": "gpt-test", "messages": list(messages) or [user()], **declared, **more}


def choice(*calls: Message, text: str | None = None, index: int = 0, finish: str | None = None) -> Message:
    reason = finish or ("tool_calls" if calls else "stop")
    return {"index": index, "message": said(*calls, text=text), "logprobs": None, "finish_reason": reason}


def answer(*calls: Message, text: str | None = None, finish: str | None = None, **more: Any) -> Whole:
    return answers(choice(*calls, text=text, finish=finish), **more)


def answers(*choices: Message, **more: Any) -> Whole:
    return Whole({"object": "chat.completion", **_ENVELOPE, "choices": list(choices), "usage": USAGE, **more})


def chunk(delta: Message | None, finish: str | None = None, index: int = 0, **more: Any) -> Message:
    choices = [] if delta is None else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {"object": "chat.completion.chunk", **_ENVELOPE, "choices": choices, **more}


def call_chunks(at: int, made: Message, index: int = 0) -> list[Message]:
    """A call as OpenAI streams it: id and name first, then its arguments in two pieces."""
    text = made["function"]["arguments"]
    head = {"index": at, "id": made["id"], "type": "function", "function": {**made["function"], "arguments": ""}}
    rest = [{"index": at, "function": {"arguments": part}} for part in (text[:3], text[3:]) if part]
    return [chunk({"tool_calls": [entry]}, index=index) for entry in (head, *rest)]


def events(*calls: Message, text: str = "", index: int = 0, finish: str | None = None) -> list[Any]:
    """The events of one choice, usage left out."""
    found: list[Any] = [chunk({"role": "assistant", "content": "" if text else None}, index=index)]
    found += [chunk({"content": piece}, index=index) for piece in (text[:2], text[2:]) if piece]
    for at, made in enumerate(calls):
        found += call_chunks(at, made, index)
    return [*found, chunk({}, finish or ("tool_calls" if calls else "stop"), index)]


def stream(*calls: Message, text: str = "", finish: str | None = None, **more: Any) -> Events:
    return Events([*events(*calls, text=text, finish=finish), chunk(None, usage=USAGE)], **more)


def history(asked: Asked) -> list[Message]:
    """The messages of a request to the upstream, less what the builders here leave out."""
    return [{k: v for k, v in message.items() if k not in ("refusal",)} for message in asked.messages]


def blocked(message: str, rule: str, policy: str = "p") -> str:
    return f"Tool call blocked by policy {policy}/{rule}: {message}"


def follow(message: Message, *contents: str, before: tuple[Message, ...] = ()) -> list[Message]:
    """What a client sends next: what was said before, the assistant's message, a result for each of its calls."""
    calls = message.get("tool_calls") or []
    results = [result(made["id"], content) for made, content in zip(calls, contents, strict=True)]
    return [*(before or (user(),)), message, *results]
