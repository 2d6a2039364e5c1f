"""Running held calls: at most once each, whoever asks, however often, in however many processes.

A run is claimed in the ledger before it begins; whoever finds a claim waits for the result. In one process the
waiters share one task, which belongs to the process and not to a request: a client that goes away ends
nothing that may not be run again. What a crash cut off is not repeated unless the tool may be.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from proxy.core.arguments import read_arguments
from proxy.core.batch.ledger import LEASE, Run, RunState, claimed, finished, has_lapsed, lapsed, renewed
from proxy.core.batch.record import CallRecord
from proxy.core.calls import Owner, ToolCall, run_name
from proxy.core.exchange.judging import Judge
from proxy.core.policy.verdicts import Subject
from proxy.errors import StoreError
from proxy.metrics import Metrics
from proxy.server.consulting import Consulting, settled
from proxy.server.ledger import Ledger
from proxy.server.services import Loaded, Services
from proxy.stores.base import Write
from proxy.tools.spec import RunKind, ToolOutcome, ToolRun

_POLL = 0.05
_PATIENCE = 4.0
"""Seconds that a request waits for a result that the store does not take."""
_TRIES_FOR = 600.0
"""Seconds until a result that the store does not take is given up: its outcome is unknown then."""
_RENEW = LEASE / 5


@dataclass(frozen=True, slots=True)
class Caller:
    """For whom calls are run: the request's rules, its ledger and what tools may know of it."""

    ledger: Ledger
    judge: Judge
    consulting: Consulting
    loaded: Loaded
    client: str
    traceparent: str
    keep: Callable[[], AbstractContextManager[object]]


@dataclass(slots=True)
class Running:
    """A run under way in this process, and how many wait for it. `unkept` is done when it has a result that the store
    does not take: who waits is told, and the run goes on trying."""

    task: asyncio.Task[Run]
    unkept: asyncio.Future[None]
    waiters: int = 0
    cancelled: bool = False


@dataclass(slots=True)
class Runs:
    """The runs of one process."""

    services: Services
    _running: dict[tuple[str, str, int], Running] = field(default_factory=dict)
    _claims: set[_Claim] = field(default_factory=set)
    _renewing: asyncio.Task[None] | None = None

    async def result(self, caller: Caller, batch: str, ordinal: int, *, call: CallRecord, recheck: bool) -> Run:
        """The finished run of a held call; runs it where nobody has. Raises StoreError.

        `recheck`: the rules are looked at again first, since time has passed since the call was decided.
        """
        running = await self.begin(caller, batch, ordinal, call=call, recheck=recheck)
        running.waiters += 1
        try:
            await asyncio.wait((running.task, running.unkept), return_when=asyncio.FIRST_COMPLETED)
            if not running.task.done():
                raise StoreError("The result of a tool could not be kept yet.")
            return running.task.result()
        except asyncio.CancelledError:
            if running.waiters == 1 and self._may_repeat(caller, call):
                running.task.cancel()
                running.cancelled = True  # who comes now waits for the claim to go, and not for this task
            raise
        finally:
            running.waiters -= 1

    async def begin(self, caller: Caller, batch: str, ordinal: int, *, call: CallRecord, recheck: bool) -> Running:
        """Start a run, or find the one that is under way here."""
        key = (str(caller.judge.facts.tenant), batch, ordinal)
        known = self._running.get(key)
        if known is None or known.cancelled or known.task.done():
            unkept = asyncio.get_running_loop().create_future()
            work = self._settle(caller, batch, ordinal, call=call, recheck=recheck, unkept=unkept)
            task = self.services.tasks.start(work, name=f"run {call.call.name[:40]}")
            known = self._running[key] = Running(task, unkept)
            known.task.add_done_callback(lambda task: self._forget(key, task))
        return known

    def _forget(self, key: tuple[str, str, int], task: asyncio.Task[Run]) -> None:
        if key in self._running and self._running[key].task is task:
            del self._running[key]

    @staticmethod
    def _may_repeat(caller: Caller, call: CallRecord) -> bool:
        spec = caller.loaded.tools.specs.get(run_name(call.call.name))
        return spec is not None and spec.idempotent

    async def _settle(
        self,
        caller: Caller,
        batch: str,
        ordinal: int,
        *,
        call: CallRecord,
        recheck: bool,
        unkept: asyncio.Future[None],
    ) -> Run:
        """Claim the run and run it, or wait for whoever claimed it."""
        with caller.keep():
            while True:
                run, version = await caller.ledger.run(batch, ordinal)
                if run.state is RunState.DONE:
                    return run
                now = self.services.clock()
                if run.state is RunState.RUNNING and not has_lapsed(run, now):
                    await asyncio.sleep(_POLL)
                    continue
                if run.state is RunState.RUNNING and not self._may_repeat(caller, call):
                    over = lapsed(run, call.call.name)
                    if await caller.ledger.save_run(batch, ordinal, over, version=version):
                        return over
                    continue
                mine = claimed(run, secrets.token_hex(8), now)
                if await caller.ledger.save_run(batch, ordinal, mine, version=version):
                    claim = _Claim(self, caller, batch, ordinal, call, mine, version + 1, unkept)
                    done = await claim.work(recheck=recheck)
                    self.services.metrics.held_call_ran(batch)
                    return done

    # -- claims

    def hold(self, claim: _Claim) -> None:
        """Keep a claim alive."""
        self._claims.add(claim)
        if self._renewing is None or self._renewing.done():
            self._renewing = self.services.tasks.start(self._renew(), name="renew claims")

    def let_go(self, claim: _Claim) -> None:
        """A renewal may be under way, and be written after this."""
        self._claims.discard(claim)
        if not self._claims and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def _renew(self) -> None:
        """All claims in one write: a write each would keep a store busy that waits for its disk."""
        while True:
            await asyncio.sleep(_RENEW)
            with suppress(StoreError):  # there is time for another try
                await self._save([await claim.renewal(self.services.clock()) for claim in list(self._claims)])

    async def _save(self, renewals: Sequence[_Renewal]) -> None:
        """Write them down, less those of runs that have ended meanwhile."""
        if await self.services.store.save([renewal.write for renewal in renewals]):
            for renewal in renewals:
                renewal.claim.run, renewal.claim.version = renewal.run, renewal.version + 1
        elif len(renewals) > 1:
            half = len(renewals) // 2
            await self._save(renewals[:half])
            await self._save(renewals[half:])

    def observe(self, tool: str, outcome: str, seconds: float) -> None:
        metrics: Metrics = self.services.metrics
        metrics.tool_duration(seconds, tool=tool, declared=True, owner=Owner.PROXY, outcome=outcome)


@dataclass(frozen=True, slots=True)
class _Renewal:
    """A longer life for a claim; `version` is what it takes the place of."""

    claim: _Claim
    run: Run
    version: int
    write: Write


@dataclass(slots=True, eq=False)
class _Claim:
    """A run that this process has claimed."""

    runs: Runs
    caller: Caller
    batch: str
    ordinal: int
    call: CallRecord
    run: Run
    version: int
    unkept: asyncio.Future[None]

    async def work(self, *, recheck: bool) -> Run:
        """Run the call, keeping the claim alive, and keep its result."""
        self.runs.hold(self)
        try:
            run = await self._outcome(recheck=recheck)
        except asyncio.CancelledError:
            if self.runs._may_repeat(self.caller, self.call):
                await self._write(None)
            raise
        finally:
            self.runs.let_go(self)
        return await self._keep(run)

    async def _keep(self, run: Run) -> Run:
        """Write the result down. Where the store is down, try on: the tool has run."""
        began, pause = self.runs.services.timer(), 0.0
        while True:
            try:
                return await self._write(run) or run
            except StoreError:
                tried = self.runs.services.timer() - began
                if tried >= _TRIES_FOR:
                    raise
            if tried >= _PATIENCE and not self.unkept.done():
                self.unkept.set_result(None)
            pause = min(pause + 0.1, 2.0)
            await asyncio.sleep(pause)

    async def _write(self, run: Run | None) -> Run | None:
        """Put an end to the claim: with a result, or as if it had never been. Gives the result of another process that
        took the call over, where that has one already. A renewal that was under way may have written last."""
        ledger = self.caller.ledger
        while not await ledger.save_run(self.batch, self.ordinal, run, version=self.version):
            found, self.version = await ledger.run(self.batch, self.ordinal)
            if found.state is RunState.DONE:
                return found
            if run is None and found.claim != self.run.claim:
                return None
        return run

    async def renewal(self, now: float) -> _Renewal:
        run, version = renewed(self.run, now), self.version
        write = await self.caller.ledger.run_write(self.batch, self.ordinal, run, version=version)
        return _Renewal(self, run, version, write)

    async def _outcome(self, *, recheck: bool) -> Run:
        judge, record = self.caller.judge, self.call
        call = record.call if record.given is None else _with_text(record.call, record.given)
        if recheck:
            verdict = judge.chain.recheck(Subject(call, Owner.PROXY))
            if verdict.held:
                return finished(self.run, verdict.result or "", failed=True, blocked=True)
        outcome, seconds = await self._run(call)
        name = run_name(call.name)
        judging = judge.chain.judge_result(Subject(call, Owner.PROXY), result=outcome.text, is_error=outcome.is_error)
        result = await settled(judging, self.caller.consulting.answer)
        label = result.outcome if result.outcome != "ok" or not outcome.is_error else "error"
        self.runs.observe(name, "error" if outcome.is_error else "ok", seconds)
        self.runs.services.audit.ran(
            call_id=str(call.call_id),
            tool=name,
            tenant=str(judge.facts.tenant),
            duration=seconds,
            outcome=outcome.kind,
        )
        self.runs.services.metrics.tool_result(tool=name, declared=True, owner=Owner.PROXY, outcome=str(label))
        for rule in result.errors:
            self.runs.services.metrics.policy_error(policy=rule.policy, rule=rule.rule)
        return finished(self.run, result.text, failed=outcome.is_error)

    async def _run(self, call: ToolCall) -> tuple[ToolOutcome, float]:
        facts, name = self.caller.judge.facts, run_name(call.name)
        arguments = read_arguments(call)
        started = self.runs.services.timer()
        if arguments.value is None:
            text = f"Tool {name} failed: its arguments are no JSON object"
            return ToolOutcome(text, is_error=True, kind=RunKind.ARGUMENTS), 0.0
        about = ToolRun(
            call_id=str(call.call_id),
            arguments=arguments.value,
            client=self.caller.client,
            idempotency_key=f"{self.batch}-{self.ordinal}",
            traceparent=self.caller.traceparent,
            tenant=str(facts.tenant),
        )
        outcome = await self.caller.loaded.tools.run(name, about)
        return outcome, self.runs.services.timer() - started


def _with_text(call: ToolCall, text: str) -> ToolCall:
    return ToolCall(call.call_id, call.name, text, call.kind, unwrapped=call.unwrapped)
