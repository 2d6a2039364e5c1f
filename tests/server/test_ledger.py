"""Entries of the ledger: a tenant's own, found by what the client was given, remembered as long as promised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from proxy.core.batch.ledger import Run, RunState, claimed, finished
from proxy.core.batch.record import BatchRecord, CallRecord, ResumeRecord, Round, RoundResult, TurnRecord
from proxy.core.calls import BatchId, CallId, Owner, ToolCall
from proxy.errors import StoreError
from proxy.stores.base import Write
from tests.server.parts import Parts
from tests.stores.failing import FailingStore

TTL = 3600.0
WEEK = 7 * 86400.0
ID = "call_AAAAAAAAAAAAAAAAAAAAAAAA"
RESULT = RoundResult(ToolCall(CallId(ID), "price", "{}"), "5 EUR", blocked=False, failed=False)
TURN = TurnRecord('"done"', (Round('{"role":"assistant"}', (RESULT,)),))


def batch(name: str = "b", *ids: str) -> BatchRecord:
    calls = [CallRecord(ToolCall(CallId(i), "search", "{}"), "{}", Owner.CLIENT, i, stage=0) for i in ids or (ID,)]
    held = CallRecord(ToolCall(CallId("held"), "count", "{}"), "{}", Owner.PROXY, "")
    return BatchRecord(BatchId(name), '{"role":"assistant"}', "", (*calls, held))


async def test_a_batch_is_found_by_the_ids_that_the_client_has() -> None:
    """By each of them, and by no id of a held call."""
    ledger = Parts().ledger()
    await ledger.save_batch(batch("b", ID, "other"))
    for name in (ID, "other"):
        known = await ledger.know([name, "unknown"], [])
        assert known.pointers == {name: "b"}
        assert known.batches == {"b": batch("b", ID, "other")}
        assert not known.forgotten
    assert not (await ledger.know(["held", ""], [])).batches


async def test_tenants_are_apart() -> None:
    """Nothing of one tenant's is known to another: batches, turns, runs, resumes, stored answers, ids."""
    parts = Parts()
    one, two = parts.ledger("one"), parts.ledger("two")
    await one.save_batch(batch())
    await one.save_turn("digest", TURN)
    await one.save_run("b", 0, claimed(Run(), "x", 0.0), version=0)
    await one.save_resume("digest", ResumeRecord("r", "{}", "null", (), None), 0)
    await one.point_to_answer("answer", 0, BatchId("b"))
    assert not (await two.know([ID], ["digest"])).pointers
    assert not (await two.know([ID], ["digest"])).turns
    assert (await two.run("b", 0))[0].state is RunState.ABSENT
    assert await two.resume("digest") is None
    assert await two.stored_answer("answer") == {}
    assert (await one.has_id(ID), await two.has_id(ID)) == (True, False)
    assert (await one.stored_answer("answer")) == {0: batch()}
    assert (await one.resume("digest")) == (ResumeRecord("r", "{}", "null", (), None), 1)


async def test_an_expired_batch_is_remembered_as_forgotten() -> None:
    """Its ids for seven days more, as one batch; then nothing is known."""
    parts = Parts()
    ledger = parts.ledger(ttl=TTL)
    await ledger.save_batch(batch("b", ID, "other"))
    parts.clock.now += TTL + 1
    known = await ledger.know([ID, "other"], [])
    assert not known.batches
    assert known.forgotten == {BatchId("b"): ()}
    parts.clock.now += WEEK + 1
    assert not (await ledger.know([ID], [])).pointers


async def test_use_keeps_a_batch_alive() -> None:
    """The time to live counts from the last use, for the batch, its ids, a turn, and a run that is over."""
    parts = Parts()
    ledger = parts.ledger(ttl=TTL)
    await ledger.save_batch(batch())
    await ledger.save_turn("digest", TURN)
    await ledger.save_run("b", 0, Run(), version=0)
    await ledger.save_run("b", 0, finished(claimed(Run(), "x", 0.0), "done", failed=False), version=1)
    for _ in range(400):
        parts.clock.now += TTL - 1
        known = await ledger.know([ID], ["digest"])
        assert (known.batches, known.turns) == ({"b": batch()}, {"digest": TURN})
        assert (await ledger.run("b", 0))[0].text == "done"


async def test_two_turns_under_one_digest() -> None:
    """Neither is used from then on; a turn that says the same under other ids is the first one again."""
    ledger = Parts().ledger()
    await ledger.save_turn("digest", TURN)
    await ledger.save_turn("digest", TURN)
    alike = replace(RESULT, call=replace(RESULT.call, call_id=CallId("z")))
    await ledger.save_turn("digest", replace(TURN, rounds=(replace(TURN.rounds[0], results=(alike,)),)))
    assert (await ledger.know([], ["digest"])).turns["digest"] == TURN
    await ledger.save_turn("digest", TurnRecord('"other"', TURN.rounds))
    assert (await ledger.know([], ["digest"])).turns["digest"].unclear
    await ledger.save_turn("digest", TURN)
    assert (await ledger.know([], ["digest"])).turns["digest"].unclear


@pytest.mark.parametrize("value", [b'{"v":2,"record":{}}', b"{}", b"\xff", b'{"v":1,"record":{"odd":1}}'])
@pytest.mark.parametrize("kind", ["batch", "turn", "resume", "run"])
async def test_an_entry_of_another_form_is_an_error(kind: str, value: bytes) -> None:
    """A newer release's entry is never taken for something else, nor for nothing."""
    parts = Parts()
    ledger = parts.ledger()
    await ledger.save_batch(batch())
    await ledger.save_turn("digest", TURN)
    await ledger.save_resume("digest", ResumeRecord("r", "{}", "null", (), None), 0)
    await ledger.save_run("b", 0, Run(), version=0)
    (key,) = await parts.store.scan(f"{kind}/")
    await parts.store.save([Write(key, value, TTL)])
    reading: dict[str, Callable[[], Awaitable[object]]] = {
        "batch": lambda: ledger.know([ID], []),
        "turn": lambda: ledger.know([], ["digest"]),
        "resume": lambda: ledger.resume("digest"),
        "run": lambda: ledger.run("b", 0),
    }
    with pytest.raises(StoreError):
        await reading[kind]()


async def test_of_two_tries_one_is_faster() -> None:
    """A run and a resume are written only by who saw the last version."""
    ledger = Parts().ledger()
    assert await ledger.save_run("b", 0, Run(), version=0)
    assert not await ledger.save_run("b", 0, Run(), version=0)
    record = ResumeRecord("r", "{}", "null", (), None)
    assert await ledger.save_resume("d", record, 0)
    assert not await ledger.save_resume("d", record, 0)
    assert await ledger.save_resume("d", record, 1)
    await ledger.drop_resume("d", 1)
    assert await ledger.resume("d") == (record, 2)
    await ledger.drop_resume("d", 2)
    assert await ledger.resume("d") is None


async def test_long_and_odd_ids() -> None:
    """An id of any length and any characters names its batch, and no other."""
    ledger = Parts().ledger()
    long = "x" * 5000
    for number, name in enumerate((long, long + "y", "a/b", "\ud800")):
        await ledger.save_batch(batch(f"b{number}", name))
    found = [(await ledger.know([name], [])).pointers[name] for name in (long, long + "y", "a/b", "\ud800")]
    assert found == ["b0", "b1", "b2", "b3"]


async def test_a_dropped_run_may_be_claimed_again() -> None:
    """A run that was given up is as if it had never been."""
    ledger = Parts().ledger()
    await ledger.save_run("b", 0, claimed(Run(), "x", 0.0), version=0)
    assert await ledger.save_run("b", 0, None, version=1)
    assert await ledger.run("b", 0) == (Run(), 0)


async def test_counting_calls() -> None:
    """A limit's key is its own: parts that read alike when joined are two counts."""
    ledger = Parts().ledger()
    assert [await ledger.count(("a", "b"), 2, 60.0) for _ in range(3)] == [True, True, False]
    assert await ledger.count(("ab",), 2, 60.0)


async def test_an_id_that_two_answers_give_out_at_once() -> None:
    """The first keeps it, and the second is told; nothing of the second is kept."""
    ledger = Parts().ledger()
    assert await ledger.save_batch(batch("b", ID)) == "b"
    with pytest.raises(StoreError, match="the same ids"):
        await ledger.save_batch(replace(batch("c", ID, "other"), shown="Something else."))
    known = await ledger.know([ID, "other"], [])
    assert (known.pointers, known.batches) == ({ID: "b"}, {"b": batch("b", ID)})


async def test_the_same_answer_twice_at_once() -> None:
    """A gateway that repeats an answer gave one batch, whose calls run once."""
    ledger = Parts().ledger()
    assert [await ledger.save_batch(batch(name, ID, "other")) for name in "bc"] == ["b", "b"]
    assert (await ledger.know([ID], [])).batches == {"b": batch("b", ID, "other")}


async def test_an_answer_that_is_settled_again() -> None:
    """Its batch takes the place of the one that was."""
    ledger = Parts().ledger()
    await ledger.save_batch(batch("b", ID))
    assert await ledger.save_batch(batch("c", ID), again=True) == "c"
    assert (await ledger.know([ID], [])).pointers == {ID: "c"}


async def test_a_store_that_fails() -> None:
    """Every reading and writing says so."""
    parts = Parts()
    parts.store = FailingStore(parts.store, lambda operation, keys: True)
    ledger = parts.ledger()
    for work in (
        ledger.know([ID], []),
        ledger.save_batch(batch()),
        ledger.save_turn("d", TURN),
        ledger.has_id(ID),
        ledger.run("b", 0),
        ledger.save_run("b", 0, None, version=0),
        ledger.resume("d"),
        ledger.stored_answer("a"),
    ):
        with pytest.raises(StoreError):
            await work


async def test_a_record_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than any turn should be is refused, and nothing of it is kept."""
    monkeypatch.setattr("proxy.server.ledger.MOST_BYTES", 1000)
    parts = Parts()
    with pytest.raises(StoreError, match="larger than"):
        await parts.ledger().save_batch(replace(batch("b", ID), shown="x" * 1000))
    assert await parts.store.is_empty()
