"""Waiting behind a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.server.waiting import EVENTS, PING, with_pings


class Client:
    """The client's side, as far as it is needed here."""

    def __init__(self) -> None:
        self.started = False
        self.sent: list[Any] = []
        self.pinged = asyncio.Event()

    async def start(self, status: int, headers: Any) -> None:
        self.started = True
        self.sent.append((status, headers))

    async def write(self, data: bytes) -> None:
        self.sent.append(data)
        self.pinged.set()


async def test_what_takes_no_time_sends_nothing() -> None:
    """The answer's own head comes first."""
    client: Any = Client()

    async def work() -> int:
        return 5

    assert await with_pings(client, work(), seconds=10) == 5
    assert client.sent == []


async def test_what_takes_long_begins_the_answer_and_sends_comments() -> None:
    """A comment is a line of its own, without the blank line that would make an event of it."""
    client: Any = Client()

    async def work() -> str:
        await client.pinged.wait()
        return "done"

    assert await with_pings(client, work(), seconds=0.001) == "done"
    assert client.sent[:2] == [(200, EVENTS), PING]
    assert set(client.sent[1:]) == {PING}
    assert (PING[:1], PING.count(b"\n")) == (b":", 1)


async def test_the_work_ends_with_who_waits_for_it() -> None:
    """A client that goes away leaves nothing behind, and an error of the work is raised."""
    client: Any = Client()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def failing() -> None:
        raise ValueError("no")

    waiting = asyncio.create_task(with_pings(client, work(), seconds=0.001))
    await client.pinged.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
    with pytest.raises(ValueError, match="no"):
        await with_pings(client, failing(), seconds=10)
