"""A raw HTTP origin on loopback: it keeps what it was asked, and lets a test talk on the connection itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Talk = Callable[["Seen", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Seen:
    """A request as it came: its first line, its headers in order, its body."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass
class Origin:
    """`talk` answers; the body has been read by then unless `reads_body` is false."""

    talk: Talk
    reads_body: bool = True
    requests: list[Seen] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (seen := await read_head(reader)) is not None:
                if self.reads_body:
                    seen.body = await read_body(reader, {k.lower(): v for k, v in seen.headers})
                self.requests.append(seen)
                await self.talk(seen, reader, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()


async def read_head(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.decode("latin-1").split("\r\n")[:-2]
    pairs = [part.partition(":") for part in rest]
    return Seen(line, [(name, value.strip()) for name, _, value in pairs])


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    return await reader.readexactly(int(headers.get("content-length", "0")))


def answer(body: bytes, *headers: str, status: str = "200 OK") -> Talk:
    """Answer with these bytes and headers."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        given = "".join(f"{line}\r\n" for line in headers)
        if "content-length" not in given.lower():
            given += f"content-length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{given}\r\n".encode("latin-1") + body)

    return talk


@asynccontextmanager
async def origin(talk: Talk, *, reads_body: bool = True, tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
    """A running origin."""
    found = Origin(talk, reads_body)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await found.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        if connections:
            await asyncio.wait(connections)


async def talk_raw(port: int, data: bytes) -> bytes:
    """All that comes back for bytes on a connection of their own, which must end by itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
