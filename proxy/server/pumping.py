"""Bytes of a governed stream from the upstream through a filter to the client.

The filter (`core/exchange/*_stream.py`) says what to send; here it is sent, and what it asks is answered. What a
turn's end makes necessary is the relaying's. What one read of the upstream gave goes out in one write, before the
next read and before any question is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from proxy.core.exchange.judging import Judged
from proxy.core.exchange.steps import Asked, Broken, Ended, Key, LookUp, Send, Step
from proxy.core.policy.consults import CountCall, Reply
from proxy.errors import UpstreamError
from proxy.server.body import BodyReader
from proxy.server.budget import BufferShare
from proxy.server.http import ClientSide
from proxy.server.services import Services
from proxy.server.settling import Settling
from proxy.server.waiting import PING

_TAIL_SECONDS = 1.0
_AT_ONCE = 0.005
_LONG = 0.016
"""Seconds after which others may run."""
_PORTIONS = (1 << 11, 1 << 16)
"""How many bytes are looked at before that, at the least and at the most."""
_BLANK_LINES = (b"\n\n", b"\r\r", b"\n\r\n")


class StreamFilter(Protocol):
    """One answer of the upstream on its way to the client; see `ChatStream`."""

    @property
    def waiting(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    @property
    def broken_off(self) -> bool: ...
    @property
    def kept_bytes(self) -> int: ...
    def feed(self, data: bytes, now: float) -> list[Step]: ...
    def go_on(self, now: float) -> list[Step]: ...
    def finish(self, now: float) -> list[Step]: ...
    def answer(self, key: Key, given: Reply, now: float) -> list[Step]: ...
    def known(self, key: Key, found: bool, now: float) -> list[Step]: ...
    def abandon(self) -> Sequence[tuple[Judged, float]]: ...


class Pump:
    """Runs one filter. `ended` settles the end of a choice; `goes_on` says that nothing of this answer is waited for
    when its choices are over, since another is to be asked for."""

    def __init__(
        self,
        services: Services,
        client: ClientSide,
        settling: Settling,
        *,
        ended: Callable[[Ended], Awaitable[list[Step]]],
        goes_on: Callable[[], bool],
    ) -> None:
        self._services = services
        self._client = client
        self._settling = settling
        self._ended = ended
        self._goes_on = goes_on
        self._questions: dict[asyncio.Future[Any], Asked | LookUp] = {}
        self._portion = _PORTIONS[1] // 4
        self._open = False  # what was written last is an event that no blank line ended

    async def run(self, reader: BodyReader, stream: StreamFilter) -> None:
        """Relay one answer to its end. Raises ProxyError."""
        try:
            with self._services.budget.share() as share:
                await self._read(reader, stream, share)
            await self._perform(stream, stream.finish(self._now()))
            await self._settle_questions(stream)
            if stream.broken_off:
                if self._open:  # an error event is to follow
                    await self._write(b"\n\n")
                self._services.metrics.upstream_error("reset")
                raise UpstreamError("The upstream ended its answer in the middle.", kind="reset", code="reset")
        finally:
            await self._drop_questions()
            for judged, held_for in stream.abandon():
                self._settling.telling.call(judged, held_for)

    async def _read(self, reader: BodyReader, stream: StreamFilter, share: BufferShare) -> None:
        held = 0
        pieces = aiter(reader.pieces())
        while True:
            piece = await self._next(pieces, stream)
            if piece is None:
                return
            await self._feed(stream, piece)
            now_held = stream.kept_bytes
            if now_held > held:
                share.take(now_held - held)
            else:
                share.give(held - now_held)
            held = now_held

    async def _feed(self, stream: StreamFilter, piece: bytes) -> None:
        """Take bytes in, and let others run in between where they are many events: of those that say nothing, a read
        may hold ten thousand."""
        at, rested = 0, self._now()
        while at < len(piece):
            part, began = piece[at : at + self._portion], self._now()
            at += len(part)
            await self._perform(stream, stream.feed(part, began))
            await self._catch_up(stream)
            now = self._now()
            if now - began > _LONG:
                self._portion = max(_PORTIONS[0], self._portion // 4)
            elif now - began < _LONG / 8:
                self._portion = min(_PORTIONS[1], self._portion * 2)
            if now - rested > _LONG:
                await asyncio.sleep(0)
                rested = self._now()

    async def _catch_up(self, stream: StreamFilter) -> None:
        """Events that came with a question follow its answer where that comes at once; else they go on without it."""
        while stream.waiting and self._questions:
            done, _ = await asyncio.wait(self._questions, timeout=_AT_ONCE, return_when=asyncio.FIRST_COMPLETED)
            if done:
                await self._take_answers(stream)
            else:
                await self._perform(stream, stream.go_on(self._now()))

    async def _next(self, pieces: AsyncIterator[bytes], stream: StreamFilter) -> bytes | None:
        """The next bytes. While a call waits for the answer to a question, text goes on; an upstream that leaves its
        connection open behind the end holds up no continuation."""
        if not self._questions and not (self._goes_on() and stream.over):
            return await anext(pieces, None)
        reading = asyncio.ensure_future(_first_of(pieces))
        try:
            while not reading.done():
                limit = _TAIL_SECONDS if self._goes_on() and stream.over and not self._questions else None
                waiting: list[asyncio.Future[Any]] = [reading, *self._questions]
                done = await self._first_done(waiting, limit)
                if not done and not self._questions:
                    return None
                await self._take_answers(stream)
            return reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])

    async def _perform(self, stream: StreamFilter, steps: Iterable[Step]) -> None:
        """Do what the filter says: send first, since nothing that is to be sent waits for a question or an end that
        comes with it; then ask, and settle what has ended."""
        todo, ended = list(steps), False
        while todo:
            if out := b"".join(step.data for step in todo if isinstance(step, Send)):
                await self._write(out)
            if ended:
                self._settling.shown = not self._goes_on()
            todo, rest = [], [step for step in todo if not isinstance(step, Send)]
            for step in rest:
                match step:
                    case Broken(error):
                        raise error
                    case Ended():
                        todo += await self._ended(step)
                        ended = True
                    case Asked() | LookUp():
                        self._ask(step)

    async def _write(self, out: bytes) -> None:
        self._open = not out.endswith(_BLANK_LINES)
        await self._client.write(out)

    # -- questions

    def _ask(self, step: Asked | LookUp) -> None:
        settling = self._settling
        work = settling.consult(step.consult) if isinstance(step, Asked) else settling.has_id(step.call_id)
        self._questions[asyncio.ensure_future(work)] = step

    async def _take_answers(self, stream: StreamFilter) -> None:
        """Tell the filter what has been answered by now. Raises StoreError."""
        for task in [task for task in self._questions if task.done()]:
            step, answer = self._questions.pop(task), task.result()
            tell = stream.answer if isinstance(step, Asked) else stream.known
            await self._perform(stream, tell(step.key, answer, self._now()))

    async def _settle_questions(self, stream: StreamFilter) -> None:
        """Answer what is still open when the upstream has said all; the time of others is not the proxy's."""
        while self._questions:
            others = any(
                isinstance(s, Asked) and not isinstance(s.consult, CountCall) for s in self._questions.values()
            )
            with self._settling.telling.waiting() if others else nullcontext():
                await self._first_done(list(self._questions), None)
            await self._take_answers(stream)

    async def _first_done(
        self, waiting: Sequence[asyncio.Future[Any]], limit: float | None
    ) -> set[asyncio.Future[Any]]:
        """What is done first. While a question is open, the client gets a comment now and then."""
        seconds = limit if limit is not None or not self._questions else self._services.ping_seconds
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done and self._questions:
            await self._client.write(PING)
        return done

    async def _drop_questions(self) -> None:
        tasks, self._questions = list(self._questions), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _now(self) -> float:
        return self._services.timer()


async def _first_of(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
