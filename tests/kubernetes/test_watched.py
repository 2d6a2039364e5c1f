"""A real Prometheus scrapes a proxy under traffic: its metrics are clean, and every query of ours gives something."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.kubernetes.tools import ran, run
from tests.kubernetes.watched import Watched, filled_in, panels, until, watched

QUERIES = {
    f"{panel['title']}/{target['refId']}": filled_in(target["expr"])
    for panel in panels()
    for target in panel["targets"]
}
RECORDS = (
    *(f"sidecall:overhead_slow:ratio_rate{window}" for window in ("5m", "30m", "1h", "6h")),
    "sidecall:overhead_seconds:p99_rate5m",
    "sidecall:tool_calls_blocked:ratio_rate15m",
)


def numbers(found: Watched, query: str) -> list[float]:
    """The values that a query gives now, save those that are no number: a share of nothing."""
    values = [float(series["value"][1]) for series in found.query("query", query=query)]
    return [value for value in values if not math.isnan(value)]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """After traffic, twice so that there are rates, a change of policies, and an upstream that went away."""
    with watched(tmp_path_factory.mktemp("watched")) as found:
        found.traffic()
        until("the first calls are known", lambda: bool(numbers(found, "sidecall_tool_calls_total")))
        found.change_policies()
        found.traffic()
        until("the policies are loaded again", lambda: 'policy_reloads_total{outcome="ok"} 1.0' in found.metrics())
        assert found.upstream is not None
        found.upstream.terminate()
        found.upstream.wait(30)
        assert found.post({"model": "demo", "messages": []})[0] == 502
        yield found


def test_the_metrics_are_clean(scraped: Watched) -> None:
    """Nothing that promtool's lint has to say about names, types and help texts."""
    assert ran("promtool", "check", "metrics", given=scraped.metrics()) == ""


def test_the_lint_sees_what_is_not_clean() -> None:
    """The test above could fail."""
    assert run("promtool", "check", "metrics", given="# TYPE a_total gauge\na_total 1\n").returncode == 3


def test_every_query_of_the_dashboard_gives_something(scraped: Watched) -> None:
    """Of a panel that stays empty nobody knows whether it is broken."""
    missing = dict(QUERIES)

    def all_given() -> bool:
        for name in [name for name, query in missing.items() if numbers(scraped, query)]:
            del missing[name]
        return not missing

    try:
        until("every query gives something", all_given)
    except AssertionError:
        assert missing == {}


def test_every_record_is_made(scraped: Watched) -> None:
    """By the rules as the chart renders them."""
    until("every record is made", lambda: all(numbers(scraped, name) for name in RECORDS))


def test_the_first_row_tells_what_happened(scraped: Watched) -> None:
    """One proxy with its store, some calls blocked, nothing that waits."""
    up, with_store = (numbers(scraped, QUERIES[f"Proxies up/{ref}"]) for ref in "AB")
    assert (up, with_store) == ([1.0], [1.0])
    assert numbers(scraped, QUERIES["Waiting/A"]) == [0.0]
    decided = 'sidecall_tool_calls_total{mode="enforce", decision="%s"}'
    until("both calls are counted", lambda: sum(numbers(scraped, decided % "blocked")) == 2)
    until("both calls are counted", lambda: sum(numbers(scraped, decided % "rewritten")) == 2)
    until("both errors are counted", lambda: numbers(scraped, "sidecall_policy_errors_total") == [2.0])


def test_no_alert_that_needs_time_fires_at_once(scraped: Watched) -> None:
    """The error of the rule is told; nothing else is the matter."""
    query = 'ALERTS{alertstate="firing"}'
    until("the alert fires", lambda: bool(scraped.query("query", query=query)))
    assert {series["metric"]["alertname"] for series in scraped.query("query", query=query)} == {"SidecallPolicyErrors"}
