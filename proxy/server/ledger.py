"""The ledger in the store: keys, times to live, and records in place of bytes.

Entries are a tenant's: its name is part of every key. A pointer from an id that a client was given outlives its
batch by a week, so that a request which comes too late is known as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.core.batch.ledger import Run, RunState, parse_run, render_run
from proxy.core.batch.record import (
    BatchRecord,
    Record,
    ResumeRecord,
    TurnRecord,
    UnknownRecordError,
    parse_record,
    render_record,
    says_the_same,
)
from proxy.core.calls import BatchId, CallId, Kind, Tenant, ToolCall
from proxy.core.jsontext import parse_own, render
from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

_REMEMBERED = 7 * 86400.0
_LONGEST_ID = 64
MOST_BYTES = 64 << 20
"""The largest record; what one turn may hold (`limits.heldBytes`) is less by default."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a history. `forgotten` are batches that have expired, with the calls of theirs that were
    held (only where the upstream keeps the conversation)."""

    pointers: Mapping[str, BatchId] = field(default_factory=dict)
    batches: Mapping[BatchId, BatchRecord] = field(default_factory=dict)
    turns: Mapping[str, TurnRecord] = field(default_factory=dict)
    forgotten: Mapping[BatchId, tuple[ToolCall, ...]] = field(default_factory=dict)


class Ledger:
    """The entries of one tenant, which is asked for only when something is read or written."""

    def __init__(self, store: Store, tenant: Callable[[], Awaitable[Tenant]], *, ttl: float) -> None:
        self.store = store
        self._tenant = tenant
        self.ttl = ttl

    async def key(self, kind: str, name: str) -> str:
        short = name if len(name) <= _LONGEST_ID else "#" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
        return f"{kind}/{await self._tenant()}/{short}"

    async def _keys(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        return {await self.key(kind, name): name for name in names}

    async def know(self, ids: Sequence[str], digests: Sequence[str]) -> Known:
        """What there is under ids of calls and digests of conversations. Raises StoreError."""
        by_key = await self._keys("call", ids)
        by_digest = await self._keys("turn", digests)
        found = await self.store.load([*by_key, *by_digest])
        pointed = {name: _read_pointer(found[key].value) for key, name in by_key.items() if key in found}
        pointers = {name: batch_id for name, (batch_id, _) in pointed.items()}
        turns = {name: read_entry(found[key], TurnRecord) for key, name in by_digest.items() if key in found}
        by_batch = await self._keys("batch", sorted(set(pointers.values())))
        loaded = await self.store.load(list(by_batch)) if by_batch else {}
        batches = {
            BatchId(name): read_entry(loaded[key], BatchRecord) for key, name in by_batch.items() if key in loaded
        }
        used = [key for key in (*by_digest, *by_batch) if key in found or key in loaded]
        if used:
            await self.store.touch(used, self.ttl)
            live = [key for key, name in by_key.items() if pointers.get(name) in batches]
            await self.store.touch(live, self.ttl + _REMEMBERED)
        forgotten = {batch_id: held for batch_id, held in pointed.values() if batch_id not in batches}
        return Known(pointers, batches, turns, forgotten)

    async def has_id(self, call_id: str) -> bool:
        """Whether an id was given to this tenant already, or stands in a batch of its. Raises StoreError."""
        return bool(await self.store.load([await self.key("call", call_id)]))

    async def save_batch(self, record: BatchRecord, *, remembered: bool = False, again: bool = False) -> BatchId:
        """Keep a batch, findable by every id that the client was or will be given; the id under which it is kept.

        `remembered`: the upstream keeps the conversation, so that its held calls are owed results for good. `again`:
        the batch takes the place of an earlier one with the same ids. Raises StoreError, also where another answer
        gave out one of the ids meanwhile, unless it was the same answer: then that one's batch stands."""
        pointer = _pointer(record, remembered=remembered)
        writes = [Write(await self.key("batch", record.batch_id), render_record(record), self.ttl)]
        given = [call.given_id for call in record.calls if call.given_id]
        for name in given:
            version = None if again else 0
            key = await self.key("call", name)
            writes.append(Write(key, pointer, self.ttl + _REMEMBERED, version=version))
        if await self._saved(writes):
            return record.batch_id
        known = await self.know(given, [])
        for batch in known.batches.values():
            if replace(batch, batch_id=record.batch_id) == record and set(known.pointers.values()) == {batch.batch_id}:
                return batch.batch_id
        raise StoreError("The ledger could not be written: another answer gave out the same ids of calls.")

    async def save_turn(self, digest: str, record: TurnRecord) -> None:
        """Keep a turn with hidden rounds. Of two under one digest that tell a model different things, neither is used
        from then on."""
        key = await self.key("turn", digest)
        for _ in range(3):
            old = (await self.store.load([key])).get(key)
            kept = record
            if old is not None:  # what is there stays, so that the history of whoever uses it stays too
                known = read_entry(old, TurnRecord)
                unclear = known.unclear or not says_the_same(known, record)
                kept = TurnRecord(known.content, known.rounds, unclear=unclear)
            version = 0 if old is None else old.version
            if await self.store.save([Write(key, render_record(kept), self.ttl, version=version)]):
                return
        raise StoreError("The ledger could not be written: others wrote the same entry.")

    async def stored_answer(self, answer_id: str) -> Mapping[int, BatchRecord]:
        """The batches of a stored answer by the index of their choice. Raises StoreError."""
        keys = await self._keys("answer", [f"{answer_id}.{index}" for index in range(8)])
        pointers = await self.store.load(list(keys))
        found: dict[int, BatchRecord] = {}
        for key, name in keys.items():
            if key in pointers:
                batch_key = await self.key("batch", pointers[key].value.decode())
                loaded = await self.store.load([batch_key])
                if batch_key in loaded:
                    found[int(name.rpartition(".")[2])] = read_entry(loaded[batch_key], BatchRecord)
        return found

    async def point_to_answer(self, answer_id: str, index: int, batch_id: BatchId) -> None:
        """Remember which batch a choice of a stored answer is. Raises StoreError."""
        key = await self.key("answer", f"{answer_id}.{index}")
        await self.save([Write(key, batch_id.encode(), self.ttl)])

    # -- rounds of an answer that no client has seen end

    async def resume(self, digest: str) -> tuple[ResumeRecord, int] | None:
        """How far an earlier try of a request has come, with its version. Raises StoreError."""
        key = await self.key("resume", digest)
        found = (await self.store.load([key])).get(key)
        return None if found is None else (read_entry(found, ResumeRecord), found.version)

    async def save_resume(self, digest: str, record: ResumeRecord, version: int) -> bool:
        """Keep how far a request has come; False when another try of it was faster. Raises StoreError."""
        key = await self.key("resume", digest)
        return await self.store.save([Write(key, render_record(record), self.ttl, version=version)])

    async def drop_resume(self, digest: str, version: int) -> None:
        """The client has seen the end of the answer. What another try has come to since stays. Raises StoreError."""
        await self.store.save([Write(await self.key("resume", digest), None, 0.0, version=version)])

    # -- runs

    async def run(self, batch: str, ordinal: int) -> tuple[Run, int]:
        """The run of a held call, and its version (0: there is none yet). Raises StoreError."""
        key = await self.key("run", f"{batch}.{ordinal}")
        found = (await self.store.load([key])).get(key)
        if found is None:
            return Run(), 0
        try:
            run = parse_run(found.value)
        except ValueError as error:
            raise StoreError("A run in the ledger cannot be read.") from error
        if run.state is RunState.DONE:  # as long as its batch is used, it must not run again
            await self.store.touch([key], self.ttl + _REMEMBERED)
        return run, found.version

    async def save_run(self, batch: str, ordinal: int, run: Run | None, *, version: int) -> bool:
        """Keep a run (None: drop it) unless another wrote it meanwhile. Raises StoreError."""
        return await self.store.save([await self.run_write(batch, ordinal, run, version=version)])

    async def run_write(self, batch: str, ordinal: int, run: Run | None, *, version: int) -> Write:
        """What `save_run` saves, for who saves several runs at once."""
        key = await self.key("run", f"{batch}.{ordinal}")
        value = None if run is None else render_run(run)
        return Write(key, value, self.ttl + _REMEMBERED, version=version)

    async def count(self, parts: Sequence[str], limit: int, window: float) -> bool:
        """Count one call under a rule's own key (which names the tenant only where the rule says so)."""
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
        return await self.store.count(f"limit/{digest}", limit, window)

    async def save(self, writes: Sequence[Write]) -> None:
        """All or none. Raises StoreError, also for a record that is larger than any turn should be."""
        if not await self._saved(writes):
            raise StoreError("The ledger could not be written.")

    async def _saved(self, writes: Sequence[Write]) -> bool:
        if any(len(write.value or b"") > MOST_BYTES for write in writes):
            raise StoreError(f"A record of the ledger would be larger than {MOST_BYTES >> 20} MiB.")
        return await self.store.save(writes)


def _pointer(record: BatchRecord, *, remembered: bool) -> bytes:
    """What leads from an id to its batch. It outlives that, and says then which calls are still owed a result."""
    if not remembered:
        return record.batch_id.encode()
    held = [[c.call.call_id, c.call.name, c.call.kind, c.call.namespace] for c in record.calls if c.stage is None]
    return record.batch_id.encode() + b"\n" + render(held)


def _read_pointer(value: bytes) -> tuple[BatchId, tuple[ToolCall, ...]]:
    batch_id, _, held = value.partition(b"\n")
    try:
        calls = tuple(
            ToolCall(CallId(call_id), name, "", Kind(kind), namespace=namespace)
            for call_id, name, kind, namespace in (parse_own(held) if held else [])
        )
    except ValueError as error:
        raise StoreError("An entry of the ledger is of a form that this release does not know.") from error
    return BatchId(batch_id.decode()), calls


def read_entry(found: Stored, kind: type[Record]) -> Record:
    """An entry as a record. Raises StoreError."""
    try:
        return parse_record(found.value, kind)
    except UnknownRecordError as error:
        raise StoreError("An entry of the ledger is of a form that this release does not know.") from error
