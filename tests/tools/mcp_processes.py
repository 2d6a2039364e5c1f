"""MCP servers of the tests as processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from proxy.tools.mcp_spec import McpCommand, McpServerSpec, McpUrl

ROOT = str(Path(__file__).parent.parent.parent)


def plain(*tools: str, **env: str) -> McpServerSpec:
    """A server that starts at once and misbehaves as it is asked to."""
    return program("tests.tools.plain_mcp_server", *tools, **env)


def packaged() -> McpServerSpec:
    """A server of the package `mcp`."""
    return program("tests.tools.mcp_server")


def program(module: str, *words: str, **env: str) -> McpServerSpec:
    variables = tuple((name, lambda value=value: value) for name, value in env.items())
    return McpServerSpec(
        "files", f"{module} {words}", McpCommand((sys.executable, "-m", module, *words), variables, ROOT)
    )


def served(port: int) -> McpServerSpec:
    return McpServerSpec("docs", str(port), McpUrl(f"http://127.0.0.1:{port}/mcp", ()))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


FORKS = multiprocessing.get_context("forkserver")
"""Where processes come from that have imported all they need: the package takes seconds."""
FORKS.set_forkserver_preload(["tests.tools.mcp_server"])


@asynccontextmanager
async def serving(port: int, *, handshake: bool) -> AsyncIterator[ForkServerProcess]:
    """A server of the package `mcp` over HTTP, once it takes connections; killed at the end."""
    process = FORKS.Process(target=_serve, args=(port, handshake), daemon=True)
    process.start()
    try:
        while not await _answers(port):
            assert process.is_alive()
            await asyncio.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.join()


def _serve(port: int, handshake: bool) -> None:
    from tests.tools.mcp_server import serve

    serve(port, handshake=handshake)


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def is_there(pid: int) -> bool:
    """Whether a process is, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def killed(pid: int) -> None:
    """Kill a process, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    await gone(pid)


async def gone(pid: int) -> None:
    async with asyncio.timeout(5):
        while is_there(pid):
            await asyncio.sleep(0.005)
