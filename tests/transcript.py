"""A stream's filter as a transcript: these bytes came in, those went out.

`relay` drives `ChatStream` without a server: it answers what the filter asks and decides at the end of a turn as
the server does, over as many answers of the upstream as the turn takes. `lines` writes bytes so that a diff shows
where two streams part.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from proxy.core import jsontext
from proxy.core.calls import BatchId, RequestFacts
from proxy.core.exchange.chat_events import Lead
from proxy.core.exchange.chat_stream import ChatStream
from proxy.core.exchange.judging import End, Judge, Judged
from proxy.core.exchange.steps import Asked, Broken, Ended, LookUp, Send, Step, StreamLimits
from proxy.core.exchange.turns import (
    LIMIT_REACHED,
    Bounds,
    ChoiceTurn,
    hidden_round,
    ids_to_give,
    pending_batch,
)
from proxy.core.policy.decide import PolicySet
from proxy.core.protocol.chat import content_text
from proxy.core.protocol.completion import added_usage
from proxy.errors import ProxyError

LIMITS = StreamLimits(event_bytes=1 << 20, batch_calls=128, held_bytes=1 << 20)
BOUNDS = Bounds(most=40, most_errors=3, stop_after=5)


@dataclass(frozen=True, slots=True)
class World:
    """What a relayed stream meets: rules, the ids that the ledger and the history have, limits, proxy tools."""

    policies: PolicySet
    facts: RequestFacts = field(default_factory=RequestFacts)
    tools: tuple[str, ...] = ()
    in_ledger: frozenset[str] = frozenset()
    in_history: frozenset[str] = frozenset()
    denied: int = 0
    may_count: bool = True
    bounds: Bounds = field(default_factory=lambda: replace(BOUNDS))
    limits: StreamLimits = LIMITS


@dataclass(slots=True)
class Outcome:
    """What came out: `feeds` is what each piece of the first answer gave at once, then all that followed it."""

    feeds: list[bytes] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    told: list[Judged] = field(default_factory=list)
    error: ProxyError | None = None

    @property
    def out(self) -> bytes:
        return b"".join(self.feeds)

    @property
    def text(self) -> str:
        return lines(self.out)


def lines(data: bytes) -> str:
    """A stream as text whose line ends show, one line a line."""
    return data.decode("utf-8", "backslashreplace").replace("\r", "\\r").replace("\n", "\\n\n")


_APART = 64


def ways_to_cut(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and cut at each point: many cuts at a time, each with some bytes to either side."""
    yield [data]
    yield single_bytes(data)
    for first in range(1, _APART + 1):
        at = [0, *range(first, len(data), _APART), len(data)]
        yield [data[start:end] for start, end in itertools.pairwise(at)]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def relay(world: World, first: bytes | Sequence[bytes], *more: bytes) -> Outcome:
    """Relay an answer (in pieces, where a list is given) and the answers to its continuations."""
    relaying = _Relay(world, deque(more))
    try:
        relaying.run([first] if isinstance(first, bytes) else first)
    except ProxyError as error:
        relaying.outcome.error = error
    return relaying.outcome


class _Relay:
    def __init__(self, world: World, answers: deque[bytes]) -> None:
        self._world = world
        self._answers = answers
        self._judge = Judge(world.policies.for_request(world.facts), world.facts, world.tools)
        self._lead = Lead()
        self._turns: dict[int, ChoiceTurn] = {}
        self._pending: deque[Ended] = deque()
        self._fresh = 0
        self.outcome = Outcome()

    def run(self, pieces: Sequence[bytes]) -> None:
        stream = self._one(pieces, only=None)
        continued = bool(self._pending)
        while self._pending and not stream.failed:
            ended = self._pending.popleft()
            self._answer_calls(ended)
            self._lead.rounds += 1
            stream = self._one([self._answers.popleft()], only=ended.index)
        if continued and not stream.failed:
            self._send_tail()

    def _turn(self, index: int) -> ChoiceTurn:
        return self._turns.setdefault(index, ChoiceTurn(self._world.denied))

    def _one(self, pieces: Sequence[bytes], *, only: int | None) -> ChatStream:
        stream = ChatStream(
            self._judge,
            self._lead,
            turn_of=self._turn,
            bounds=self._world.bounds,
            limits=self._world.limits,
            used_ids=self._world.in_history,
            only=only,
        )
        for piece in pieces:
            if only is None:
                self.outcome.feeds.append(b"")
            self._perform(stream, stream.feed(piece, 0.0))
        if only is None:
            self.outcome.feeds.append(b"")
        self._perform(stream, stream.finish(0.0))
        self.outcome.told += [judged for judged, _ in stream.abandon()]
        self._lead.usage = added_usage(self._lead.usage, stream.usage)
        return stream

    def _perform(self, stream: ChatStream, steps: Iterable[Step]) -> None:
        todo = deque(steps)
        while todo:
            match todo.popleft():
                case Send(data):
                    self.outcome.feeds[-1] += data
                    continue
                case Asked(key, _):
                    more = stream.answer(key, self._world.may_count, 0.0)
                case LookUp(key, call_id):
                    more = stream.known(key, call_id in self._world.in_ledger, 0.0)
                case Broken(error):
                    raise error
                case Ended() as ended:
                    more = self._ended(stream, ended)
            todo.extendleft(reversed(more))

    def _ended(self, stream: ChatStream, ended: Ended) -> list[Step]:
        self.outcome.ended.append(ended)
        self.outcome.told += ended.batch
        turn, text = self._turn(ended.index), content_text(ended.message.get("content"))
        match ended.conclusion.end:
            case End.FAIL:
                raise ProxyError(ended.conclusion.message, code="tool_call_blocked", status=403)
            case End.CONTINUE:
                self._pending.append(ended)
                turn.texts += [text] if text else []
                return stream.hide(ended.index)
            case End.PASS | End.SPLIT | End.CUT if ended.batch:
                return stream.surface(ended.index, ended.conclusion, self._ids(turn, ended))
            case _:
                return self._end_text(stream, ended, text)

    def _end_text(self, stream: ChatStream, ended: Ended, text: str) -> list[Step]:
        turn, message = self._turn(ended.index), ended.conclusion.message
        if not message and not text and not turn.texts and turn.closing:
            message = LIMIT_REACHED
        if not ended.batch and not message:
            return stream.surface(ended.index, ended.conclusion, [])
        return stream.end_with(ended.index, message)

    def _ids(self, turn: ChoiceTurn, ended: Ended) -> list[str | None]:
        needed = ended.conclusion.end is End.SPLIT or turn.rounds or ended.known
        if ended.conclusion.end is End.CUT or not needed or any(j.call.kind == "legacy" for j in ended.batch):
            return [None] * len(ended.batch)
        taken = self._world.in_history | ended.known
        return ids_to_give(ended.batch, ended.conclusion, taken=taken, fresh_id=self._id)

    def _id(self) -> str:
        self._fresh += 1
        return f"call_fresh{self._fresh:018}"

    def _answer_calls(self, ended: Ended) -> None:
        turn = self._turn(ended.index)
        pending = pending_batch(ended.batch, ended.conclusion, batch_id=BatchId("b"), message="{}")
        results = [(c.result or "done", c.blocked, c.blocked) for c in pending.calls]
        turn.add_round(hidden_round("{}", pending, results), self._world.bounds)

    def _send_tail(self) -> None:
        if (event := self._lead.usage_event) is not None and event.data is not None:
            changes: dict[jsontext.Path, bytes | None] = {("usage",): jsontext.render(self._lead.usage)}
            first = self._lead.envelope
            changes |= {(k,): jsontext.render(first[k]) for k in ("id", "created") if k in first}
            self.outcome.feeds[-1] += event.with_data(jsontext.edit(event.data, changes))
        if self._lead.done_event is not None:
            self.outcome.feeds[-1] += self._lead.done_event.raw
