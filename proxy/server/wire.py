"""Raw bytes of an upgraded connection, either side: no frames are read, and memory stays bounded.

aiohttp hands the bytes behind an upgrade to a "payload parser"; `Wire` is one that keeps them for a reader, and
stops the transport while the reader is behind. Must not know what protocol the bytes are of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

_ENOUGH = 256 << 10


class Wire:
    """One side of a tunnel. `write` sends with back-pressure; `close` ends the connection."""

    def __init__(
        self, transport: asyncio.Transport, *, write: Callable[[bytes], Awaitable[None]], close: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._write = write
        self._close = close
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    # -- what aiohttp's protocols call

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if data:
            self._pieces.append(bytes(data))
            self._held += len(data)
            if self._held >= _ENOUGH:
                self._transport.pause_reading()
            self._wake()
        return False, b""

    def feed_eof(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- what the tunnel calls

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        while not self._pieces and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = b"".join(self._pieces)
        self._pieces.clear()
        was_held, self._held = self._held, 0
        if was_held >= _ENOUGH and not self._ended:
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        await self._write(data)

    def close(self) -> None:
        self._close()
