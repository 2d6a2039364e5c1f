"""Held calls run at most once, whoever asks, however often, in however many processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.core.batch.ledger import LEASE, Run, RunState, claimed, renewed
from proxy.core.batch.record import CallRecord
from proxy.core.calls import CallId, Owner, ToolCall
from proxy.errors import StoreError
from proxy.server.running import Runs
from proxy.stores.base import Write
from proxy.tools.spec import ToolRun
from tests.e2e.sidecall import policy, rule
from tests.server.parts import Parts, Tools
from tests.stores.failing import FailingStore

CALL = ToolCall(CallId("call_1"), "count", '{"n":1}')


class Gate:
    """A tool that waits to be let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.began = asyncio.Event()
        self.ended = 0
        self.runs: list[ToolRun] = []

    async def __call__(self, run: ToolRun) -> str:
        self.runs.append(run)
        self.began.set()
        try:
            await self.open.wait()
        finally:
            self.ended += 1
        return f"run {len(self.runs)}"


def record(text: str | None = None, call: ToolCall = CALL) -> CallRecord:
    return CallRecord(call, "{}", Owner.PROXY, "", given=text)


def parts(gate: Any, **settings: Any) -> Parts:
    return Parts(tools=Tools({"count": gate}, **settings))


async def ask(parts: Parts, runs: Runs, *, recheck: bool = False, call: CallRecord | None = None) -> Any:
    return await runs.result(parts.caller(), "batch", 0, call=call or record(), recheck=recheck)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


async def test_many_who_ask_share_one_run() -> None:
    """Ten waiters in one process, and one that comes later, get the one result."""
    gate = Gate()
    there = parts(gate)
    runs = Runs(there.services)
    asking = [asyncio.ensure_future(ask(there, runs)) for _ in range(10)]
    await gate.began.wait()
    gate.open.set()
    found = await asyncio.gather(*asking)
    found.append(await ask(there, runs))
    assert {(run.text, run.state, run.failed) for run in found} == {("run 1", RunState.DONE, False)}
    assert len(gate.runs) == 1
    assert there.value("tool_results_total", tool="count", owner="proxy", outcome="ok") == 1


async def test_what_a_tool_is_told() -> None:
    """A run has the recorded arguments, for whom it acts, and the same key on every try."""
    gate = Gate()
    gate.open.set()
    there = parts(gate)
    await ask(there, Runs(there.services), call=record('{"n": 2}'))
    assert gate.runs == [
        ToolRun(
            call_id="call_1",
            arguments={"n": 2},
            client="team",
            idempotency_key="batch-0",
            traceparent="00-trace",
            tenant="tenant-one",
        )
    ]


async def test_another_process_waits_for_a_claim() -> None:
    """Whoever finds a claim waits for its result; tenants and calls have runs of their own."""
    gate = Gate()
    there = parts(gate)
    one, two = Runs(there.services), Runs(there.services)
    first = asyncio.ensure_future(ask(there, one))
    await gate.began.wait()
    second = asyncio.ensure_future(ask(there, two))
    other = asyncio.ensure_future(
        two.result(there.caller(tenant="tenant-two"), "batch", 0, call=record(), recheck=False)
    )
    await until(lambda: len(gate.runs) == 2)
    gate.open.set()
    assert (await first).text == (await second).text
    await other
    assert [run.tenant for run in gate.runs] == ["tenant-one", "tenant-two"]


async def test_a_claim_that_lapsed_is_an_unknown_outcome() -> None:
    """A run that was not renewed in time counts as done, and is not repeated; the late result changes nothing."""
    gate = Gate()
    there = parts(gate)
    first = asyncio.ensure_future(ask(there, Runs(there.services)))
    await gate.began.wait()
    there.clock.now += LEASE + 1
    found = await ask(there, Runs(there.services))
    assert found.failed
    assert "outcome is unknown" in found.text
    assert "count" in found.text
    gate.open.set()
    assert (await first).text == found.text
    assert len(gate.runs) == 1


async def test_a_claim_that_lapsed_is_retaken_where_that_is_allowed() -> None:
    """An idempotent tool runs again, with the same key."""
    gate = Gate()
    there = parts(gate, idempotent=True)
    first = asyncio.ensure_future(ask(there, Runs(there.services)))
    await gate.began.wait()
    there.clock.now += LEASE + 1
    second = asyncio.ensure_future(ask(there, Runs(there.services)))
    await until(lambda: len(gate.runs) == 2)
    gate.open.set()
    assert (await second).text == (await first).text == "run 2"
    assert {run.idempotency_key for run in gate.runs} == {"batch-0"}


async def test_a_renewal_that_was_under_way_loses_no_result() -> None:
    """The claim's own renewal may have written last: the result is kept all the same."""
    gate = Gate()
    there = parts(gate)
    asking = asyncio.ensure_future(ask(there, Runs(there.services)))
    await gate.began.wait()
    ledger = there.ledger()
    run, version = await ledger.run("batch", 0)
    assert await ledger.save_run("batch", 0, renewed(run, there.clock.now), version=version)
    gate.open.set()
    assert (await asking).text == "run 1"
    assert (await ledger.run("batch", 0))[0].text == "run 1"


async def test_the_claims_of_a_process_are_renewed_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, so that slow tools do not keep the store busy; none is given up while its run goes on,
    and with the last run it ends."""
    monkeypatch.setattr("proxy.server.running._RENEW", 0.01)
    gate, saves = Gate(), list[list[str]]()
    there = parts(gate)

    def listens(operation: str, keys: Sequence[str]) -> bool:
        saves.extend([list(keys)] if operation == "save" else [])
        return False

    store = FailingStore(there.store, listens)
    there.store, there.services = store, replace(there.services, store=store)
    runs = Runs(there.services)
    asking = [
        asyncio.ensure_future(runs.result(there.caller(), "batch", n, call=record(), recheck=False)) for n in range(20)
    ]
    await until(lambda: len(gate.runs) == 20)
    saves.clear()
    there.clock.now += LEASE - 1
    await until(lambda: len(saves) >= 3)
    assert [len(keys) for keys in saves] == [20] * len(saves)
    for number in range(20):
        run, version = await there.ledger().run("batch", number)
        assert (run.until, version >= 3) == (there.clock.now + LEASE, True)
    gate.open.set()
    assert {run.state for run in await asyncio.gather(*asking)} == {RunState.DONE}
    await until(lambda: len(there.services.tasks) == 0)


async def test_a_claim_that_another_took_stops_no_other_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a store that is down for a moment."""
    monkeypatch.setattr("proxy.server.running._RENEW", 0.01)
    gate = Gate()
    there = parts(gate)
    store, failures = FailingStore(there.store), iter([True])
    there.store, there.services = store, replace(there.services, store=store)
    runs, ledger = Runs(there.services), there.ledger()
    asking = [
        asyncio.ensure_future(runs.result(there.caller(), "batch", n, call=record(), recheck=False)) for n in range(5)
    ]
    await until(lambda: len(gate.runs) == 5)
    taken, version = await ledger.run("batch", 2)
    other = replace(taken, claim="another")
    assert await ledger.save_run("batch", 2, other, version=version)
    store.fails = lambda operation, keys: operation == "save" and next(failures, False)
    there.clock.now += 2.0
    while any([(await ledger.run("batch", n))[0].until < there.clock.now + LEASE for n in (0, 1, 3, 4)]):
        await asyncio.sleep(0)
    assert (await ledger.run("batch", 2))[0] == other
    gate.open.set()
    assert {run.state for run in await asyncio.gather(*asking)} == {RunState.DONE}


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_client_that_goes_away(idempotent: bool) -> None:
    """The last waiter that leaves ends a run that may be repeated, and no other; who comes next gets a result."""
    gate = Gate()
    there = parts(gate, idempotent=idempotent)
    runs = Runs(there.services)
    leaving = [asyncio.ensure_future(ask(there, runs)) for _ in range(2)]
    await gate.began.wait()
    leaving[0].cancel()
    await asyncio.wait(leaving[:1])
    assert gate.ended == 0, "another one waits"
    leaving[1].cancel()
    await asyncio.wait(leaving[1:])
    again = asyncio.ensure_future(ask(there, runs))  # at once, while the first run is being given up
    if idempotent:
        await until(lambda: len(gate.runs) == 2)
    gate.open.set()
    assert (await again).text == ("run 2" if idempotent else "run 1")


async def test_a_store_that_fails_while_the_result_is_kept() -> None:
    """It is tried again: the tool has run."""
    gate = Gate()
    there = parts(gate)
    store = FailingStore(there.store)
    there.store = store
    there.services = replace(there.services, store=store)
    asking = asyncio.ensure_future(ask(there, Runs(there.services)))
    await gate.began.wait()
    failures = iter([True])
    store.fails = lambda operation, keys: operation == "save" and next(failures, False)
    gate.open.set()
    assert (await asking).text == "run 1"
    assert len(gate.runs) == 1


async def test_nobody_waits_for_long_for_a_result_that_the_store_does_not_take() -> None:
    """Who asks is told; the run goes on trying, and who asks again later has its result."""
    gate = Gate()
    there = parts(gate)
    store = there.store = FailingStore(there.store)
    runs = Runs(there.services)
    asking = [asyncio.ensure_future(ask(there, runs)) for _ in range(2)]
    await gate.began.wait()

    def fails(operation: str, keys: Sequence[str]) -> bool:
        there.clock.now += 4.0
        return True

    store.fails = fails
    gate.open.set()
    for one in asking:
        with pytest.raises(StoreError, match="could not be kept yet"):
            await one
    store.fails = lambda operation, keys: False
    async with asyncio.timeout(10):
        while (await there.ledger().run("batch", 0))[0].state is not RunState.DONE:
            await asyncio.sleep(0.01)
    assert (await ask(there, runs)).text == "run 1"


async def test_without_a_claim_nothing_runs() -> None:
    """A store that is down means an error, and no run."""
    gate = Gate()
    there = parts(gate)
    store = FailingStore(there.store, lambda operation, keys: operation == "save")
    there.store = store
    with pytest.raises(StoreError):
        await ask(there, Runs(there.services))
    assert not gate.runs


async def test_a_run_that_cannot_be_read_is_no_reason_to_run() -> None:
    """An entry of a newer release stops the request."""
    gate = Gate()
    there = parts(gate)
    await there.ledger().save_run("batch", 0, claimed(Run(), "x", 0.0), version=0)
    key = next(key for key in await there.store.scan("run/"))
    found = (await there.store.load([key]))[key]
    from_the_future = found.value.replace(b'"v":1', b'"v":2')
    await there.store.save([Write(key, from_the_future, 60.0)])
    with pytest.raises(StoreError):
        await ask(there, Runs(there.services))
    assert not gate.runs


async def test_rules_are_looked_at_again(tmp_path: Path) -> None:
    """A call that a rule blocks by now is not run, where the caller asks for that."""
    gate = Gate()
    gate.open.set()
    path = policy(tmp_path, rule("no", "count", block={"message": "not any more"}))
    there = Parts(tools=Tools({"count": gate}), policies=(path,))
    found = await ask(there, Runs(there.services), recheck=True)
    assert (found.text, found.blocked) == ("Tool call blocked by policy p/no: not any more", True)
    assert not gate.runs
    allowed = await Runs(there.services).result(there.caller(), "other", 0, call=record(), recheck=False)
    assert allowed.text == "run 1"


async def test_results_meet_result_rules(tmp_path: Path) -> None:
    """What a proxy tool gave is kept as rules left it, and counted under what they did."""
    gate = Gate()
    gate.open.set()
    path = policy(tmp_path, rule("cut", "count", result={"redact": [{"pattern": "run", "with": "***"}]}))
    there = Parts(tools=Tools({"count": gate}), policies=(path,))
    assert (await ask(there, Runs(there.services))).text == "*** 1"
    assert there.value("tool_results_total", tool="count", owner="proxy", outcome="redacted") == 1


async def test_failures_are_results() -> None:
    """A tool that raises, and arguments that are no object, give the model an error."""

    async def fail(run: ToolRun) -> str:
        raise LookupError("a secret")

    there = parts(fail)
    runs = Runs(there.services)
    found = await ask(there, runs)
    assert (found.failed, found.text) == (True, "Tool count failed: it raised LookupError")
    odd = await runs.result(there.caller(), "batch", 1, call=record(call=replace(CALL, text="[1]")), recheck=False)
    assert (odd.failed, odd.text) == (True, "Tool count failed: its arguments are no JSON object")
    assert there.value("tool_results_total", tool="count", owner="proxy", outcome="error") == 2
    assert there.value("tool_call_duration_seconds_count", tool="count", owner="proxy", outcome="error") == 2
