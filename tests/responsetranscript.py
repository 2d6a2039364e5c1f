"""A response's stream through its filter as a transcript: what `transcript.py` is for chat completions.

`relay` drives `ResponseStream` without a server, over as many answers of the upstream as a turn takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.core.calls import BatchId
from proxy.core.exchange.judging import End, Judge
from proxy.core.exchange.response_outgoing import ResponseLead
from proxy.core.exchange.response_stream import ResponseStream
from proxy.core.exchange.steps import Asked, Broken, Ended, LookUp, Send, Step
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn, hidden_round, ids_to_give, pending_batch
from proxy.core.protocol.completion import added_usage
from proxy.errors import ProxyError
from tests.transcript import Outcome, World


@dataclass(slots=True)
class Layouts(Outcome):
    """`layouts` are the outputs of the answers as they came; `saved` is what had been sent when the shell was told of
    the end of a turn."""

    layouts: list[tuple[bytes | int, ...]] = field(default_factory=list)
    lead: ResponseLead = field(default_factory=ResponseLead)
    saved: list[bytes] = field(default_factory=list)


def relay(
    world: World,
    first: bytes | Sequence[bytes],
    *more: bytes,
    lead: ResponseLead | None = None,
    hosted: Sequence[str] = (),
) -> Layouts:
    """Relay an answer (in pieces, where a list is given) and the answers to its continuations."""
    relaying = _Relay(world, deque(more), lead or ResponseLead(), frozenset(hosted))
    try:
        relaying.run([first] if isinstance(first, bytes) else first)
    except ProxyError as error:
        relaying.outcome.error = error
    return relaying.outcome


class _Relay:
    def __init__(self, world: World, answers: deque[bytes], lead: ResponseLead, hosted: frozenset[str]) -> None:
        self._world = world
        self._answers = answers
        self._judge = Judge(world.policies.for_request(world.facts), world.facts, world.tools)
        self._lead = lead
        self._hosted = hosted
        self._turn = ChoiceTurn(world.denied)
        self._pending: Ended | None = None
        self._fresh = 0
        self.outcome = Layouts(lead=lead)

    def run(self, pieces: Sequence[bytes]) -> None:
        stream = self._one(pieces, first=True)
        while (ended := self._pending) is not None and not stream.failed:
            self._pending = None
            pending = pending_batch(ended.batch, ended.conclusion, batch_id=BatchId("b"), message="[]")
            results = [(c.result or "done", c.blocked, c.blocked) for c in pending.calls]
            self._turn.add_round(hidden_round("[]", pending, results), self._world.bounds)
            self._lead.rounds += 1
            stream = self._one([self._answers.popleft()], first=False)

    def _one(self, pieces: Sequence[bytes], *, first: bool) -> ResponseStream:
        stream = ResponseStream(
            self._judge,
            self._lead,
            turn=self._turn,
            bounds=self._world.bounds,
            limits=self._world.limits,
            used_ids=self._world.in_history,
            hosted=self._hosted,
        )
        for piece in pieces:
            if first:
                self.outcome.feeds.append(b"")
            self._perform(stream, stream.feed(piece, 0.0))
        if first:
            self.outcome.feeds.append(b"")
        self._perform(stream, stream.finish(0.0))
        self.outcome.told += [judged for judged, _ in stream.abandon()]
        self.outcome.layouts.append(stream.layout())
        self._lead.usage = added_usage(self._lead.usage, stream.usage)
        return stream

    def _perform(self, stream: ResponseStream, steps: Iterable[Step]) -> None:
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

    def _ended(self, stream: ResponseStream, ended: Ended) -> list[Step]:
        self.outcome.ended.append(ended)
        self.outcome.told += ended.batch
        self.outcome.saved.append(self.outcome.out)
        match ended.conclusion.end:
            case End.FAIL:
                raise ProxyError(ended.conclusion.message, code="tool_call_blocked", status=403)
            case End.CONTINUE:
                self._pending = ended
                return stream.hide(0)
            case End.PASS | End.SPLIT | End.CUT if ended.batch:
                return stream.surface(0, ended.conclusion, self._ids(ended))
            case _:
                said = ended.conclusion.message
                if not said and self._turn.closing and not [i for i in stream.layout() if isinstance(i, bytes)]:
                    said = LIMIT_REACHED
                return stream.end_with(0, said) if said or ended.batch else stream.surface(0, ended.conclusion, [])

    def _ids(self, ended: Ended) -> list[str | None]:
        needed = ended.conclusion.end is End.SPLIT or self._turn.rounds or ended.known
        if ended.conclusion.end is End.CUT or not needed:
            return [None] * len(ended.batch)
        taken = self._world.in_history | ended.known
        return ids_to_give(ended.batch, ended.conclusion, taken=taken, fresh_id=self._id)

    def _id(self) -> str:
        self._fresh += 1
        return f"call_fresh{self._fresh:018}"
