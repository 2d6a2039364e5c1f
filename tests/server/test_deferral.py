"""Deferred calls that are due: an answer of our own, in the form that the client asked for."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.core.batch.record import BatchRecord, CallRecord
from proxy.core.batch.rejoin import Anchor, Progress
from proxy.core.calls import BatchId, Owner
from proxy.core.jsontext import render, render_text
from proxy.core.protocol.chat import ChatRequest, read_call, read_request
from proxy.server.deferral import surface_due
from tests.e2e.chat import A, B, C, body, call
from tests.e2e.sidecall import Got
from tests.server.parts import Parts

SHOWN = call(A, "search", q="x")
DUE = call("call_1", "send", to="bob")
CUSTOM = {"id": C, "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def anchor() -> Anchor:
    """A batch of which one call was shown; the next was rewritten and has another id for the client."""
    records = [
        CallRecord(read_call(SHOWN), render_text(SHOWN), Owner.CLIENT, A, stage=0),
        CallRecord(read_call(DUE), render_text(DUE), Owner.CLIENT, B, given='{"to":"eve"}', stage=1),
        CallRecord(read_call(CUSTOM), render_text(CUSTOM), Owner.CLIENT, C, stage=1),
    ]
    batch = BatchRecord(BatchId("b"), "{}", "", tuple(records))
    return Anchor(batch, (1,), {}, {0: 2}, Progress.DUE, due=(1, 2))


def request(**more: Any) -> ChatRequest:
    return read_request(render(body(**more)), 128)


EXPECTED = [{**DUE, "id": B, "function": {"name": "send", "arguments": '{"to":"eve"}'}}, CUSTOM]


async def test_an_answer_in_one_piece() -> None:
    """A chat completion as the SDK reads it, with the calls as they are given out."""
    parts = Parts()
    await surface_due(parts.exchange, request(), anchor(), now=1760000000.5)
    client = parts.client
    assert (client.status, client.finished) == (200, True)
    assert dict(client.headers)["content-length"] == str(len(client.data))
    assert dict(client.headers)["x-sidecall-request-id"] == "request-one"
    choice = client.json["choices"][0]
    assert (choice["message"]["tool_calls"], choice["finish_reason"]) == (EXPECTED, "tool_calls")
    read = ChatCompletion.model_validate_json(client.data)
    assert (read.model, read.created, read.usage and read.usage.total_tokens) == ("gpt-test", 1760000000, 0)


@pytest.mark.parametrize("usage", [False, True])
async def test_an_answer_as_a_stream(usage: bool) -> None:
    """Chunks as the SDK reads them: one role, each call, the finish reason, usage where it was asked for, the end."""
    parts = Parts()
    options = {"stream_options": {"include_usage": True}} if usage else {}
    await surface_due(parts.exchange, request(stream=True, **options), anchor(), now=1760000000.0)
    got = Got(parts.client.status, {}, parts.client.data)
    assert got.data.endswith(b"data: [DONE]\n\n")
    known = [event for event in got.events if b'"custom"' not in render(event)]  # the SDK's types leave those out
    chunks = [ChatCompletionChunk.model_validate(event) for event in known]
    assert len({chunk.id for chunk in chunks}) == 1
    assert sum(bool(c.delta.role) for chunk in chunks for c in chunk.choices) == 1
    assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == ["tool_calls"]
    assert bool(chunks[-1].usage) is usage
    entries = [e for event in got.events for c in event["choices"] for e in c["delta"].get("tool_calls", [])]
    assert entries == [{**made, "index": at} for at, made in enumerate(EXPECTED)]
