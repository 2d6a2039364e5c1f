"""Bytes through a filter: text waits for nothing, what is held is counted, and an end is an end."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.chat import A, body, call, chunk, events, stream
from tests.e2e.sidecall import Got, Sidecall
from tests.fake_upstream import Events, FakeUpstream

TOOLS = ("search", "delete", "cap")


async def ask(here: Sidecall, **more: Any) -> Got:
    return await here.post(body(tools=TOOLS, stream=True, **more))


async def test_an_upstream_that_stays_open_behind_its_end(here: Sidecall, upstream: FakeUpstream) -> None:
    """A connection that is left open holds up no continuation."""
    never = asyncio.Event()
    upstream.script(Events([*events(call(A, "delete")), never], done=False), stream(text="done"))
    got = await ask(here)
    assert got.assembled()["content"] == "done"


async def test_text_does_not_wait_for_a_call(here: Sidecall, upstream: FakeUpstream) -> None:
    """What is said while a call waits for its arguments reaches the client at once."""
    gate = asyncio.Event()
    made = events(call(A, "cap", n=99))
    upstream.script(Events([*made[:3], chunk({"content": "meanwhile"}), gate, *made[3:]]))
    sent = body(tools=TOOLS, stream=True)
    async with here.session.post(f"{here.url}/v1/chat/completions", json=sent) as answered:
        found = b""
        while b"meanwhile" not in found:
            found += await answered.content.readany()
        assert b"cap" not in found
        gate.set()
        assert b"cap" in await answered.content.read()


async def test_what_is_held_is_given_back(here: Sidecall, upstream: FakeUpstream) -> None:
    """Buffers that a stream took are free when it ends, however it ends."""
    made = events(call(A, "cap", text="x" * 5000))
    for script in (Events(made), Events(made, break_after=4)):
        upstream.script(script)
        await ask(here)
    assert here.running.services.budget.held == 0
    assert here.value("streams_active") == 0
