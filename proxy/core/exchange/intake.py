"""Bytes in, events one after another: what the filters of all streams have in common.

A filter never waits by itself. Events behind one that asks something are taken when that is answered, or by `go_on`
where the answer takes its time, so that what goes out does not depend on how the bytes came in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from proxy.core import jsontext
from proxy.core.exchange.deciding import Decisions
from proxy.core.exchange.steps import Broken, Send, Step, StreamLimits, too_deep, too_long
from proxy.core.protocol.sse import Event, EventSplitter
from proxy.errors import UpstreamError


class Intake(ABC):
    """The events of one answer of the upstream."""

    def __init__(self, decisions: Decisions, limits: StreamLimits) -> None:
        self._decisions = decisions
        self._limits = limits
        self._splitter = EventSplitter()
        self._backlog: deque[Event | None] = deque()  # None: the end of the body
        self._unanswered = 0

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes and characters of calls, and of events that wait, that are kept from the client at the moment."""

    @property
    @abstractmethod
    def broken_off(self) -> bool:
        """Whether the answer, when its body has ended, had no end."""

    @property
    @abstractmethod
    def _may_be_followed(self) -> bool:
        """Whether something of our own, or of another answer, may come behind this one."""

    @abstractmethod
    def _event(self, event: Event) -> list[Step]:
        """Take an event. Raises UpstreamError."""

    @abstractmethod
    def _cut_short(self) -> list[Step]:
        """The body has ended: what was not finished is cut short."""

    @property
    def waiting(self) -> bool:
        """Whether events wait for an answer."""
        return bool(self._backlog)

    def feed(self, data: bytes, now: float) -> list[Step]:
        """Take bytes in."""
        self._decisions.now = now
        self._backlog += self._splitter.feed(data)
        steps = self._take_events([], patient=not self._unanswered)
        if self._splitter.pending > (most := self._limits.event_bytes):
            steps.append(Broken(too_long("An event of the stream", most)))
        elif self.held_bytes > (most := self._limits.held_bytes):
            steps.append(Broken(too_long("What has to be held of the stream", most)))
        return steps

    def go_on(self, now: float) -> list[Step]:
        """An answer is long in coming: take the events behind the question, whose text waits for nothing."""
        self._decisions.now = now
        return self._take_events([], patient=False)

    def finish(self, now: float) -> list[Step]:
        """The body has ended well: what was not finished is cut short, and the beginning of an event is none."""
        self._decisions.now = now
        if (rest := self._splitter.finish()) is not None and (_is_whole(rest) or not self.broken_off):
            ended = rest.raw + b"\n\n" if self._may_be_followed else rest.raw
            self._backlog.append(Event(ended, rest.data))
        self._backlog.append(None)
        return self._take_events([])

    def _answered(self, steps: list[Step]) -> list[Step]:
        """What an answer brought, and the events that waited for it."""
        self._unanswered -= 1
        return self._take_events(steps)

    def _take_events(self, steps: list[Step], *, patient: bool = True) -> list[Step]:
        """Take the events that have come, one after another, up to one that asks something."""
        steps = list(steps)
        self._unanswered += sum(not isinstance(step, Send) for step in steps)
        while self._backlog and not (patient and self._unanswered):
            event = self._backlog.popleft()
            try:
                more = self._cut_short() if event is None else self._event(event)
            except UpstreamError as error:
                return [*steps, Broken(error)]
            self._unanswered += sum(not isinstance(step, Send) for step in more)
            steps += more
        return steps

    def _check(self, event: Event) -> None:
        """Refuse what is too long, or nests too deep. Raises UpstreamError."""
        assert event.data is not None
        if len(event.raw) > self._limits.event_bytes:
            raise too_long("An event of the stream", self._limits.event_bytes)
        if jsontext.nests_deeper(event.data, self._limits.nesting):
            raise too_deep("An event of the stream", self._limits.nesting)


def _is_whole(event: Event) -> bool:
    """Whether an event that no blank line ended has all its data."""
    if event.data is None or event.data.strip() == b"[DONE]":
        return event.data is not None
    try:
        jsontext.parse_lenient(event.data)
    except ValueError:
        return False
    return True
