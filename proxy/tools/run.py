"""Running proxy tools: bounded in number, time and size, and never raising.

Rules: whatever happens, the model gets a result that names the tool and the kind of failure. A run takes one of
its tool's places until nothing of it runs any more, also when nobody waits for it. That one call runs once is
settled elsewhere; here every `run` is a run. A `ToolSet` belongs to one configuration: a reload makes another,
and who swaps them closes the old one when the last request that began with it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar, assert_never

import aiohttp

from proxy.tools.http import open_session, run_request
from proxy.tools.python import run_function
from proxy.tools.spec import (
    HttpBackend,
    PythonBackend,
    RunKind,
    ToolOutcome,
    ToolRun,
    ToolRunError,
    ToolSpec,
    failure,
)

NO_OUTPUT = "(no output)"

Result = TypeVar("Result")


class ToolSet:
    """The proxy tools of one configuration."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self.specs: Mapping[str, ToolSpec] = MappingProxyType({spec.name: spec for spec in specs})
        self._places = {name: asyncio.Semaphore(spec.concurrency) for name, spec in self.specs.items()}
        self._session: aiohttp.ClientSession | None = None

    async def run(self, name: str, run: ToolRun) -> ToolOutcome:
        """Run a tool. Raises CancelledError only. Waiting for a place does not count against the time limit."""
        spec = self.specs.get(name)
        if spec is None:
            return failure(name, RunKind.UNKNOWN, "there is no such tool any more")
        try:
            text, more = await self._run(spec, run)
        except ToolRunError as error:
            return failure(name, error.kind, error.reason)
        text = cut(text, spec.max_result_bytes, more=more)
        return ToolOutcome(text or NO_OUTPUT, is_error=False, kind=RunKind.OK)

    async def close(self) -> None:
        """Let go of connections. Runs that are under way fail; functions in threads run on, unheard."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _run(self, spec: ToolSpec, run: ToolRun) -> tuple[str, bool]:
        place = self._places[spec.name]
        await place.acquire()
        match spec.backend:
            case HttpBackend() as backend:
                try:
                    work = run_request(self._opened(), backend, run, most=spec.max_result_bytes)
                    return await _within(backend.timeout, work)
                finally:
                    place.release()
            case PythonBackend() as backend:
                text = await _within(backend.timeout, run_function(backend.function, run, ended=place.release))
                return text, False
            case _:
                assert_never(spec.backend)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session()
        return self._session


async def _within(seconds: float, work: Coroutine[None, None, Result]) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise ToolRunError(RunKind.TIMEOUT, f"it timed out after {_spelled(seconds)}") from None


def _spelled(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def cut(text: str, most: int, *, more: bool = False) -> str:
    """A result of at most `most` bytes, with a note where something is missing; half surrogates become `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most and not more:
        return data.decode()
    return f"{data[:most].decode('utf-8', 'ignore')}\n(cut: the result was longer than {most} bytes)"
