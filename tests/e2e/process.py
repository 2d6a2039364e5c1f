"""Sidecall as a process of its own, which a test may kill and start again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.chat import Message
from tests.e2e.sidecall import Got, post
from tests.fake_upstream import FakeUpstream

ROOT = Path(__file__).parent.parent.parent


class Process:
    """`python -m proxy serve` with one configuration; its log tells the port."""

    def __init__(self, folder: Path, config: dict[str, Any], session: aiohttp.ClientSession) -> None:
        self._path = folder / "sidecall.yaml"
        head = {"apiVersion": "sidecall.io/v1", "kind": "Config", "listen": {"port": 0}, "admin": {"port": 0}}
        self._path.write_text(json.dumps(head | {"state": {"url": f"sqlite:{folder / 'state.db'}"}} | config))
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Future[bytes] | None = None
        self._session = session
        self._port = self._admin_port = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "proxy", "serve", "--config", str(self._path)),
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith("SIDECALL_")},
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            found = json.loads(line)
            if found["message"] == "serving":
                self._port, self._admin_port = found["port"], found["admin_port"]
                # A log that nobody reads fills its pipe, and then stops who writes it.
                self._reading = asyncio.ensure_future(self._process.stderr.read())
                return
        raise AssertionError("it ended before it served")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def post(self, sent: Message, **headers: str) -> Got:
        return await post(self._session, self.url, sent, headers=headers)

    async def metrics(self) -> str:
        async with self._session.get(f"http://127.0.0.1:{self._admin_port}/metrics") as answer:
            return await answer.text()

    async def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading


@asynccontextmanager
async def process(folder: Path, upstream: str, **config: Any) -> AsyncIterator[Process]:
    """A running process."""
    async with aiohttp.ClientSession() as session:
        running = Process(
            folder, {"upstream": {"baseUrl": upstream}, "audit": {"path": "audit.jsonl"}, **config}, session
        )
        try:
            await running.start()
            yield running
        finally:
            await running.kill()


@asynccontextmanager
async def processes(folder: Path, upstream: FakeUpstream, **config: Any) -> AsyncIterator[list[Process]]:
    """Two running processes with one configuration, each with a folder of its own; they start at the same time."""
    async with AsyncExitStack() as stack:

        async def one(name: str) -> Process:
            (folder / name).mkdir()
            return await stack.enter_async_context(process(folder / name, upstream.url, **config))

        yield await asyncio.gather(*map(one, ("one", "two")))
