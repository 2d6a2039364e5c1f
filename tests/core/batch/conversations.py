"""Made-up conversations: what the model saw of each, what its client keeps, and what the ledger remembers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from proxy.core.batch.ledger import Run, RunState
from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult, TurnRecord
from proxy.core.batch.rejoin import Found, find, pieces
from proxy.core.calls import BatchId, Owner
from proxy.core.exchange.chat_rejoin import render_pieces
from proxy.core.jsontext import elements
from proxy.core.protocol.chat import digests, read_call, read_history, read_request

Message = dict[str, Any]
PLENTY = 1 << 30


@dataclass(frozen=True)
class Step:
    """One call of a batch: `stage` as in the ledger; of a held one, whether its result is `known` or has to be run.
    `renamed`: the client knows it by another id."""

    stage: int | None
    known: bool = True
    renamed: bool = False
    rewritten: bool = False
    original: bool = False


@dataclass(frozen=True)
class Turn:
    """What follows a message of the user: hidden rounds, perhaps a batch and more rounds (`after`), and a text."""

    batch: tuple[Step, ...]
    rounds: int
    after: int
    text: str


@dataclass
class World:
    """A conversation as it grew. `seen` is what the model saw of it, `kept` what the client keeps."""

    seen: list[Message] = field(default_factory=list)
    kept: list[Message] = field(default_factory=list)
    pointers: dict[str, BatchId] = field(default_factory=dict)
    batches: dict[BatchId, BatchRecord] = field(default_factory=dict)
    turns: dict[str, TurnRecord] = field(default_factory=dict)
    runs: dict[tuple[BatchId, int], Run] = field(default_factory=dict)
    grown: list[tuple[list[Message], list[Message]]] = field(default_factory=list)
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def say(self, text: str) -> None:
        for side in (self.seen, self.kept):
            side.append({"role": "user", "content": text})
        self.asks()

    def asks(self) -> None:
        """The upstream is asked now: what it sees here it has to see again."""
        self.grown.append((list(self.kept), list(self.seen)))

    # -- turns

    def take(self, turn: Turn) -> None:
        self.say(f"question {self.number()}")
        rounds = tuple(self._round() for _ in range(turn.rounds))
        if any(step.stage is not None for step in turn.batch):
            self._batch(turn, rounds)
            self.asks()
            self._text(turn.text, tuple(self._round() for _ in range(turn.after)))
        else:
            self._text(turn.text, rounds)

    def _round(self) -> Round:
        number = self.number()
        call = {"id": f"round:{number % 2}", "type": "function", "function": {"name": "t", "arguments": '{"n":1.10}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": f"hidden {number}"}
        self.seen += [message, result]
        results = (RoundResult(read_call(call), f"hidden {number}", blocked=False, failed=False),)
        return Round(json.dumps(message), results)

    def _text(self, text: str, rounds: tuple[Round, ...]) -> None:
        shown = "\n\n".join(["earlier", text]) if rounds else text
        self.seen.append({"role": "assistant", "content": text})
        self.kept.append({"role": "assistant", "content": shown})
        if rounds:
            request = read_request(json.dumps({"messages": self.kept}).encode(), 128)
            self.turns[digests(request)[-1]] = TurnRecord(json.dumps(text), rounds)

    def _batch(self, turn: Turn, rounds: tuple[Round, ...]) -> None:
        batch_id = BatchId(f"b{self.number()}")
        calls = [self._call(step) for step in turn.batch]
        stages: list[int | None] = [step.stage for step in turn.batch]
        made = [self._record(step, call) for step, call in zip(turn.batch, calls, strict=True)]
        message: Message = {"role": "assistant", "content": turn.text, "reasoning_content": "because"}
        self.batches[batch_id] = BatchRecord(batch_id, json.dumps(message), turn.text, tuple(made), rounds)
        self.pointers |= {record.given_id: batch_id for record in made if record.given_id}
        for ordinal, record in enumerate(made):
            if record.stage is None and record.result is None:
                self.runs[batch_id, ordinal] = Run(RunState.DONE, text=f"run of {calls[ordinal]['id']}")
        upstream = [self._as_seen(record, call) for record, call in zip(made, calls, strict=True)]
        self.seen += [{**message, "tool_calls": upstream}]
        for ordinal, record in enumerate(made):
            text = record.result or (self.runs[batch_id, ordinal].text if record.stage is None else "")
            content = text or f"result of {record.given_id}"
            self.seen.append({"role": "tool", "tool_call_id": calls[ordinal]["id"], "content": content})
        for stage in sorted({s for s in stages if s is not None}):
            now = [(r, c) for r, c in zip(made, calls, strict=True) if r.stage == stage]
            given = [self._as_given(record, call) for record, call in now]
            shown = {"content": turn.text, "reasoning_content": "because"} if not stage else {"content": None}
            self.kept.append({"role": "assistant", **shown, "tool_calls": given})
            for record, _ in now:
                content = f"result of {record.given_id}"
                self.kept.append({"role": "tool", "tool_call_id": record.given_id, "content": content})

    def _call(self, step: Step) -> Message:
        number = self.number()
        call_id = f"call_{number:024}" if not step.renamed else f"tool:{number}"
        arguments = f'{{"n": 1.10, "of": {number}}}'
        return {"id": call_id, "type": "function", "function": {"name": "t", "arguments": arguments}}

    def _record(self, step: Step, call: Message) -> CallRecord:
        held = step.stage is None
        given_id = f"call_given{self.number():019}" if step.renamed else str(call["id"])
        return CallRecord(
            read_call(call),
            json.dumps(call),
            Owner.PROXY if held else Owner.CLIENT,
            "" if held else given_id,
            given='{"changed":1}' if step.rewritten and not held else None,
            original=step.original,
            stage=step.stage,
            result=f"held {call['id']}" if held and step.known else None,
        )

    @staticmethod
    def _as_seen(record: CallRecord, call: Message) -> Message:
        if record.given is None or record.original:
            return call
        return {**call, "function": {**call["function"], "arguments": record.given}}

    @staticmethod
    def _as_given(record: CallRecord, call: Message) -> Message:
        arguments = record.given or call["function"]["arguments"]
        return {**call, "id": record.given_id, "function": {**call["function"], "arguments": arguments}}

    # -- what the proxy makes of a history

    def found(self, kept: list[Message]) -> Found:
        request = read_request(json.dumps({"messages": kept}).encode(), 128)
        entries = read_history(request.messages)
        by_index = dict(enumerate(digests(request)))
        turns = {index: self.turns[digest] for index, digest in by_index.items() if digest in self.turns}
        return find(entries, self.pointers, batches=self.batches, turns=turns)

    def rejoined(self, kept: list[Message], restore_bytes: int = PLENTY) -> list[bytes]:
        """The messages that the upstream gets for a client's history."""
        body = json.dumps({"messages": kept}).encode()
        request = read_request(body, 128)
        entries = read_history(request.messages)
        out = pieces(entries, self.found(kept), runs=self.runs, restore_bytes=restore_bytes)
        return render_pieces(request, out, elements(body, ("messages",)))


steps = st.builds(
    Step,
    st.sampled_from([None, None, 0, 0, 0, 1, 2]),
    known=st.booleans(),
    renamed=st.booleans(),
    rewritten=st.booleans(),
    original=st.booleans(),
)


def _without_gaps(batch: list[Step]) -> tuple[Step, ...]:
    """The batch with its stages numbered from 0 without gaps, as `stages` gives them."""
    used = sorted({step.stage for step in batch if step.stage is not None})
    number = {stage: at for at, stage in enumerate(used)}
    return tuple(
        step
        if step.stage is None
        else Step(number[step.stage], step.known, step.renamed, step.rewritten, step.original)
        for step in batch
    )


turns = st.builds(
    Turn,
    st.lists(steps, max_size=4).map(_without_gaps),
    rounds=st.integers(0, 2),
    after=st.integers(0, 1),
    text=st.sampled_from(["", "some text", "é"]),
)


def _world(taken: list[Turn]) -> World:
    world = World()
    for turn in taken:
        world.take(turn)
    world.say("and now?")
    return world


worlds = st.lists(turns, min_size=1, max_size=4).map(_world)
