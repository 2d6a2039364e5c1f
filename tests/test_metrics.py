"""Metrics: names, labels, gauges that look at a clock, and the two formats."""

from __future__ import annotations

from proxy.metrics import COUNTERS, GAUGES, HISTOGRAMS, HeldBatch, Hits, Metrics


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(most: int = 200) -> tuple[Metrics, Clock]:
    clock = Clock()
    return Metrics(max_tool_names=most, clock=clock), clock


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"sidecall_{name}", labels)
    return 0.0 if found is None else found


def count(metrics: Metrics, tool: str, *, declared: bool = True) -> None:
    metrics.tool_call(
        tool=tool,
        declared=declared,
        api="chat",
        owner="client",
        decision="allowed",
        policy="",
        rule="",
        mode="enforce",
    )


def tools(metrics: Metrics) -> dict[str, float]:
    return {
        sample.labels["tool"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "sidecall_tool_calls_total"
    }


def test_a_declared_name_is_a_label_and_another_is_other() -> None:
    """A name that nobody declared is counted as other."""
    metrics, _ = made()
    count(metrics, "search")
    count(metrics, "made_up", declared=False)
    count(metrics, "", declared=True)
    assert tools(metrics) == {"search": 1, "other": 2}


def test_names_beyond_the_maximum_are_other() -> None:
    """Names past the maximum are other, and those that were taken stay."""
    metrics, _ = made(2)
    for name in ("one", "two", "three", "one"):
        count(metrics, name)
    count(metrics, "two", declared=False)
    assert tools(metrics) == {"one": 2, "two": 2, "other": 1}


def test_held_calls_are_counted_and_have_an_age() -> None:
    """The gauges of held calls follow the batches and the clock."""
    metrics, clock = made()
    metrics.held("a", count=2, since=90)
    metrics.held("b", count=1, since=95)
    clock.now = 110
    assert (value(metrics, "deferred_calls"), value(metrics, "held_call_age_seconds")) == (3, 20)
    metrics.unheld("a")
    metrics.unheld("unknown")
    assert (value(metrics, "deferred_calls"), value(metrics, "held_call_age_seconds")) == (1, 15)
    metrics.unheld("b")
    assert (value(metrics, "deferred_calls"), value(metrics, "held_call_age_seconds")) == (0, 0)


def test_held_batches_are_told_to_people() -> None:
    """The oldest first, as many as are wanted, with tools and age; names are bounded."""
    metrics, clock = made()
    metrics.held("a", count=2, since=90, tools=["pay", "pay"])
    metrics.held("b", count=1, since=95, tools=["x" * 500])
    clock.now = 110
    metrics.held_call_ran("a")
    assert metrics.held_batches(1) == [HeldBatch("a", 1, "pay", 20)]
    assert metrics.held_batches()[1] == HeldBatch("b", 1, "x" * 200, 15)


def test_what_rules_did_is_told_by_their_names() -> None:
    """Whatever the tool; under empty names what no rule decided."""
    metrics, _ = made()
    for tool, policy, rule, mode in (
        ("a", "p", "r", "enforce"),
        ("b", "p", "r", "enforce"),
        ("a", "p", "r", "shadow"),
        ("a", "", "", "enforce"),
    ):
        metrics.tool_call(
            tool=tool,
            declared=True,
            api="chat",
            owner="client",
            decision="blocked",
            policy=policy,
            rule=rule,
            mode=mode,
        )
    metrics.policy_error(policy="p", rule="s")
    assert metrics.hits() == {("p", "r"): Hits(2, 1), ("p", "s"): Hits(errors=1), ("", ""): Hits(1)}


def test_every_event_shows_in_the_exposition() -> None:
    """Each method changes the sample that the contract names."""
    metrics, _ = made()
    metrics.tool_result(tool="t", owner="proxy", outcome="ok")
    metrics.tool_duration(0.5, tool="t", owner="proxy", outcome="ok")
    metrics.batch(api="chat", kind="mixed")
    metrics.rejoin(api="chat", outcome="rejoined")
    metrics.continuation(api="chat", end="text")
    metrics.stray_result(api="chat")
    metrics.hold(0.1, api="chat")
    metrics.approval(tool="t", outcome="approved")
    metrics.approvals_pending({("t", True): 2})
    metrics.request(0.2, api="chat", stream=True, status=200)
    metrics.overhead(0.001, api="chat")
    metrics.first_byte(0.1, api="chat")
    metrics.upstream_error("connect")
    metrics.policy_error(policy="p", rule="r")
    metrics.policy_reload("ok")
    metrics.state_unavailable()
    metrics.store_eviction(3)
    metrics.store_operation(0.001, operation="load")
    metrics.mcp_up(True, server="docs")
    assert value(metrics, "tool_results_total", tool="t", owner="proxy", outcome="ok") == 1
    assert value(metrics, "tool_call_duration_seconds_count", tool="t", owner="proxy", outcome="ok") == 1
    assert value(metrics, "requests_total", api="chat", stream="true", status="200") == 1
    assert value(metrics, "approvals_pending", tool="t") == 2
    assert value(metrics, "store_evictions_total") == 3
    assert value(metrics, "state_unavailable_total") == 1
    assert value(metrics, "mcp_up", server="docs") == 1
    metrics.mcp_gone(server="docs")
    assert metrics.registry.get_sample_value("sidecall_mcp_up", {"server": "docs"}) is None
    text = metrics.render("")[0].decode()
    for name in ("batches_total", "rejoins_total", "continuations_total", "hold_seconds_count", "policy_errors_total"):
        assert f"sidecall_{name}" in text


def test_running_streams_are_gauged() -> None:
    """A stream counts while its context is open."""
    metrics, _ = made()
    with metrics.stream_active():
        assert value(metrics, "streams_active") == 1
    assert value(metrics, "streams_active") == 0


def test_policies_that_are_gone_leave_the_exposition() -> None:
    """policy_info has a sample for each loaded policy and no other."""
    metrics, _ = made()
    metrics.policies(["a", "b"], digest="1")
    metrics.policies(["b"], digest="2")
    text = metrics.render("")[0].decode()
    assert 'policy="a"' not in text
    assert 'policy="b"' in text


def test_a_refused_reload_shows_until_one_succeeds() -> None:
    """What was refused is told of for as long as the old policies are in use."""
    metrics, _ = made()
    seen = [value(metrics, "policy_reload_ok")]
    for outcome in ("refused", "ok"):
        metrics.policy_reload(outcome)
        seen.append(value(metrics, "policy_reload_ok"))
    assert seen == [1.0, 0.0, 1.0]


def test_the_format_is_open_metrics_when_asked_for() -> None:
    """Accept chooses the format, and the content type says which it is."""
    metrics, _ = made()
    plain, plain_type = metrics.render("text/plain")
    opened, opened_type = metrics.render("application/openmetrics-text; version=1.0.0,text/plain;q=0.1")
    assert plain_type.startswith("text/plain")
    assert b"# EOF" not in plain
    assert opened_type.startswith("application/openmetrics-text")
    assert opened.endswith(b"# EOF\n")


def test_every_metric_has_a_text() -> None:
    """The tables say what each metric is."""
    texts = [entry[0] for table in (COUNTERS, GAUGES, HISTOGRAMS) for entry in table.values()]
    assert all(text.endswith(".") for text in texts)
