"""The owner of background tasks: it holds, names and awaits them, and logs what they raise.

A task that nobody holds can vanish in the middle of its work, and one that nobody awaits fails in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskOwner:
    """`on_failure` is told the name of a task and what it raised, where nobody else looks at the task."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run something in the background."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(task.get_name(), error)

    async def drain(self, seconds: float) -> None:
        """Wait for what runs; cancel what has not ended by then, and wait for that."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        left = set(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def __len__(self) -> int:
        return len(self._running)
