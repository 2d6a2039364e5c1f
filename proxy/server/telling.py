"""Telling metrics, audit and log what was decided and what came back: every call once, every result once.

What "once" means over several requests is remembered in this process, for the latest entries only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy.core.arguments import read_arguments
from proxy.core.batch.record import BatchRecord
from proxy.core.batch.rejoin import Anchor, Found, Progress
from proxy.core.calls import Api, BatchId, Kind, Owner, RequestFacts, ToolCall, run_name
from proxy.core.exchange.judging import Judged, batch_kind
from proxy.core.jsontext import Object
from proxy.core.policy.names import NamedTool
from proxy.core.policy.verdicts import ResultVerdict
from proxy.core.policy.views import is_declared
from proxy.server.audit import AuditRecord
from proxy.server.services import ExchangeIn, Services

_LATEST = 20_000


class Recent:
    """The latest keys that were seen, each with a time."""

    def __init__(self, most: int = _LATEST) -> None:
        self._most = most
        self._times: OrderedDict[Hashable, float] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._times

    def add(self, key: Hashable, now: float = 0.0) -> bool:
        """Remember a key; whether it is new."""
        if key in self._times:
            return False
        self._times[key] = now
        if len(self._times) > self._most:
            self._times.popitem(last=False)
        return True

    def pop(self, key: Hashable) -> float | None:
        return self._times.pop(key, None)


@dataclass(slots=True)
class Seen:
    """What this process has counted already, and when it surfaced calls to clients."""

    results: Recent = field(default_factory=Recent)
    rejoins: Recent = field(default_factory=Recent)
    strays: Recent = field(default_factory=Recent)
    surfaced: Recent = field(default_factory=Recent)
    readings: Recent = field(default_factory=Recent)


class Telling:
    """What one request has to tell. `silent`: its calls were counted before. `counted_as` names the response that they
    are of, where several requests may be the first to see it whole: one of them counts."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        seen: Seen,
        *,
        facts: RequestFacts,
        api: Api,
        silent: bool = False,
        counted_as: str = "",
    ) -> None:
        self._silent = silent
        self._counted_as = counted_as
        self._services = services
        self._exchange = exchange
        self._seen = seen
        self._facts = facts
        self._api = api

    def _declared(self, call: ToolCall) -> bool:
        """Whether the request or the configuration names the tool, or its MCP server."""
        plain, declared = run_name(call.name), self._facts.declared
        if call.namespace:
            return call.namespace in declared or f"{call.namespace}.{plain}" in declared
        return call.name in declared or plain in declared or plain in self._exchange.loaded.tools.specs

    def _is_silent(self) -> bool:
        if self._counted_as:
            self._silent = not self._seen.readings.add((self._facts.tenant, self._counted_as))
            self._counted_as = ""
        return self._silent

    def batch(self, batch: Sequence[Judged], held_for: Sequence[float]) -> None:
        """A batch was decided."""
        if not batch or self._is_silent():
            return
        self._services.metrics.batch(api=self._api, kind=batch_kind(batch))
        for judged, seconds in zip(batch, held_for, strict=True):
            self.call(judged, seconds)

    def call(self, judged: Judged, seconds: float) -> None:
        """A call was decided; it was held back for so long."""
        if self._is_silent():
            return
        verdict, metrics = judged.verdict, self._services.metrics
        self._exchange.log.calls += 1
        name = run_name(judged.call.name)
        rows = [(verdict.decision, verdict.policy, verdict.rule, "enforce")]
        rows += [(s.decision, s.policy, s.rule, "shadow") for s in verdict.shadows]
        for decision, policy, rule, mode in rows:
            metrics.tool_call(
                tool=name,
                declared=self._declared(judged.call),
                api=self._api,
                owner=judged.owner,
                decision=decision,
                policy=policy,
                rule=rule,
                mode=mode,
            )
        for error in verdict.errors:
            metrics.policy_error(policy=error.policy, rule=error.rule)
        metrics.hold(seconds, api=self._api)
        self._audit(judged)

    def _audit(self, judged: Judged) -> None:
        verdict, log = judged.verdict, self._exchange.log
        arguments = read_arguments(judged.call)
        shown: Object | str = judged.call.text if arguments.value is None else arguments.value
        self._services.audit.record(
            AuditRecord(
                request_id=self._exchange.request_id,
                trace_id=log.trace,
                tenant=str(self._facts.tenant),
                client=self._facts.client,
                api=self._api,
                model=self._facts.model,
                call_id=str(judged.call.call_id),
                tool=judged.call.name,
                owner=judged.owner,
                decision=verdict.decision,
                policy=verdict.policy,
                rule=verdict.rule,
                mode="enforce",
                args=shown,
                namespace=judged.call.namespace,
                kind="" if judged.call.kind is Kind.FUNCTION else judged.call.kind,
                declared=is_declared(NamedTool.of(judged.call.name, judged.call.namespace), judged.owner, self._facts),
            )
        )

    def surfaced(self, ids: Iterable[str | None]) -> None:
        """The client was given calls under these ids."""
        now = self._services.clock()
        for call_id in ids:
            if call_id:
                self._seen.surfaced.add((self._facts.tenant, call_id), now)

    def result(self, call: ToolCall, verdict: ResultVerdict, *, call_id: str, place: str) -> None:
        """A client sent a result, perhaps not for the first time. `place` tells it from others of the same id."""
        key = (self._facts.tenant, call_id or call.name, place)
        if not self._seen.results.add(key):
            return
        metrics, name, declared = self._services.metrics, run_name(call.name), self._declared(call)
        metrics.tool_result(tool=name, declared=declared, owner=Owner.CLIENT, outcome=verdict.outcome)
        for error in verdict.errors:
            metrics.policy_error(policy=error.policy, rule=error.rule)
        since = self._seen.surfaced.pop((self._facts.tenant, call_id))
        if since is not None:
            seconds = max(0.0, self._services.clock() - since)
            metrics.tool_duration(seconds, tool=name, declared=declared, owner=Owner.CLIENT, outcome="ok")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens in here is waited for, and not done by the proxy: the run of a tool."""
        began = self._services.timer()
        try:
            yield
        finally:
            self._exchange.log.waited += self._services.timer() - began

    def was_read(self, response_id: str) -> None:
        """The calls of a response in the background were counted: whoever reads it again counts none."""
        self._seen.readings.add((self._facts.tenant, response_id))

    def continuation(self, end: str) -> None:
        """A turn with hidden rounds has ended."""
        self._services.metrics.continuation(api=self._api, end=end)

    def split(self, record: BatchRecord) -> None:
        """A batch entered the ledger; its calls without a result are waited for."""
        waiting = [run_name(c.call.name) for c in record.calls if c.result is None and c.stage != 0]
        if waiting:
            now = self._services.clock()
            self._services.metrics.held(record.batch_id, count=len(waiting), since=now, tools=waiting)

    def rejoins(self, found: Found, forgotten: Iterable[BatchId]) -> None:
        """A history showed batches of the ledger."""
        for anchor in found.anchors:
            if anchor.released:
                self._services.metrics.unheld(anchor.batch.batch_id)
                self._rejoin(anchor.batch.batch_id, "rejoined" if anchor.progress is Progress.WHOLE else "partial")
            self._strays(anchor)
        for batch_id in found.mismatched:
            self._rejoin(batch_id, "mismatch")
        for batch_id in forgotten:
            if self._rejoin(batch_id, "forgotten"):
                self._services.log.event("warning", "a batch was forgotten", request_id=self._exchange.request_id)

    def _rejoin(self, batch_id: BatchId, outcome: str) -> bool:
        """Count how a batch came back; whether it did so for the first time."""
        new = self._seen.rejoins.add((self._facts.tenant, batch_id, outcome == "forgotten"))
        if new:
            self._services.metrics.rejoin(api=self._api, outcome=outcome)
        return new

    def stray(self, call_id: str) -> None:
        """A client made up a result for a call that it was never shown."""
        if self._seen.strays.add((self._facts.tenant, call_id)):
            self._services.metrics.stray_result(api=self._api)
            self._services.log.event("warning", "a result was dropped", request_id=self._exchange.request_id)

    def _strays(self, anchor: Anchor) -> None:
        """Results that the client made up for held calls of a batch."""
        for index in anchor.dropped:
            if self._seen.strays.add((self._facts.tenant, anchor.batch.batch_id, index)):
                self._services.metrics.stray_result(api=self._api)
                self._services.log.event("warning", "a result was dropped", request_id=self._exchange.request_id)
