"""The parts of a governed request, each by itself: services over a store and a clock of the test, a client that
keeps what it is sent, tools that are functions of the test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from proxy.core.batch.approval import Approval
from proxy.core.calls import Api, RequestFacts, Tenant
from proxy.core.exchange.judging import Judge
from proxy.core.policy.decide import PolicySet
from proxy.core.protocol.chat import declared_tools
from proxy.errors import UpstreamError
from proxy.metrics import Metrics
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.audit import Audit
from proxy.server.budget import BufferBudget
from proxy.server.callers import Callers
from proxy.server.consulting import Consulting
from proxy.server.deciders import Deciders
from proxy.server.http import Answer, Headers, RequestHead
from proxy.server.ledger import Ledger
from proxy.server.loading import load
from proxy.server.logs import Log, RequestLog
from proxy.server.routing import Surface
from proxy.server.running import Caller
from proxy.server.services import AnyUpstream, ExchangeIn, Loaded, Services
from proxy.server.tasks import TaskOwner
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore
from proxy.tools.run import ToolSet
from proxy.tools.spec import Advertise, Execution, HttpBackend, RunKind, ToolOutcome, ToolRun, ToolSpec
from proxy.tools.urltemplate import parse_template
from tests.server.proxied import configured

TENANT = Tenant("tenant-one")


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Tools(ToolSet):
    """Tools that are functions of a test, with the runs that each had."""

    def __init__(self, functions: dict[str, Callable[[ToolRun], Awaitable[str]]], **settings: Any) -> None:
        super().__init__(_spec(name, settings) for name in functions)
        self.runs: dict[str, list[ToolRun]] = {name: [] for name in functions}
        self._functions = functions

    async def run(self, name: str, run: ToolRun) -> ToolOutcome:
        self.runs[name].append(run)
        try:
            return ToolOutcome(await self._functions[name](run), is_error=False, kind=RunKind.OK)
        except LookupError:
            return ToolOutcome(f"Tool {name} failed: it raised LookupError", is_error=True, kind=RunKind.EXCEPTION)


def _spec(name: str, settings: dict[str, Any]) -> ToolSpec:
    backend = HttpBackend("GET", parse_template("http://127.0.0.1:9/x"), (), 1.0)
    given = {"execution": Execution.ON_RETURN, "idempotent": False, **settings}
    return ToolSpec(
        name=name,
        description="",
        parameters={},
        advertise=Advertise.WITH_TOOLS,
        concurrency=8,
        max_result_bytes=1000,
        backend=backend,
        **given,
    )


@dataclass
class Client:
    """A client that keeps what it is sent."""

    head: RequestHead = field(default_factory=lambda: RequestHead("POST", "/v1/chat/completions", ()))
    status: int = 0
    headers: Headers = ()
    data: bytes = b""
    finished: bool = False

    @property
    def started(self) -> bool:
        return bool(self.status)

    async def read(self, limit: int) -> bytes:
        return b""

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b""

    async def start(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def write(self, data: bytes) -> None:
        self.data += data

    async def finish(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.finished = True

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Given:
    """An answer of the upstream in pieces; one that is an exception is raised in its place."""

    parts: list[bytes | Exception]
    headers: Headers = (("content-type", "application/json"),)
    status: int = 200

    async def pieces(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part


@dataclass
class Scripted:
    """An upstream that gives answers one after another, and takes `seconds` of the test's clock for each head."""

    answers: list[Given | UpstreamError] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    seconds: float = 0.0

    def request(
        self, head: RequestHead, body: bytes | AsyncIterator[bytes] | None, *, governed: bool
    ) -> AbstractAsyncContextManager[Answer]:
        return self._request(body)

    @asynccontextmanager
    async def _request(self, body: Any) -> AsyncIterator[Answer]:
        self.bodies.append(body)
        self.clock.now += self.seconds
        given = self.answers.pop(0)
        if isinstance(given, UpstreamError):
            raise given
        yield given


@dataclass
class Parts:
    """Everything that a part of the server may need."""

    clock: Clock = field(default_factory=Clock)
    store: Store = field(default_factory=lambda: cast(Store, None))
    tools: ToolSet = field(default_factory=lambda: ToolSet([]))
    policies: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = self.store or MemoryStore(clock=self.clock)
        config = configured("http://127.0.0.1:9/v1", policies=list(self.policies), **self.settings)
        log = Log(level="info", clock=self.clock, write=lambda line: self.lines.append(json.loads(line)))
        loaded = load(config)
        self.policy_set: PolicySet = loaded.policies
        self.upstream = Scripted(clock=self.clock)
        metrics = Metrics(max_tool_names=50, clock=self.clock)
        tasks = TaskOwner(lambda name, error: self.lines.append({"task": name, "error": type(error).__name__}))
        self.announced: list[Approval] = []
        self.services = Services(
            config=config,
            upstream=cast(AnyUpstream, self.upstream),
            store=self.store,
            metrics=metrics,
            audit=Audit("-", shown="full", clock=self.clock, log=log),
            log=log,
            clock=self.clock,
            budget=BufferBudget(1 << 20),
            tasks=tasks,
            deciders=Deciders(log),
            desk=ApprovalDesk(
                self.store,
                clock=self.clock,
                metrics=metrics,
                log=log,
                tasks=tasks,
                announce=self.announced.append,
                poll_seconds=0.02,
            ),
            timer=self.clock,
        )
        self.loaded = Loaded(self.policy_set, self.tools, Callers(()), loaded.code)
        self.client = Client()
        self.exchange = ExchangeIn(
            client=self.client,
            share=self.services.budget.share(),
            surface=Surface.CHAT,
            loaded=self.loaded,
            request_id="request-one",
            client_name="",
            tenant=self._tenant,
            log=RequestLog("request-one", "POST", "/v1/chat/completions"),
            keep=self._keep,
        )

    async def _tenant(self) -> Tenant:
        return TENANT

    def _keep(self) -> AbstractContextManager[Loaded]:
        return nullcontext(self.loaded)

    def ledger(self, tenant: str = TENANT, *, ttl: float = 3600.0) -> Ledger:
        async def named() -> Tenant:
            return Tenant(tenant)

        return Ledger(self.store, named, ttl=ttl)

    def facts(self, *, tenant: str = TENANT, tools: tuple[str, ...] = ()) -> RequestFacts:
        declared = {"tools": [{"type": "function", "function": {"name": name}} for name in tools]}
        return RequestFacts(api=Api.CHAT, tenant=Tenant(tenant), declared=dict(declared_tools(declared)))

    def judge(self, *, tenant: str = TENANT, tools: tuple[str, ...] = ()) -> Judge:
        facts = self.facts(tenant=tenant, tools=tools)
        return Judge(self.policy_set.for_request(facts), facts, self.tools.specs.keys())

    def caller(self, *, tenant: str = TENANT) -> Caller:
        ledger = self.ledger(tenant)
        return Caller(
            ledger=ledger,
            judge=self.judge(tenant=tenant),
            consulting=Consulting.of(self.services, self.loaded, ledger),
            loaded=self.loaded,
            client="team",
            traceparent="00-trace",
            keep=self._keep,
        )

    def value(self, name: str, **labels: str) -> float:
        return self.services.metrics.registry.get_sample_value(f"sidecall_{name}", labels) or 0.0

    def total(self, name: str, **labels: str) -> float:
        families = self.services.metrics.registry.collect()
        samples = (s for family in families for s in family.samples if s.name == f"sidecall_{name}")
        return sum(s.value for s in samples if labels.items() <= s.labels.items())
