"""Chat streams to feed: short ways to write the events of an upstream, and the two rules of most tests."""

from __future__ import annotations

import json
from typing import Any

from proxy.core.policy.decide import PolicySet
from tests.core.policy.engine import policies, rule
from tests.transcript import World

A, B, C, D = (f"call_{letter * 24}" for letter in "ABCD")
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}
DONE = "[DONE]"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
NO_DELETES = rule("delete_file", name="no-deletes", block={"message": "Not here."})
CAP = rule("search", name="cap", rewrite={"clamp": {"limit": {"max": 10}}})
RULES: PolicySet = policies([NO_DELETES, CAP])
WORLD = World(RULES)


def event(delta: Any = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **HEAD,
        "choices": [{"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}],
        **more,
    }


def usage(**more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [], "usage": USAGE, **more}


def role(index: int = 0) -> dict[str, Any]:
    return event({"role": "assistant", "content": None}, index=index)


def text(content: str, index: int = 0) -> dict[str, Any]:
    return event({"content": content}, index=index)


def entry(index: int | None, call_id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    """One entry of `tool_calls`; what is None is left out."""
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v is not None}
    head = {"id": call_id, "type": "function"} if call_id is not None else {}
    return {**({"index": index} if index is not None else {}), **head, "function": function}


def calls(*entries: dict[str, Any], finish: str | None = None, choice: int = 0, **delta: Any) -> dict[str, Any]:
    return event({**delta, "tool_calls": list(entries)}, finish, choice)


def whole(index: int | None, call_id: str | None, name: str, args: Any = "{}") -> dict[str, Any]:
    """An event with a call in one piece."""
    return calls(entry(index, call_id, name, args))


def split(index: int, call_id: str, name: str, args: str) -> list[dict[str, Any]]:
    """A call as OpenAI streams it."""
    half = len(args) // 2
    pieces = [piece for piece in (args[:half], args[half:]) if piece]
    return [calls(entry(index, call_id, name, "")), *(calls(entry(index, args=piece)) for piece in pieces)]


def sse(*events: dict[str, Any] | str | bytes, done: bool = True) -> bytes:
    """Events as bytes: objects as JSON, text as data, bytes as they are."""
    out = [_rendered(e) for e in (*events, *([DONE] if done else []))]
    return b"".join(out)


def _rendered(given: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(given, bytes):
        return given
    data = given if isinstance(given, str) else json.dumps(given, separators=(",", ":"), ensure_ascii=False)
    return b"data: " + data.encode("utf-8", "surrogatepass") + b"\n\n"
