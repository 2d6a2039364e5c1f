"""Proxy tools in Python that wait until a test lets them go, and count how many of them do."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field


@dataclass
class Hall:
    """Where they wait. `most` is how many did at once."""

    now: int = 0
    most: int = 0
    all: int = 0
    open: threading.Event = field(default_factory=threading.Event)
    open_here: asyncio.Event = field(default_factory=asyncio.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        with self.lock:
            self.now, self.all = self.now + 1, self.all + 1
            self.most = max(self.most, self.now)

    def leave(self) -> str:
        with self.lock:
            self.now -= 1
        return "released"

    def release(self) -> None:
        self.open.set()
        self.open_here.set()


halls: dict[str, Hall] = {}
"""By name, which the call gives: each test has its own."""


def wait(hall: str) -> str:
    halls[hall].enter()
    halls[hall].open.wait(60)
    return halls[hall].leave()


async def wait_on_the_loop(hall: str) -> str:
    halls[hall].enter()
    await halls[hall].open_here.wait()
    return halls[hall].leave()
