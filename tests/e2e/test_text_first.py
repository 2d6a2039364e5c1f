"""Text of a stream waits for nothing: not for another event, and not for a ledger that takes its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.server.services import Services
from proxy.stores.base import Stored
from proxy.stores.memory import MemoryStore
from tests.e2e.chat import PATH, A, body, call, chunk, events
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream


class SlowStore(MemoryStore):
    """A store whose answers to questions of ids come when a test lets them."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 0.0)
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        if any(key.startswith("call/") for key in keys):
            self.asked.set()
            await self.open.wait()
        return await super().load(keys)


@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one read"])
async def test_text_passes_while_the_ledger_is_asked_for_a_call(
    upstream: FakeUpstream, tmp_path: Path, together: bool
) -> None:
    """A call is held until the ledger says that its id is new; the text behind it is not."""
    store = SlowStore()

    def slow(services: Services) -> Services:
        return replace(services, store=store)

    made = [*events(call(A, "search", q="x"))][:-1]
    text, end = chunk({"content": "later"}), chunk({}, "tool_calls")
    framed = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in (*made, text)]
    upstream.script(Events([b"".join(framed), store.open, end] if together else [*made, store.asked, text, end]))
    rules = policy(tmp_path, rule("no", "delete", block={"message": "no"}))
    async with sidecall(upstream.url, services=slow, policies=[rules]) as proxy:
        sent = json.dumps(body(tools=("search",), stream=True)).encode()
        async with proxy.session.post(f"{proxy.url}{PATH}", data=sent) as answer:
            got = b""
            while b'"later"' not in got:
                got += await answer.content.readany()
            assert b"search" not in got
            store.open.set()
            got += await answer.content.read()
    assert got.count(b'"search"') == 1
