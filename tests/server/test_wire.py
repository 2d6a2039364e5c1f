"""Raw bytes of an upgraded connection."""

from __future__ import annotations

import asyncio
from typing import cast

from proxy.server.wire import Wire


class Transport:
    """Keeps whether reading is paused."""

    def __init__(self) -> None:
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def made(transport: Transport, sent: list[bytes] | None = None, closed: list[bool] | None = None) -> Wire:
    async def write(data: bytes) -> None:
        if sent is not None:
            sent.append(data)

    return Wire(
        cast(asyncio.Transport, transport),
        write=write,
        close=lambda: closed.append(True) if closed is not None else None,
    )


async def test_a_reader_that_is_behind_stops_the_transport() -> None:
    """What is held is bounded, and reading goes on once it was taken."""
    transport = Transport()
    wire = made(transport)
    assert wire.feed_data(b"a") == (False, b"")
    assert not transport.paused
    wire.feed_data(b"b" * (256 << 10))
    assert transport.paused
    assert len(await wire.read()) == (256 << 10) + 1
    assert not transport.paused


async def test_a_reader_waits_for_bytes_and_sees_the_end() -> None:
    """No bytes at the end, and all before it."""
    wire = made(Transport())
    waiting = asyncio.ensure_future(wire.read())
    await asyncio.sleep(0)
    wire.feed_data(b"a")
    assert await waiting == b"a"
    wire.feed_data(b"b")
    wire.feed_eof()
    assert [await wire.read(), await wire.read()] == [b"b", b""]
