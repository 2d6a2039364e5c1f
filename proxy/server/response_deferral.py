"""A response of our own: deferred calls that are due, without asking the upstream.

The upstream does not hear of it until the calls have results: what the client has sent by then is carried over to the
request that builds on this response.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import ResponseRecord
from proxy.core.batch.rejoin import Anchor
from proxy.core.exchange.response_rejoin import Sent, given_items
from proxy.core.protocol.response_events import item_events
from proxy.core.protocol.response_request import ResponseRequest
from proxy.core.protocol.sse import render
from proxy.server.http import Headers
from proxy.server.remembering import Memory
from proxy.server.replies import REQUEST_ID
from proxy.server.services import ExchangeIn

_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "model": "",
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


async def surface_due_items(
    exchange: ExchangeIn,
    request: ResponseRequest,
    anchor: Anchor,
    *,
    sent: Sent,
    before: ResponseRecord | None,
    remembered: bool,
    memory: Memory,
    now: float,
) -> None:
    """Give the client the next calls of its batch, in one piece or as a stream, as it asked. Raises StoreError."""
    items = given_items(anchor.batch, anchor.due)
    response = _response(request, now=now)
    whole = jsontext.edit(jsontext.render(response), {("output",): jsontext.array(items)})
    if request.stored or remembered:
        carried = [*sent.raws, *(() if remembered else items)]
        record = ResponseRecord(
            (before.response_id if before else request.previous) if remembered else "",
            carried=tuple(raw.decode("utf-8", "replace") for raw in carried),
            own=whole.decode("utf-8", "replace"),
        )
        if before is not None:
            record = replace(record, owed=before.owed, denied=before.denied, calls=before.calls)
        await memory.keep(record, ids=[response["id"]], conversation=request.conversation, calls={})
    if request.streams:
        body, kind = own_stream(whole), "text/event-stream; charset=utf-8"
    else:
        body, kind = whole, "application/json"
    headers: Headers = (
        ("content-type", kind),
        ("content-length", str(len(body))),
        (REQUEST_ID, exchange.request_id),
    )
    await exchange.client.start(200, headers)
    await exchange.client.write(body)
    await exchange.client.finish()


def _response(request: ResponseRequest, *, now: float) -> dict[str, Any]:
    echoed = {key: request.value.get(key, otherwise) for key, otherwise in _ECHOED.items()}
    return {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(now),
        "status": "completed",
        "background": request.background,
        "error": None,
        "incomplete_details": None,
        "output": [],
        **echoed,
        **({"conversation": {"id": request.conversation}} if request.conversation else {}),
        "store": request.stored,
        "usage": _NO_USAGE,
    }


def own_stream(whole: bytes, after: int = -1) -> bytes:
    """A response of our own as a stream, from behind the event of this number."""
    response, items = jsontext.parse_own(whole), jsontext.elements(whole, ("output",))
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, bytes]] = []
    for kind in ("response.created", "response.in_progress"):
        events.append((kind, jsontext.render({"type": kind, "response": begun})))
    for index, raw in enumerate(items):
        item = jsontext.parse_own(raw)
        for event in item_events(item):
            place: dict[jsontext.Path, bytes | None] = {("output_index",): jsontext.render(index)}
            if event.get("item") == item:
                place["item",] = raw
            events.append((event["type"], jsontext.edit(jsontext.render(event), place)))
    completed: dict[jsontext.Path, bytes | None] = {("response",): whole}
    events.append(("response.completed", jsontext.edit(b'{"type":"response.completed"}', completed)))
    return b"".join(
        render(jsontext.edit(event, {("sequence_number",): jsontext.render(number)}), kind)
        for number, (kind, event) in enumerate(events)
        if number > after
    )
