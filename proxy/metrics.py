"""The one door to prometheus-client: every metric and every label stands in the tables below.

Labels are bounded: a tool is named only when the request or the configuration declares it, and only so many
names are ever taken; what a model makes up is `other`. Each process has a registry of its own. Knows nothing
of HTTP, beyond the content type of what it renders.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from proxy import __version__

OTHER = "other"
_LONGEST_LIST = 200
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

_SIZES = tuple(float(256 << shift) for shift in range(0, 18, 2))

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tool_calls": (
        "Tool calls that models made, by what was decided.",
        ("tool", "api", "owner", "decision", "policy", "rule", "mode"),
    ),
    "tool_results": ("Results of tool calls.", ("tool", "owner", "outcome")),
    "batches": ("Batches of tool calls.", ("api", "kind")),
    "rejoins": ("Split batches that came back.", ("api", "outcome")),
    "continuations": ("Turns with hidden rounds, by how they ended.", ("api", "end")),
    "approvals": ("Approvals, by how they ended.", ("tool", "outcome")),
    "approvals_unasked": ("Calls that were blocked since too many wait for a person already.", ("tool",)),
    "requests": ("Requests.", ("api", "stream", "status")),
    "upstream_errors": ("Failures of the upstream.", ("kind",)),
    "policy_errors": ("Rules that could not be evaluated.", ("policy", "rule")),
    "policy_reloads": ("Loads of policies after the first.", ("outcome",)),
    "state_unavailable": ("Requests that were refused since the store could not be used.", ()),
    "store_evictions": ("Entries that the store dropped before their time.", ()),
    "stray_results": ("Results that clients sent for calls that they were never given.", ("api",)),
}
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "deferred_calls": ("Held calls without a result yet.", ()),
    "held_call_age_seconds": ("Age of the oldest held call without a result.", ()),
    "approvals_pending": ("Approvals that wait for a person.", ("tool",)),
    "streams_active": ("Streams that run.", ()),
    "store_up": ("Whether the store answers.", ()),
    "store_bytes": ("What the store in memory holds; 0 for one elsewhere.", ()),
    "mcp_up": ("Whether an MCP server answers.", ("server",)),
    "build_info": ("The build that runs.", ("version",)),
    "policy_info": ("Policies that are loaded.", ("policy", "digest")),
    "policy_reload_ok": ("Whether what was loaded last is in use.", ()),
}
HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "tool_call_duration_seconds": ("How long a tool call ran.", ("tool", "owner", "outcome"), _LONG),
    "request_duration_seconds": ("Duration of requests.", ("api", "stream", "status"), _LONG),
    "overhead_seconds": ("Time spent in the proxy itself.", ("api",), _SHORT),
    "hold_seconds": ("How long the bytes of a call were held back for its decision.", ("api",), _SHORT + _LONG[-6:]),
    "time_to_first_byte_seconds": ("Time to the first byte of the answer's body.", ("api",), _LONG),
    "store_record_bytes": ("Sizes of what was written to the store.", (), _SIZES),
    "store_operation_duration_seconds": ("Duration of operations of the store.", ("operation",), _SHORT),
}


def without_creation_times() -> None:
    """Leave out the series that tell when each counter was made: they double the size. For the start of a process."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped


class ToolNames:
    """Which tool names may be labels."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: set[str] = set()

    def label(self, name: str, *, declared: bool) -> str:
        if name in self._taken:
            return name
        if not declared or not name or len(self._taken) >= self._most:
            return OTHER
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """A batch with held calls that have no result: how many, which tools', and for how many seconds."""

    batch: str
    count: int
    tools: str
    age: float


@dataclass(frozen=True, slots=True)
class Hits:
    """What a rule did since the process began: calls that it decided, that it would have decided in shadow mode, and
    how often it could not be evaluated."""

    decided: int = 0
    shadow: int = 0
    errors: int = 0


class HeldCalls:
    """Held calls without a result, by batch. `clock` gives seconds, in the terms of the `since` that comes in; a batch
    that did not come back within `ttl` seconds is forgotten by the ledger, and here."""

    def __init__(self, clock: Callable[[], float], ttl: float) -> None:
        self._clock = clock
        self._ttl = ttl
        self._batches: dict[Hashable, tuple[int, float, str]] = {}

    def hold(self, batch: Hashable, *, count: int, since: float, tools: str = "") -> None:
        self._forget()
        self._batches[batch] = (count, since, tools)

    def answer(self, batch: Hashable) -> None:
        """One call of a batch has its result, before the batch comes back."""
        count, since, tools = self._batches.get(batch, (0, 0.0, ""))
        if count > 1:
            self._batches[batch] = (count - 1, since, tools)
        else:
            self.release(batch)

    def release(self, batch: Hashable) -> None:
        self._batches.pop(batch, None)

    def count(self) -> float:
        self._forget()
        return sum(count for count, _, _ in self._batches.values())

    def age(self) -> float:
        self._forget()
        oldest = min((since for _, since, _ in self._batches.values()), default=None)
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)

    def oldest(self, most: int) -> list[HeldBatch]:
        """The oldest of them, the oldest first."""
        self._forget()
        now, found = self._clock(), islice(self._batches.items(), most)
        return [HeldBatch(str(b), count, tools, max(0.0, now - since)) for b, (count, since, tools) in found]

    def _forget(self) -> None:
        """Batches lie in the order in which they were held, so that those that are over come first."""
        over = self._clock() - self._ttl
        while self._batches:
            batch, (_, since, _) = next(iter(self._batches.items()))
            if since >= over:
                break
            del self._batches[batch]


def _samples(counter: Counter) -> Iterator[tuple[dict[str, str], int]]:
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, int(sample.value)


class Metrics:
    """What the process counts. Each method is one event; its keywords are the labels."""

    def __init__(self, *, max_tool_names: int, clock: Callable[[], float], held_ttl: float = 86400.0) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._names = ToolNames(max_tool_names)
        self._held = HeldCalls(clock, held_ttl)
        self._counters = {
            name: Counter(f"sidecall_{name}", text, labels, registry=self.registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(f"sidecall_{name}", text, labels, registry=self.registry)
            for name, (text, labels) in GAUGES.items()
        }
        self._histograms = {
            name: Histogram(f"sidecall_{name}", text, labels, buckets=buckets, registry=self.registry)
            for name, (text, labels, buckets) in HISTOGRAMS.items()
        }
        self._children: dict[tuple[str, ...], Counter | Gauge | Histogram] = {}
        self._awaited: set[str] = set()
        self._gauges["deferred_calls"].set_function(self._held.count)
        self._gauges["held_call_age_seconds"].set_function(self._held.age)
        self._gauges["build_info"].labels(__version__).set(1)
        self._gauges["policy_reload_ok"].set(1)

    # Children are looked up in a dict of our own: `labels()` costs three times as much.

    def _counter(self, name: str, *labels: str) -> Counter:
        child = self._children.get((name, *labels))
        if child is None:
            parent = self._counters[name]
            child = self._children[(name, *labels)] = parent.labels(*labels) if labels else parent
        assert isinstance(child, Counter)
        return child

    def _histogram(self, name: str, *labels: str) -> Histogram:
        child = self._children.get((name, *labels))
        if child is None:
            parent = self._histograms[name]
            child = self._children[(name, *labels)] = parent.labels(*labels) if labels else parent
        assert isinstance(child, Histogram)
        return child

    def tool_label(self, name: str, *, declared: bool) -> str:
        """The label for a tool's name; `declared`: the request or the configuration declares it."""
        return self._names.label(name, declared=declared)

    # -- tool calls

    def tool_call(
        self, *, tool: str, declared: bool, api: str, owner: str, decision: str, policy: str, rule: str, mode: str
    ) -> None:
        label = self._names.label(tool, declared=declared)
        self._counter("tool_calls", label, api, owner, decision, policy, rule, mode).inc()

    def tool_result(self, *, tool: str, declared: bool = True, owner: str, outcome: str) -> None:
        self._counter("tool_results", self._names.label(tool, declared=declared), owner, outcome).inc()

    def tool_duration(self, seconds: float, *, tool: str, declared: bool = True, owner: str, outcome: str) -> None:
        label = self._names.label(tool, declared=declared)
        self._histogram("tool_call_duration_seconds", label, owner, outcome).observe(seconds)

    def batch(self, *, api: str, kind: str) -> None:
        self._counter("batches", api, kind).inc()

    def held(self, batch: Hashable, *, count: int, since: float, tools: Iterable[str] = ()) -> None:
        """A batch holds so many calls without a result; `tools` are their names, for people."""
        named = ", ".join(dict.fromkeys(tools))
        self._held.hold(batch, count=count, since=since, tools=named[:_LONGEST_LIST])

    def held_batches(self, most: int = 50) -> list[HeldBatch]:
        """The batches that wait for results longest."""
        return self._held.oldest(most)

    def held_call_ran(self, batch: Hashable) -> None:
        self._held.answer(batch)

    def unheld(self, batch: Hashable) -> None:
        self._held.release(batch)

    def rejoin(self, *, api: str, outcome: str) -> None:
        self._counter("rejoins", api, outcome).inc()

    def continuation(self, *, api: str, end: str) -> None:
        self._counter("continuations", api, end).inc()

    def stray_result(self, *, api: str) -> None:
        self._counter("stray_results", api).inc()

    def hold(self, seconds: float, *, api: str) -> None:
        self._histogram("hold_seconds", api).observe(seconds)

    # -- approvals

    def approval(self, *, tool: str, declared: bool = True, outcome: str) -> None:
        self._counter("approvals", self._names.label(tool, declared=declared), outcome).inc()

    def approval_unasked(self, *, tool: str, declared: bool = True) -> None:
        self._counter("approvals_unasked", self._names.label(tool, declared=declared)).inc()

    def approvals_pending(self, counts: Mapping[tuple[str, bool], int]) -> None:
        """What is pending now, by tool and whether that is declared; tools that are not named have none any more."""
        found: Counts[str] = Counts(dict.fromkeys(self._awaited, 0))
        for (tool, declared), count in counts.items():
            found[self._names.label(tool, declared=declared)] += count
        self._awaited = set(found)
        for label, count in found.items():
            self._gauges["approvals_pending"].labels(label).set(count)

    # -- requests

    def request(self, seconds: float, *, api: str, stream: bool, status: int) -> None:
        labels = (api, "true" if stream else "false", str(status))
        self._counter("requests", *labels).inc()
        self._histogram("request_duration_seconds", *labels).observe(seconds)

    def overhead(self, seconds: float, *, api: str) -> None:
        self._histogram("overhead_seconds", api).observe(seconds)

    def first_byte(self, seconds: float, *, api: str) -> None:
        self._histogram("time_to_first_byte_seconds", api).observe(seconds)

    @contextmanager
    def stream_active(self) -> Iterator[None]:
        with self._gauges["streams_active"].track_inprogress():
            yield

    def upstream_error(self, kind: str) -> None:
        self._counter("upstream_errors", kind).inc()

    # -- policies, store, tool servers

    def policy_error(self, *, policy: str, rule: str) -> None:
        self._counter("policy_errors", policy, rule).inc()

    def policy_reload(self, outcome: str) -> None:
        self._counter("policy_reloads", outcome).inc()
        self._gauges["policy_reload_ok"].set(outcome == "ok")

    def policies(self, names: Iterable[str], *, digest: str) -> None:
        """The policies that are loaded now; `digest` tells one set from another."""
        gauge = self._gauges["policy_info"]
        gauge.clear()
        for name in names:
            gauge.labels(name, digest).set(1)

    def state_unavailable(self) -> None:
        self._counter("state_unavailable").inc()

    def store_eviction(self, count: int = 1) -> None:
        self._counter("store_evictions").inc(count)

    def store_bytes(self, total: int, *, written: Iterable[int]) -> None:
        """What the store holds, where it is bounded, and the sizes of what was written just now."""
        self._gauges["store_bytes"].set(total)
        for size in written:
            self._histogram("store_record_bytes").observe(size)

    def store_operation(self, seconds: float, *, operation: str) -> None:
        self._histogram("store_operation_duration_seconds", operation).observe(seconds)

    def store_up(self, up: bool) -> None:
        self._gauges["store_up"].set(up)

    def mcp_up(self, up: bool, *, server: str) -> None:
        self._gauges["mcp_up"].labels(server).set(up)

    def mcp_gone(self, *, server: str) -> None:
        """A server is not configured any more."""
        self._gauges["mcp_up"].remove(server)

    # -- what people get

    def hits(self) -> dict[tuple[str, str], Hits]:
        """What each rule did, by policy and rule; under two empty names what no rule decided."""
        found: dict[tuple[str, str], Counts[str]] = defaultdict(Counts)
        for labels, value in _samples(self._counters["tool_calls"]):
            kind = "shadow" if labels["mode"] == "shadow" else "decided"
            found[labels["policy"], labels["rule"]][kind] += value
        for labels, value in _samples(self._counters["policy_errors"]):
            found[labels["policy"], labels["rule"]]["errors"] += value
        return {name: Hits(**counts) for name, counts in found.items()}

    # -- what a scraper gets

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, in OpenMetrics when that is asked for."""
        if "application/openmetrics-text" in accept:
            return openmetrics.generate_latest(self.registry), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]
        text: bytes = generate_latest(self.registry)
        return text, "text/plain; version=0.0.4; charset=utf-8"
