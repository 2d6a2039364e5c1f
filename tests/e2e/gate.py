"""Tools that wait until a test lets them go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from tests.fake_upstream import Asked


class Gate:
    """A tool that waits to be let go; `most` is how many ran at once."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.running = self.most = 0
        self._numbers = itertools.count(1)

    async def __call__(self, asked: Asked) -> str:
        number = next(self._numbers)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return f"run {number}"


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)
