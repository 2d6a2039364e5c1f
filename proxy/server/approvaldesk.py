"""Approvals in the store: what people are asked, what they said, and that each yes counts once.

An approval is found by its tenant, tool, owner and canonical arguments, and by nothing that a client could choose
otherwise. Any process may decide; whoever waits for a decision looks at the store now and then, one look for all that
wait here. Nobody locks: each step is saved on the condition that nobody else took one.

What waits is bounded for each tenant, so that a model in a loop fills neither the store nor the list that a person
reads. A question takes one place, and a large one several; calls that are made at the very same moment may pass the
bound by as many.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from proxy.core.batch.approval import (
    Approval,
    ApprovalEvent,
    ApprovalState,
    as_of,
    counts,
    decided,
    parse_approval,
    render_approval,
    returned,
    used,
)
from proxy.core.jsontext import parse_own, render
from proxy.core.policy.consults import AskPerson, CallAsSeen, PersonSaid, Word
from proxy.errors import StoreError
from proxy.metrics import Metrics
from proxy.server.ledger import Ledger
from proxy.server.logs import Log
from proxy.server.tasks import TaskOwner
from proxy.stores.base import Store, Stored, Write

POLL_SECONDS = 0.5
LISTED = 1000
"""The most approvals of one page of a list, and the most that are counted as pending."""
PLACES = 1000
"""How many questions of one tenant may wait at a time."""
PLACE_BYTES = 16 << 10
"""A question whose arguments are longer takes a place for each so many bytes."""
_KEPT = 86400.0  # seconds that a decision is remembered when its time is over
_KEPT_UNDECIDED = 3600.0
_ENTRY, _PENDING = "approval/", "approval-pending/"
_CALL, _OPEN = "approval-call", "approval-open"
_MOST_KEYS = 10_000
_PAGE_BYTES = 8 << 20
_AT_ONCE = 100


class Part(IntEnum):
    """The two parts of a list, in their order."""

    PENDING = 0
    OTHERS = 1


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a list an approval stood; what was decided since has left its part."""

    part: Part
    id: str


class ApprovalDesk:
    """The approvals of all tenants, as this process sees them. `announce` is told of each that is new, once."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        metrics: Metrics,
        log: Log,
        tasks: TaskOwner,
        announce: Callable[[Approval], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._tasks = tasks
        self._announce = announce
        self._poll_seconds = poll_seconds
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._watching: asyncio.Task[None] | None = None
        self.is_used = False  # whether anything was asked here

    # -- for judgements

    async def ask(self, ledger: Ledger, asked: AskPerson, *, remembered: float) -> PersonSaid:
        """What a person says of a call; a yes is used up by it, which is known for `remembered` seconds. Raises
        StoreError."""
        self.is_used = True
        place = await ledger.key(_CALL, _digest(asked))
        loop = asyncio.get_running_loop()
        until, waited_for = loop.time() + min(asked.wait, asked.ttl), None
        while True:
            found = await self._standing_or_new(ledger, place, asked, waited_for=waited_for)
            if found is None:
                return PersonSaid(Word.UNASKED, "")
            approval, version = found
            match approval.state:
                case ApprovalState.DENIED:
                    return PersonSaid(Word.DENIED, approval.id, approval.note)
                case ApprovalState.APPROVED:
                    mark = Write(await ledger.key("approval-used", _digest(asked, asked.call.call_id)), b"", remembered)
                    if await self._use(approval, version, mark):
                        return PersonSaid(Word.APPROVED, approval.id, approval.note)
                case ApprovalState.PENDING if loop.time() < until:
                    waited_for = approval
                    await self._change_of(approval.id, until - loop.time())
                case _:
                    return PersonSaid(Word.PENDING, approval.id)

    async def give_back(self, approval_id: str) -> None:
        """A call did not go ahead after all: what approved it counts for the next. Raises StoreError."""
        found = await self._load(approval_id)
        if found is not None and found[0].state is ApprovalState.USED:
            approval = returned(found[0])
            entry = Write(_ENTRY + approval_id, render_approval(approval), approval.ttl + _KEPT, version=found[1])
            await self._store.save([entry])  # where another was asked for by now, that one counts

    async def recall(self, ledger: Ledger, asked: AskPerson) -> PersonSaid:
        """What was said of this very call, once before; nobody is asked, and nothing is used up. Raises StoreError."""
        mark = await ledger.key("approval-used", _digest(asked, asked.call.call_id))
        was_used = bool(await self._store.load([mark]))
        return PersonSaid(Word.APPROVED if was_used else Word.PENDING, "")

    async def _standing_or_new(
        self, ledger: Ledger, place: str, asked: AskPerson, *, waited_for: Approval | None
    ) -> tuple[Approval, int] | None:
        """The approval that counts for a call now, with its version; else one that is asked for now; None: too much
        waits already. Where the time of one that was waited for has run out, that is what is told."""
        while True:
            pointer = (await self._store.load([place])).get(place)
            found = None if pointer is None else await self._load(pointer.value.decode())
            now = self._clock()
            if found is not None and counts(found[0], now):
                return found
            if waited_for is not None and now >= waited_for.expires:
                return as_of(waited_for, now), 0
            approval = _approval(asked, place, now)
            if not await self._has_room(ledger, len(_places(approval))):
                self._refuse(approval)
                return None
            # Where somebody else asked since the pointer was read, theirs is what counts.
            if await self._open(approval, version=0 if pointer is None else pointer.version):
                return approval, 1

    async def _open(self, approval: Approval, *, version: int) -> bool:
        """Ask a person; False: another asked the same meanwhile."""
        ttl = approval.ttl
        pending = {"tool": approval.tool, "declared": approval.declared, "expires": approval.expires}
        writes = [
            Write(approval.place, approval.id.encode(), 2 * ttl, version=version),
            Write(_ENTRY + approval.id, render_approval(approval), 2 * ttl + _KEPT_UNDECIDED, version=0),
            Write(_PENDING + approval.id, render(pending), ttl + _KEPT_UNDECIDED),
            *(Write(key, b"", ttl) for key in _places(approval)),
        ]
        if not await self._store.save(writes):
            return False
        rule = {"policy": approval.policy, "rule": approval.rule}
        self._log.event("info", "approval asked for", approval=approval.id, tool=approval.tool, **rule)
        self._announce(approval)
        return True

    async def _has_room(self, ledger: Ledger, wanted: int) -> bool:
        return len(await self._store.scan(await ledger.key(_OPEN, ""), PLACES)) + wanted <= PLACES

    def _refuse(self, approval: Approval) -> None:
        rule = {"policy": approval.policy, "rule": approval.rule}
        self._log.event("warning", "nobody was asked: too many approvals are pending", tool=approval.tool, **rule)
        self._metrics.approval_unasked(tool=approval.tool, declared=approval.declared)

    async def _use(self, approval: Approval, version: int, mark: Write) -> bool:
        """Let one call go ahead by an approval; False: another one was faster."""
        entry = Write(_ENTRY + approval.id, render_approval(used(approval, self._clock())), _KEPT, version=version)
        return await self._store.save([entry, mark])

    async def _load(self, approval_id: str) -> tuple[Approval, int] | None:
        found = (await self._store.load([_ENTRY + approval_id])).get(_ENTRY + approval_id)
        return None if found is None else (_read(found), found.version)

    # -- waiting

    async def _change_of(self, approval_id: str, seconds: float) -> None:
        """Until an approval is not pending any more, as far as that shows, or the time is over."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(approval_id, set()).add(changed)
        if self._watching is None or self._watching.done():
            self._watching = self._tasks.start(self._watch(), name="watch approvals")
        try:
            await asyncio.wait([changed], timeout=seconds)
        finally:
            self._waiting[approval_id].discard(changed)
            if not self._waiting[approval_id]:
                del self._waiting[approval_id]

    async def _watch(self) -> None:
        """Look at the store as long as anybody waits: another process may decide, and time runs out."""
        while self._waiting:
            await asyncio.sleep(self._poll_seconds)
            with suppress(StoreError):  # a store that is down for a moment has no news
                await self._look(list(self._waiting))

    async def _look(self, ids: Sequence[str]) -> None:
        found = await self._store.load([_ENTRY + approval_id for approval_id in ids])
        now = self._clock()
        for approval_id in ids:
            stored = found.get(_ENTRY + approval_id)
            if stored is None or as_of(_read(stored), now).state is not ApprovalState.PENDING:
                self._wake(approval_id)

    def _wake(self, approval_id: str) -> None:
        for changed in self._waiting.get(approval_id, ()):
            if not changed.done():
                changed.set_result(None)

    # -- for people

    async def decide(self, approval_id: str, event: ApprovalEvent, *, note: str) -> Approval | None:
        """The approval once a person has decided it; None: there is none of this id. Raises IllegalStepError for one
        that is decided already or has expired, StoreError."""
        while (found := await self._load(approval_id)) is not None:
            approval = decided(found[0], event, note=note, now=self._clock())
            entry = Write(_ENTRY + approval_id, render_approval(approval), approval.ttl + _KEPT, version=found[1])
            gone = (Write(key, None, 0.0) for key in (_PENDING + approval_id, *_places(found[0])))
            if await self._store.save([entry, *gone]):
                self._metrics.approval(tool=approval.tool, declared=approval.declared, outcome=str(approval.state))
                self._log.event("info", "approval decided", approval=approval_id, decision=str(approval.state))
                self._wake(approval_id)
                return approval
        return None

    async def listed(self, states: Collection[ApprovalState]) -> list[Approval]:
        """The first page of a list. Raises StoreError."""
        return (await self.page(states))[0]

    async def page(
        self, states: Collection[ApprovalState], *, after: Position | None = None, most: int = LISTED
    ) -> tuple[list[Approval], Position | None]:
        """The approvals in these states that come behind a position in the list, and the one behind which there are
        more: pending ones first, the oldest first; then others, the newest first. Raises StoreError."""
        pending = [ApprovalState.PENDING] if ApprovalState.PENDING in states else []
        parts = [(Part.PENDING, pending), (Part.OTHERS, set(states) - {ApprovalState.PENDING})]
        found: list[Approval] = []
        last, size = after, 0
        for part, wanted in parts:
            if not wanted or (after is not None and after.part > part):
                continue
            async for approval in self._behind(part, after.id if after is not None and after.part == part else ""):
                if approval.state not in wanted:
                    continue
                if len(found) == most or size > _PAGE_BYTES:
                    return found, last
                found.append(approval)
                last, size = Position(part, approval.id), size + len(approval.arguments)
        return found, None

    async def _behind(self, part: Part, after: str) -> AsyncIterator[Approval]:
        """The approvals of a part of the list as they stand now, some at a time, since they may be large."""
        prefix = _PENDING if part is Part.PENDING else _ENTRY
        ids = [key.removeprefix(prefix) for key in await self._store.scan(prefix, _MOST_KEYS)]
        if part is Part.OTHERS:
            ids = [one for one in reversed(ids) if not after or one < after]
        else:
            ids = [one for one in ids if one > after]
        now = self._clock()
        for first in range(0, len(ids), _AT_ONCE):
            some = ids[first : first + _AT_ONCE]
            found = await self._store.load([_ENTRY + one for one in some])
            for stored in (found.get(_ENTRY + one) for one in some):
                if stored is not None:
                    yield as_of(_read(stored), now)

    async def count(self) -> None:
        """Count for the metrics what is pending, and what has expired: each once, whoever counts. Raises StoreError."""
        keys = await self._store.scan(_PENDING, LISTED)
        pending: Counter[tuple[str, bool]] = Counter()
        for key, stored in (await self._store.load(keys) if keys else {}).items():
            value = parse_own(stored.value)
            if self._clock() < value["expires"]:
                pending[value["tool"], value["declared"]] += 1
            elif await self._store.save([Write(key, None, 0.0, version=stored.version)]):
                self._metrics.approval(tool=value["tool"], declared=value["declared"], outcome="expired")
        self._metrics.approvals_pending(pending)


def _digest(asked: AskPerson, *more: str) -> str:
    """What tells the call from every other of its tenant."""
    call: CallAsSeen = asked.call
    parts = (str(call.owner), call.namespace, call.tool, asked.canonical, *more)
    return hashlib.sha256(render(parts)).hexdigest()


def _approval(asked: AskPerson, place: str, now: float) -> Approval:
    call, facts = asked.call, asked.call.facts
    return Approval(
        id=f"apr_{int(now * 1000):011x}{secrets.token_hex(8)}",  # in the order of time
        place=place,
        tool=f"{call.namespace}.{call.tool}" if call.namespace else call.tool,
        arguments=asked.shown,
        call_id=call.call_id,
        api=str(facts.api),
        client=facts.client,
        policy=asked.rule.policy,
        rule=asked.rule.rule,
        message=asked.message,
        declared=call.declared,
        created=now,
        expires=now + asked.ttl,
        ttl=asked.ttl,
    )


def _places(approval: Approval) -> list[str]:
    """The keys of the places that a question takes while it waits, among those of its tenant."""
    tenant = approval.place.removeprefix(f"{_CALL}/").rpartition("/")[0]
    count = 1 + (len(approval.arguments.encode("utf-8", "replace")) - 1) // PLACE_BYTES
    return [f"{_OPEN}/{tenant}/{approval.id}.{number}" for number in range(count)]


def _read(found: Stored) -> Approval:
    try:
        return parse_approval(found.value)
    except ValueError as error:
        raise StoreError("An approval in the store is of a form that this release does not know.") from error
