"""How many bytes of bodies, arguments and events all requests together may hold (`limits.bufferedBytes`).

What is refused here is refused with BusyError, before the bytes are kept. A holder gives back all it took
when its request ends, however it ends. Knows nothing of what the bytes are.
"""

from __future__ import annotations

from types import TracebackType

from proxy.errors import BusyError


class BufferBudget:
    """The bytes that all requests share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def acquire(self, size: int) -> None:
        """Take so many bytes. Raises BusyError, and takes nothing, when that would be too many."""
        if self._held + size > self._limit:
            raise BusyError("too much is buffered at the moment; try again in a second")
        self._held += size

    def release(self, size: int) -> None:
        self._held -= size

    def share(self) -> BufferShare:
        return BufferShare(self)


class BufferShare:
    """What one request holds of the budget; all of it goes back when the context is left."""

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, size: int) -> None:
        """Raises BusyError."""
        self._budget.acquire(size)
        self._held += size

    def give(self, size: int) -> None:
        size = min(size, self._held)
        self._budget.release(size)
        self._held -= size

    def __enter__(self) -> BufferShare:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give(self._held)
