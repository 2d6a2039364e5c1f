"""The ledger in the store: keys, times to live, and records in place of bytes.

Entries are a tenant's: its name is part of every key. A pointer from an id that a client was given outlives its
batch by a week, so that a request which comes too late is known as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
from proxy.core.calls import BatchId, Tenant
from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

_REMEMBERED = 7 * 86400.0
_LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a history. `forgotten` are batches that have expired."""

    pointers: Mapping[str, BatchId] = field(default_factory=dict)
    batches: Mapping[BatchId, BatchRecord] = field(default_factory=dict)
    turns: Mapping[str, TurnRecord] = field(default_factory=dict)
    forgotten: frozenset[BatchId] = frozenset()


class Ledger:
    """The entries of one tenant, which is asked for only when something is read or written."""

    def __init__(self, store: Store, tenant: Callable[[], Awaitable[Tenant]], *, ttl: float) -> None:
        self._store = store
        self._tenant = tenant
        self._ttl = ttl

    async def _key(self, kind: str, name: str) -> str:
        short = name if len(name) <= _LONGEST_ID else "#" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
        return f"{kind}/{await self._tenant()}/{short}"

    async def _keys(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        return {await self._key(kind, name): name for name in names}

    async def know(self, ids: Sequence[str], digests: Sequence[str]) -> Known:
        """What there is under ids of calls and digests of conversations. Raises StoreError."""
        by_key = await self._keys("call", ids)
        by_digest = await self._keys("turn", digests)
        found = await self._store.load([*by_key, *by_digest])
        pointers = {name: BatchId(found[key].value.decode()) for key, name in by_key.items() if key in found}
        turns = {name: _record(found[key], TurnRecord) for key, name in by_digest.items() if key in found}
        by_batch = await self._keys("batch", sorted(set(pointers.values())))
        loaded = await self._store.load(list(by_batch)) if by_batch else {}
        batches = {BatchId(name): _record(loaded[key], BatchRecord) for key, name in by_batch.items() if key in loaded}
        used = [key for key in (*by_digest, *by_batch) if key in found or key in loaded]
        if used:
            await self._store.touch(used, self._ttl)
            live = [key for key, name in by_key.items() if pointers.get(name) in batches]
            await self._store.touch(live, self._ttl + _REMEMBERED)
        forgotten = frozenset(pointers.values()) - batches.keys()
        return Known(pointers, batches, turns, forgotten)

    async def has_id(self, call_id: str) -> bool:
        """Whether an id was given to this tenant already, or stands in a batch of its. Raises StoreError."""
        return bool(await self._store.load([await self._key("call", call_id)]))

    async def save_batch(self, record: BatchRecord) -> None:
        """Keep a batch, findable by every id that the client was or will be given. Raises StoreError."""
        writes = [Write(await self._key("batch", record.batch_id), render_record(record), self._ttl)]
        for call in record.calls:
            if call.given_id:
                pointer = record.batch_id.encode()
                writes.append(Write(await self._key("call", call.given_id), pointer, self._ttl + _REMEMBERED))
        await self._save(writes)

    async def save_turn(self, digest: str, record: TurnRecord) -> None:
        """Keep a turn with hidden rounds. Of two under one digest that tell a model different things, neither is used
        from then on."""
        key = await self._key("turn", digest)
        for _ in range(3):
            old = (await self._store.load([key])).get(key)
            kept = record
            if old is not None:  # what is there stays, so that the history of whoever uses it stays too
                known = _record(old, TurnRecord)
                unclear = known.unclear or not says_the_same(known, record)
                kept = TurnRecord(known.content, known.rounds, unclear=unclear)
            version = 0 if old is None else old.version
            if await self._store.save([Write(key, render_record(kept), self._ttl, version=version)]):
                return
        raise StoreError("The ledger could not be written: others wrote the same entry.")

    async def stored_answer(self, answer_id: str) -> Mapping[int, BatchRecord]:
        """The batches of a stored answer by the index of their choice. Raises StoreError."""
        keys = await self._keys("answer", [f"{answer_id}.{index}" for index in range(8)])
        pointers = await self._store.load(list(keys))
        found: dict[int, BatchRecord] = {}
        for key, name in keys.items():
            if key in pointers:
                batch_key = await self._key("batch", pointers[key].value.decode())
                loaded = await self._store.load([batch_key])
                if batch_key in loaded:
                    found[int(name.rpartition(".")[2])] = _record(loaded[batch_key], BatchRecord)
        return found

    async def point_to_answer(self, answer_id: str, index: int, batch_id: BatchId) -> None:
        """Remember which batch a choice of a stored answer is. Raises StoreError."""
        key = await self._key("answer", f"{answer_id}.{index}")
        await self._save([Write(key, batch_id.encode(), self._ttl)])

    # -- rounds of an answer that no client has seen end

    async def resume(self, digest: str) -> tuple[ResumeRecord, int] | None:
        """How far an earlier try of a request has come, with its version. Raises StoreError."""
        key = await self._key("resume", digest)
        found = (await self._store.load([key])).get(key)
        return None if found is None else (_record(found, ResumeRecord), found.version)

    async def save_resume(self, digest: str, record: ResumeRecord, version: int) -> bool:
        """Keep how far a request has come; False when another try of it was faster. Raises StoreError."""
        key = await self._key("resume", digest)
        return await self._store.save([Write(key, render_record(record), self._ttl, version=version)])

    async def drop_resume(self, digest: str, version: int) -> None:
        """The client has seen the end of the answer. What another try has come to since stays. Raises StoreError."""
        await self._store.save([Write(await self._key("resume", digest), None, 0.0, version=version)])

    # -- runs

    async def run(self, batch: str, ordinal: int) -> tuple[Run, int]:
        """The run of a held call, and its version (0: there is none yet). Raises StoreError."""
        key = await self._key("run", f"{batch}.{ordinal}")
        found = (await self._store.load([key])).get(key)
        if found is None:
            return Run(), 0
        try:
            run = parse_run(found.value)
        except ValueError as error:
            raise StoreError("A run in the ledger cannot be read.") from error
        if run.state is RunState.DONE:  # as long as its batch is used, it must not run again
            await self._store.touch([key], self._ttl + _REMEMBERED)
        return run, found.version

    async def save_run(self, batch: str, ordinal: int, run: Run | None, *, version: int) -> bool:
        """Keep a run (None: drop it) unless another wrote it meanwhile. Raises StoreError."""
        key = await self._key("run", f"{batch}.{ordinal}")
        value = None if run is None else render_run(run)
        return await self._store.save([Write(key, value, self._ttl + _REMEMBERED, version=version)])

    async def count(self, parts: Sequence[str], limit: int, window: float) -> bool:
        """Count one call under a rule's own key (which names the tenant only where the rule says so)."""
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
        return await self._store.count(f"limit/{digest}", limit, window)

    async def _save(self, writes: Sequence[Write]) -> None:
        if not await self._store.save(writes):
            raise StoreError("The ledger could not be written.")


def _record(found: Stored, kind: type[Record]) -> Record:
    try:
        return parse_record(found.value, kind)
    except UnknownRecordError as error:
        raise StoreError("An entry of the ledger is of a form that this release does not know.") from error
