"""Answers that say they are something else: a blocked call reaches nobody in any of them."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import responses
from tests.e2e.chat import PATH, A, answer, body, call, chunk
from tests.e2e.manners import both
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

BLOCKED = answer(call(A, "delete", path="MARKER")).data()
BOTH = {"id": A, "type": "custom", "custom": {"name": "safe"}, "function": {"name": "delete", "arguments": "MARKER"}}
ENTRY = {"index": 0, "id": A, "type": "function", "function": {"name": "delete", "arguments": "MARKER"}}
TWO_KINDS: dict[str, Any] = json.loads(BLOCKED)
TWO_KINDS["choices"][0]["message"]["tool_calls"] = [BOTH]


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(tmp_path, rule("no", "delete", block={"message": "no"}))


@pytest.mark.parametrize(
    "reply",
    [
        Whole(BLOCKED, headers={"content-type": "text/event-stream"}),
        Whole(b"data : " + BLOCKED + b"\n\n", headers={"content-type": "text/event-stream"}),
        Whole(json.dumps(TWO_KINDS).encode()),
        Events([chunk({"tool_calls": [{"index": 0, **BOTH}]}), chunk({}, "tool_calls")]),
        Whole(gzip.compress(BLOCKED), headers={"content-encoding": "identity, gzip"}),
        Whole(BLOCKED[:-1] + b",}"),
        Whole(b"{}\n" + BLOCKED),
        Whole(b"[" + BLOCKED + b"]"),
        Whole(BLOCKED.replace(b'"name": "delete"', b'"name": "delete", "name": "safe"')),
        Whole(json.dumps(chunk({"tool_calls": [ENTRY]})).encode() + b"\n{}\n"),
        Events([chunk({"tool_calls": [ENTRY]}), b'data: {"a":' + BLOCKED + b",}\n\n"]),
        Events([chunk({"content": "a"}), {"type": "response.output_item.done", "item": responses.call(A, "MARKER")}]),
    ],
    ids=[
        "json as events",
        "no data line",
        "two kinds",
        "two kinds streamed",
        "coded twice",
        "a comma too many",
        "two values",
        "a list",
        "two names",
        "lines of chunks",
        "a comma too many streamed",
        "an event of another API",
    ],
)
async def test_a_blocked_call_reaches_nobody(reply: Any, rules: str, upstream: FakeUpstream) -> None:
    """Whatever reader a client uses, it finds neither the call's name nor its arguments."""
    upstream.script(reply)
    upstream.always(answer(text="well"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=("delete",)))
    assert b"MARKER" not in got.data
    assert b'"delete"' not in got.data


@both
@pytest.mark.parametrize("kind", [None, "Function_Call", "tool_use", "new_call"], ids=repr)
async def test_a_blocked_call_of_no_known_type_reaches_nobody(
    kind: Any, streams: bool, rules: str, upstream: FakeUpstream
) -> None:
    """The model is told instead, by the result that such a call asks for."""
    item = {**responses.call(A, "delete", path="MARKER"), "type": kind}
    first = responses.stream(item) if streams else responses.whole(item)
    last = responses.stream(responses.message("well"), number=2) if streams else responses.whole(responses.message("x"))
    upstream.script(first, last)
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post({"model": "m", "input": "hi", "stream": streams}, path=responses.PATH)
    assert b"MARKER" not in got.data
    assert b'"delete"' not in got.data
    told = json.loads(upstream.last.body)["input"][-1]
    assert told["type"] == ("new_call_output" if kind == "new_call" else "function_call_output")
    assert (told["call_id"], "blocked by policy" in told["output"]) == (A, True)


async def test_broken_characters_beside_a_held_call_are_no_error(rules: str, upstream: FakeUpstream) -> None:
    """What is no UTF-8 goes into the history as what readers make of it."""
    upstream.script(Whole(BLOCKED.replace(b'"content": null', b'"content": "\xff"')), answer(text="well"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=("delete",)))
    assert got.status == 200
    assert upstream.last.messages[1]["content"] == "\ufffd"


async def test_long_text_is_no_held_call(rules: str, upstream: FakeUpstream) -> None:
    """Text passes however long it is; only what is kept from the client is bounded."""
    pieces = [chunk({"content": "x" * 1000}) for _ in range(200)]
    upstream.script(Events([*pieces, chunk({}, "stop")]))
    async with sidecall(upstream.url, policies=[rules], limits={"heldBytes": "64Ki"}) as here:
        got = await here.post(body(tools=("delete",), stream=True))
    assert len(got.assembled()["content"]) == 200_000


async def test_a_request_after_an_answer_that_was_seen_runs_anew(tmp_path: Path, upstream: FakeUpstream) -> None:
    """A client that closes its connection with the last byte has seen the answer's end."""
    counted = 0

    async def count(_: Any) -> str:
        nonlocal counted
        counted += 1
        return str(counted)

    tool = upstream.tool("count", count)
    state = {"url": f"sqlite:{tmp_path}/state.db"}
    sent = json.dumps(body(tools=("search",))).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n"
    async with sidecall(upstream.url, tools=[tool], state=state) as here:
        for _ in range(5):
            upstream.script(answer(call(A, "count")), answer(text="done"))
            reader, writer = await asyncio.open_connection("127.0.0.1", here.running.data.port)
            writer.write(head.encode() + sent)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b'"total_tokens":')
            writer.transport.abort()
    assert counted == 5
