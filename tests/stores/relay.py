"""A relay in front of a server that breaks connections where a test wants it to, and may speak TLS to its clients."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

MARK = b"EVALSHA"


class Where(Enum):
    """Where a connection breaks: before a request is passed on, behind its reply, or not at all: nothing comes back."""

    BEFORE = auto()
    BEHIND = auto()
    SILENT = auto()


async def _nothing() -> None: ...


@dataclass(frozen=True)
class Break:
    where: Where
    meanwhile: Callable[[], Awaitable[None]] = _nothing
    """What happens in between, before the client sees the end."""


class Relay:
    """`breaks` are used up by the requests with a script that come next; `most` is how many connections there were at
    once; `target` is the port that new ones lead to."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.breaks: deque[Break] = deque()
        self.open = 0
        self.most = 0
        self.target = target
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections that are open."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        self._writers.add(writer)
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                replies = asyncio.ensure_future(_pump(server_reader, writer))
                await self._requests(reader, server_reader, (writer, server_writer), replies)
                replies.cancel()
                await asyncio.wait([replies])
            finally:
                server_writer.close()
        except OSError:
            pass
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        server_reader: asyncio.StreamReader,
        writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        replies: asyncio.Future[None],
    ) -> None:
        _, server = writers
        while data := await reader.read(1 << 20):
            if self.breaks and MARK in data:
                broken = self.breaks.popleft()
                if broken.where is not Where.BEFORE:
                    replies.cancel()
                    await asyncio.wait([replies])
                    server.write(data)
                    await server_reader.read(1)
                await broken.meanwhile()
                if broken.where is Where.SILENT:
                    await reader.read()
                return
            server.write(data)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 20):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def relaying(target: int, tls: ssl.SSLContext | None = None, *, port: int = 0) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", port, ssl=tls)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        while relay.open:
            await asyncio.sleep(0)
