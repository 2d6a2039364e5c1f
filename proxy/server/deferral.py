"""An answer of our own: deferred calls that are due, without asking the upstream."""

from __future__ import annotations

import secrets
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.rejoin import Anchor
from proxy.core.exchange.chat_rejoin import given_calls
from proxy.core.protocol.chat import ChatRequest
from proxy.core.protocol.sse import render
from proxy.server.http import Headers
from proxy.server.replies import REQUEST_ID
from proxy.server.services import ExchangeIn

_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


async def surface_due(exchange: ExchangeIn, request: ChatRequest, anchor: Anchor, *, now: float) -> None:
    """Give the client the next calls of its batch, in one piece or as a stream, as it asked."""
    calls = given_calls(anchor.batch, anchor.due)
    envelope = {
        "id": f"chatcmpl-{secrets.token_hex(14)}",
        "created": int(now),
        "model": request.value.get("model") or "",
    }
    if request.value.get("stream") is True:
        body, kind = _stream(request, envelope, calls), "text/event-stream; charset=utf-8"
    else:
        body, kind = _whole(envelope, calls), "application/json"
    headers: Headers = (
        ("content-type", kind),
        ("content-length", str(len(body))),
        (REQUEST_ID, exchange.request_id),
    )
    await exchange.client.start(200, headers)
    await exchange.client.write(body)
    await exchange.client.finish()


def _whole(envelope: dict[str, Any], calls: list[bytes]) -> bytes:
    message = {"role": "assistant", "content": None, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    answer = {"object": "chat.completion", **envelope, "choices": [choice], "usage": _NO_USAGE}
    return jsontext.edit(jsontext.render(answer), {("choices", 0, "message", "tool_calls"): jsontext.array(calls)})


def _stream(request: ChatRequest, envelope: dict[str, Any], calls: list[bytes]) -> bytes:
    def event(choices: list[Any], **more: Any) -> bytes:
        return jsontext.render({"object": "chat.completion.chunk", **envelope, "choices": choices, **more})

    def choice(delta: dict[str, Any], finish: str | None = None) -> list[Any]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

    place = ("choices", 0, "delta", "tool_calls")
    events = [event(choice({"role": "assistant", "content": None}))]
    for index, call in enumerate(calls):
        entry = jsontext.edit(call, {("index",): jsontext.render(index)})
        events.append(jsontext.edit(event(choice({})), {place: jsontext.array([entry])}))
    events.append(event(choice({}, "tool_calls")))
    options = request.value.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        events.append(event([], usage=_NO_USAGE))
    return b"".join(map(render, [*events, b"[DONE]"]))
