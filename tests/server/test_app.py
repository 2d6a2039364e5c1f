"""The life of a process: starting, reloading, stopping."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.server.origin import Seen, answer, origin
from tests.server.proxied import BLOCK, proxied


class Process:
    """`sidecall serve` as a process of its own; its log tells the ports."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        (folder / "sidecall.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(folder / "sidecall.yaml")]
        root = Path(__file__).parent.parent.parent
        self._process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []

    def read(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next line of the log that is wanted; every line must be JSON."""
        assert self._process.stderr is not None
        for text in self._process.stderr:
            self.lines.append(json.loads(text))
            if wanted(self.lines[-1]):
                return self.lines[-1]
        raise AssertionError(f"the log ended: {self.lines}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """The exit status, once it has ended; what is left of the log is read."""
        assert self._process.stderr is not None
        self.lines += [json.loads(text) for text in self._process.stderr]
        self._process.stderr.close()
        return self._process.wait(20)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.end()


def started(folder: Path, url: str, **more: Any) -> Process:
    (folder / "policies").mkdir()
    config = {
        "apiVersion": "sidecall.io/v1",
        "kind": "Config",
        "listen": {"port": 0},
        "admin": {"port": 0},
        "upstream": {"baseUrl": url},
        "policies": [str(folder / "policies")],
        "state": {"url": "memory:"},
        **more,
    }
    return Process(folder, config)


def says(message: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: bool(line["message"] == message)


async def test_a_running_request_ends_after_sigterm_and_no_new_one_is_taken(tmp_path: Path) -> None:
    """SIGTERM: not ready, no new connection, the running stream ends well, exit status 0."""
    more = asyncio.Event()

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await more.wait()
        writer.write(b"3\r\ndef\r\n0\r\n\r\n")

    async with origin(talk) as there, aiohttp.ClientSession() as client:
        process = started(tmp_path, there.url)
        try:
            serving = await asyncio.to_thread(process.read, says("serving"))
            url, admin = f"http://127.0.0.1:{serving['port']}", f"http://127.0.0.1:{serving['admin_port']}"
            got = await client.get(f"{url}/v1/x")
            assert await got.content.readany() == b"abc"
            process.signal(signal.SIGTERM)
            await asyncio.to_thread(process.read, says("shutting down"))
            async with client.get(f"{admin}/readyz") as ready:
                assert (ready.status, await ready.text()) == (503, "draining\n")
            async with aiohttp.ClientSession() as other:
                with pytest.raises(aiohttp.ClientConnectionError):
                    await other.get(f"{url}/v1/x")
            more.set()
            assert await got.content.read() == b"def"
            assert await asyncio.to_thread(process.end) == 0
        finally:
            process.kill()


async def test_a_request_that_outlasts_the_drain_is_cut(tmp_path: Path) -> None:
    """After the drain the process ends, whatever still runs."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await reader.read()

    async with origin(talk) as there, aiohttp.ClientSession() as client:
        process = started(tmp_path, there.url, shutdown={"drain": "50ms"})
        try:
            serving = await asyncio.to_thread(process.read, says("serving"))
            got = await client.get(f"http://127.0.0.1:{serving['port']}/v1/x")
            assert await got.content.readany() == b"abc"
            process.signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.end) == 0
            with pytest.raises(aiohttp.ClientError):
                await got.content.read()
            got.close()
        finally:
            process.kill()


async def test_sighup_loads_again_and_refuses_what_does_not_compile(tmp_path: Path) -> None:
    """A set that compiles is used, one that does not is refused with its problems in the log."""
    async with origin(answer(b"{}")) as there, aiohttp.ClientSession() as client:
        process = started(tmp_path, there.url)
        try:
            serving = await asyncio.to_thread(process.read, says("serving"))
            url = f"http://127.0.0.1:{serving['port']}"
            async with client.get(f"{url}/v1/batches") as got:
                assert got.status == 200
            (tmp_path / "policies" / "p.yaml").write_text(BLOCK)
            process.signal(signal.SIGHUP)
            await asyncio.to_thread(process.read, says("policies loaded"))
            async with client.get(f"{url}/v1/batches") as got:
                assert got.status == 403
            (tmp_path / "policies" / "p.yaml").write_text(BLOCK.replace("block:", "blok:"))
            process.signal(signal.SIGHUP)
            refused = await asyncio.to_thread(process.read, says("reload refused; the old policies stay"))
            assert "p.yaml:" in refused["problems"][0]
            async with client.get(f"{url}/v1/batches") as got:
                assert got.status == 403
            process.signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.end) == 0
        finally:
            process.kill()


async def test_a_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    """Exit status 1, and the log says why."""
    async with origin(answer(b"ok")) as there:
        process = started(tmp_path, there.url, listen={"port": there.port})
        status = await asyncio.to_thread(process.end)
    assert status == 1
    assert process.lines[-1]["message"] == "cannot listen"


async def test_while_draining_connections_are_not_kept() -> None:
    """A keep-alive answer says so as soon as the process is about to end."""
    async with origin(answer(b"ok")) as there, proxied(there.url) as here, aiohttp.ClientSession() as client:
        async with client.get(f"{here.url}/v1/x") as got:
            assert "connection" not in got.headers
        here.running.health.draining = True
        async with client.get(f"{here.url}/v1/x") as got:
            assert got.headers["connection"] == "close"


async def test_two_processes_can_share_a_port() -> None:
    """With reusePort a second listener opens the same port."""
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, listen={"reusePort": True}) as here,
        proxied(there.url, listen={"reusePort": True, "port": here.port}) as other,
    ):
        assert other.port == here.port
