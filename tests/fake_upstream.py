"""A scripted OpenAI-compatible endpoint on loopback, in the test's own event loop. It keeps what it was asked.

The same server stands for HTTP tools: `tool` answers a path of its own and counts its runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    target: str = ""

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages


@dataclass
class Whole:
    """An answer in one piece. A body that is no bytes goes out as JSON."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class Events:
    """A stream. An event is a JSON value, bytes (sent as they are), or an `asyncio.Event` that is waited for.
    After `break_after` events the connection is cut."""

    events: list[Any]
    done: bool = True
    break_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def data(self) -> bytes:
        """All of it, as one text."""
        return b"".join(map(framed, self._all()))

    def _all(self) -> list[Any]:
        return [*self.events, *([b"data: [DONE]\n\n"] if self.done else [])]

    def __iter__(self) -> Any:
        return iter(self._all())


def framed(event: Any) -> bytes:
    if isinstance(event, asyncio.Event):
        return b""
    return event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"


@dataclass
class Cut:
    """The connection is cut before an answer."""


Reply = Whole | Events | Cut
Script = Reply | Callable[[Asked], Reply]


class FakeUpstream:
    """`requests` are the chat completions that it was asked for; `runs` the requests for tools, by name."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.runs: dict[str, list[Asked]] = {}
        self.gone = asyncio.Event()  # somebody went away in the middle of a stream
        self.come = asyncio.Condition()
        self.port = 0
        self._script: list[Script] = []
        self._always: Script | None = None
        self._tools: dict[str, Callable[[Asked], Awaitable[str]]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Asked:
        return self.requests[-1]

    def script(self, *replies: Script) -> None:
        """Queue answers, one a request."""
        self._script.extend(replies)

    def always(self, reply: Script) -> None:
        """Answer every request that no queued answer is left for."""
        self._always = reply

    def tool(self, name: str, run: Callable[[Asked], Awaitable[str]] | str = "ran", **settings: Any) -> dict[str, Any]:
        """A tool that is answered here: its entry in the configuration."""

        async def fixed(asked: Asked) -> str:
            return str(run)

        self._tools[name] = run if callable(run) else fixed
        self.runs[name] = []
        http = {"method": "POST", "url": f"http://127.0.0.1:{self.port}/tools/{name}"}
        return {"name": name, "http": http, **settings}

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until something holds of what has come."""
        async with asyncio.timeout(seconds), self.come:
            await self.come.wait_for(holds)

    # -- serving

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {k.lower(): v for k, v in request.headers.items()}
        asked = Asked(request.method, request.path, headers, await request.read(), str(request.rel_url))
        if asked.path.startswith("/tools/"):
            return await self._run(asked)
        async with self.come:
            self.requests.append(asked)
            script = self._script.pop(0) if self._script else self._always
            self.come.notify_all()
        if script is None:
            script = Whole({"error": {"message": "the script has no answer left", "type": "server_error"}}, 500)
        match script(asked) if callable(script) else script:
            case Whole() as reply:
                headers = {"content-type": "application/json", **reply.headers}
                return web.Response(status=reply.status, body=reply.data(), headers=headers)
            case Events() as reply:
                return await self._stream(request, reply)
            case Cut():
                return self._cut(request)

    async def _run(self, asked: Asked) -> web.Response:
        name = asked.path.removeprefix("/tools/")
        async with self.come:
            self.runs[name].append(asked)
            self.come.notify_all()
        return web.Response(text=await self._tools[name](asked))

    async def _stream(self, request: web.BaseRequest, reply: Events) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream", **reply.headers})
        await answer.prepare(request)
        try:
            for number, event in enumerate(reply):
                if number == reply.break_after:
                    return self._cut(request)
                if isinstance(event, asyncio.Event):
                    await event.wait()
                else:
                    await answer.write(framed(event))
            await answer.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return answer

    @staticmethod
    def _cut(request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("cut, as the script says")


@asynccontextmanager
async def fake_upstream() -> AsyncIterator[FakeUpstream]:
    """A running upstream."""
    upstream = FakeUpstream()
    server = web.Server(upstream.handle, handler_cancellation=True, auto_decompress=False)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    upstream.port = runner.addresses[0][1]
    try:
        yield upstream
    finally:
        await runner.cleanup()
