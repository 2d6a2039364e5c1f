"""What Sidecall keeps, over every store: batches, claims of runs, limits and approvals, by two processes that race, and
with a clock that is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.core.batch.approval import ApprovalEvent, ApprovalState
from proxy.core.batch.ledger import LEASE, Run, RunState, claimed, finished, has_lapsed
from proxy.core.policy.consults import PersonSaid, Word
from proxy.errors import StoreError
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import parse_redis_address
from proxy.stores.sealed import SealedStore
from proxy.stores.sqlite import SqliteStore
from tests.server.parts import Clock, Parts
from tests.server.test_approvaldesk import asked
from tests.server.test_ledger import ID, TTL, TURN, WEEK, batch


@dataclass
class Two:
    """Two processes over one state, with one clock."""

    here: Parts
    there: Parts
    clock: Clock

    @property
    def both(self) -> tuple[Parts, Parts]:
        return self.here, self.there

    async def ask(self, number: int, /, **args: Any) -> PersonSaid:
        parts = self.both[number % 2]
        return await parts.services.desk.ask(parts.ledger("t"), asked(**args), remembered=1000.0)


@pytest.fixture(params=["memory", "sqlite", "redis", "sealed"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    clock = Clock()
    shared = MemoryStore(clock=clock)

    def opened() -> Store:
        match request.param:
            case "memory":
                return shared
            case "redis":
                address = parse_redis_address(f"redis://127.0.0.1:{request.getfixturevalue('redis_server').port}")
                return RedisStore(address, prefix=str(tmp_path), clock=clock)
            case "sealed":
                return SealedStore(SqliteStore(tmp_path / "state.db", clock=clock), [b"a secret of some length"])
            case _:
                return SqliteStore(tmp_path / "state.db", clock=clock)

    found = Two(Parts(clock=clock, store=opened()), Parts(clock=clock, store=opened()), clock)
    yield found
    for parts in found.both:
        await parts.services.tasks.drain(5)
        await parts.store.close()


async def test_a_batch_of_one_is_known_to_the_other(two: Two) -> None:
    """As long as it is used, and as forgotten for a week more; to its own tenant alone."""
    ledgers = [parts.ledger(ttl=TTL) for parts in two.both]
    await ledgers[0].save_batch(batch())
    await ledgers[0].save_turn("digest", TURN)
    for _ in range(3):
        known = await ledgers[1].know([ID], ["digest"])
        assert (known.batches, known.turns) == ({"b": batch()}, {"digest": TURN})
        two.clock.now += TTL - 1
    assert not (await two.there.ledger("stranger").know([ID], ["digest"])).pointers
    two.clock.now += 1
    known = await ledgers[0].know([ID], ["digest"])
    assert (dict(known.batches), dict(known.turns), set(known.forgotten)) == ({}, {}, {"b"})
    two.clock.now += WEEK
    assert not (await ledgers[1].know([ID], [])).pointers


async def test_of_two_answers_with_one_id_one_is_kept(two: Two) -> None:
    """Whoever comes second is told, and leaves nothing behind; where it was the same answer, both have the one."""
    saves = (p.ledger().save_batch(b) for p, b in zip(two.both, (batch("b"), batch("c", ID, "more")), strict=True))
    saved = await asyncio.gather(*saves, return_exceptions=True)
    (winner,) = (one for one in saved if isinstance(one, str))
    (loser,) = (one for one in saved if isinstance(one, StoreError))
    assert "gave out the same ids" in str(loser)
    assert set((await two.here.ledger().know([ID, "more"], [])).batches) == {winner}
    same = [p.ledger().save_batch(batch(name, "again")) for p, name in zip(two.both, ("d", "e"), strict=True)]
    assert len(set(await asyncio.gather(*same))) == 1


async def test_a_run_is_claimed_once(two: Two) -> None:
    """Of twenty that try at once; a claim that lapsed is taken over once, and the late result changes nothing."""

    async def claim(number: int, lapsed: bool) -> tuple[Run, int] | None:
        ledger = two.both[number % 2].ledger()
        run, version = await ledger.run("b", 0)
        if lapsed and not has_lapsed(run, two.clock.now):
            return None
        if not lapsed and run.state is not RunState.ABSENT:
            return None
        mine = claimed(run, f"claim-{number}", two.clock.now)
        return (mine, version + 1) if await ledger.save_run("b", 0, mine, version=version) else None

    first = [one for one in await asyncio.gather(*(claim(n, False) for n in range(20))) if one is not None]
    two.clock.now += LEASE + 1
    second = [one for one in await asyncio.gather(*(claim(n, True) for n in range(20))) if one is not None]
    assert (len(first), len(second)) == (1, 1)
    done = finished(second[0][0], "result", failed=False)
    assert await two.there.ledger().save_run("b", 0, done, version=second[0][1])
    late = finished(first[0][0], "late", failed=False)
    assert not await two.here.ledger().save_run("b", 0, late, version=first[0][1])
    assert (await two.here.ledger().run("b", 0))[0] == done


async def test_a_limit_is_shared_and_slides(two: Two) -> None:
    """Of forty calls at once over both, as many as may; and again when the window has passed."""
    for _ in range(2):
        counts = (two.both[n % 2].ledger().count(("p", "r", "tool=pay"), 7, 60.0) for n in range(40))
        assert sum(await asyncio.gather(*counts)) == 7
        two.clock.now += 60.0


async def test_one_question_and_one_use_of_its_answer(two: Two) -> None:
    """Of twenty calls at once over both one question comes; of as many after the approval one goes ahead."""
    said = await asyncio.gather(*(two.ask(n, a=1) for n in range(20)))
    assert {one.word for one in said} == {Word.PENDING}
    (approval_id,) = {one.approval_id for one in said}
    assert len(two.here.announced) + len(two.there.announced) == 1
    assert await two.there.services.desk.decide(approval_id, ApprovalEvent.APPROVE, note="") is not None
    assert (await two.ask(0, a=2)).word is Word.PENDING
    said = await asyncio.gather(*(two.ask(n, a=1) for n in range(20)))
    assert sorted(one.word for one in said) == [Word.APPROVED, *[Word.PENDING] * 19]
    assert len({one.approval_id for one in said if one.word is Word.PENDING}) == 1


async def test_questions_expire_and_their_number_is_bounded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the view of both processes."""
    monkeypatch.setattr("proxy.server.approvaldesk.PLACES", 3)
    words = [(await two.ask(n, a=n)).word for n in range(5)]
    assert words == [Word.PENDING] * 3 + [Word.UNASKED] * 2
    two.clock.now += 60.0
    assert (await two.ask(0, a=9)).word is Word.PENDING
    for parts in two.both:
        states = [one.state for one in await parts.services.desk.listed(list(ApprovalState))]
        assert states == [ApprovalState.PENDING] + [ApprovalState.EXPIRED] * 3
