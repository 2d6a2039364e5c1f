"""Waiting behind a stream: while tools run, the client gets a comment now and then, so that nobody takes the
connection for dead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from proxy.server.http import ClientSide, Headers

PING = b": waiting\n"
"""A comment line without a blank line: some readers take a comment with one for an event without data."""
EVENTS: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
T = TypeVar("T")


async def with_pings(client: ClientSide, work: Coroutine[Any, Any, T], *, head: Headers = EVENTS, seconds: float) -> T:
    """Wait for something. Where it takes longer than `seconds`, the answer begins (with this head) before its first
    event is known."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait([task], timeout=seconds)
            if done:
                return task.result()
            if not client.started:
                await client.start(200, head)
            await client.write(PING)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
