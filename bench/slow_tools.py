"""What a plain request takes beside many calls that wait for slow proxy tools, and what it takes alone.

    python bench/slow_tools.py [--calls 200] [--requests 1000] [--concurrency 8]

For each kind of tool (HTTP, a Python function that blocks its thread, a server over MCP): milliseconds a request,
median and 99th percentile, one request after another on one connection, through a Sidecall with one rule and one tool.
The calls are there, `concurrency` of them running and the others in wait, from before the first request until after
the last. MCP is left out where its package is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

ASK = "import urllib.request as r\n\n\ndef hold() -> str:\n    return r.urlopen('{url}', data=b'').read().decode()\n"
SERVE = """import asyncio
from concurrent.futures import ThreadPoolExecutor

from mcp.server.mcpserver import MCPServer

import slow

server = MCPServer("slow", log_level="CRITICAL")
threads = ThreadPoolExecutor(256)


@server.tool(name="hold")
async def hold() -> str:
    return await asyncio.get_running_loop().run_in_executor(threads, slow.hold)


server.run()
"""
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
POLICY: dict[str, Any] = {
    "apiVersion": "sidecall.io/v1",
    "kind": "ToolPolicy",
    "metadata": {"name": "bench"},
    "spec": {"rules": [{"name": "no", "match": {"tools": ["delete_*"]}, "block": {"message": "no"}}]},
}


class World:
    """The upstream, and what is slow: every run waits until `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.changed = asyncio.Condition()
        self.running = 0
        self.rounds = 0
        self.url = ""

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/hold":
            self.running += 1
            await self._tell()
            await self.open.wait()
            self.running -= 1
            return web.Response(text="held")
        last = json.loads(await request.read())["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": "A plain answer."}
        if last["content"].startswith("hold"):
            self.rounds += 1
            await self._tell()
            made = {"name": "hold", "arguments": "{}"}
            message["tool_calls"] = [{"id": f"call_{self.rounds:024}", "type": "function", "function": made}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(world))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    world.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


def entry(kind: str, world: World, folder: Path, concurrency: int) -> dict[str, Any]:
    if kind == "http":
        tool: dict[str, Any] = {
            "name": "hold",
            "http": {"method": "POST", "url": f"{world.url}/hold", "timeout": "10m"},
        }
    elif kind == "python":
        tool = {"name": "hold", "python": "slow:hold", "timeout": "10m"}
    else:
        command = [sys.executable, str(folder / "serve.py")]
        tool = {"mcp": {"name": "slow", "command": command, "timeout": "10m"}}
    return {**tool, "concurrency": concurrency}


@asynccontextmanager
async def sidecall(kind: str, world: World, concurrency: int) -> AsyncIterator[str]:
    """A proxy as a process of its own; its address."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slow.py").write_text(ASK.format(url=f"{world.url}/hold"))
        (folder / "serve.py").write_text(SERVE)
        (folder / "policy.json").write_text(json.dumps(POLICY))
        config = {
            "apiVersion": "sidecall.io/v1",
            "kind": "Config",
            "listen": {"port": 0},
            "admin": {"port": 0},
            "upstream": {"baseUrl": f"{world.url}/v1"},
            "policies": ["policy.json"],
            "tools": [entry(kind, world, folder, concurrency)],
            "state": {"url": f"sqlite:{folder / 'state.db'}"},
            "audit": {"path": "audit.jsonl"},
        }
        (folder / "sidecall.yaml").write_text(json.dumps(config))
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy", "serve", "--config", str(folder / "sidecall.yaml")),
                env={**os.environ, "PYTHONPATH": str(folder)},
                stderr=log,
            )
            try:
                yield f"http://127.0.0.1:{await port_of(folder / 'log')}/v1/chat/completions"
            finally:
                process.kill()
                await process.wait()


async def port_of(log: Path) -> int:
    while True:
        for line in log.read_text().splitlines():  # noqa: ASYNC240 - nothing else runs yet
            if '"serving"' in line and "port" in (found := json.loads(line)):
                port: int = found["port"]
                return port
        await asyncio.sleep(0.05)


async def asked(session: aiohttp.ClientSession, url: str, words: str) -> None:
    sent = {"model": "m", "messages": [{"role": "user", "content": words}], "tools": TOOLS}
    async with session.post(url, json=sent) as got:
        assert got.status == 200, await got.text()
        await got.read()


async def timed(url: str, count: int) -> str:
    took = []
    async with aiohttp.ClientSession() as session:
        for number in range(count + 50):
            began = time.perf_counter()
            await asked(session, url, "Hello.")
            if number >= 50:  # what comes first warms up
                took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return f"p50 {statistics.median(took):6.2f} ms  p99 {took[int(len(took) * 0.99)]:6.2f} ms"


async def measure(kind: str, calls: int, requests: int, *, concurrency: int) -> None:
    world = World()
    connector = aiohttp.TCPConnector(limit=0)
    async with serving(world), sidecall(kind, world, concurrency) as url:
        alone = await timed(url, requests)
        async with aiohttp.ClientSession(connector=connector) as session:
            waiting = [asyncio.ensure_future(asked(session, url, f"hold {number}")) for number in range(calls)]
            async with world.changed:
                await world.changed.wait_for(lambda: world.rounds == calls and world.running == min(calls, concurrency))
            beside = await timed(url, requests)
            assert world.running == min(calls, concurrency)
            assert not any(one.done() for one in waiting)
            world.open.set()
            await asyncio.gather(*waiting)
    print(f"{kind:7} alone {alone}   beside {calls} calls {beside}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--kind", choices=["http", "python", "mcp"], action="append", help="all, unless some are named")
    options = parser.parse_args()
    for kind in options.kind or ["http", "python", *(["mcp"] if importlib.util.find_spec("mcp") else [])]:
        await measure(kind, options.calls, options.requests, concurrency=options.concurrency)


if __name__ == "__main__":
    asyncio.run(main())
