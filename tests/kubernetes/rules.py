"""The chart's alerts and records as Prometheus reads them, and series that make each alert fire, or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.charts import NAMESPACE, documents, of_kind, rendered

POD = f'namespace="{NAMESPACE}", pod="a"'
BUILD = {f"sidecall_build_info{{{POD}}}": "1x3000"}


def groups(name: str = "rules") -> dict[str, Any]:
    """The rules of a value set, as a rule file."""
    [found] = of_kind(documents(rendered("helm4", name)), "PrometheusRule")
    spec: dict[str, Any] = found["spec"]
    return spec


def alerts(name: str = "rules") -> list[dict[str, Any]]:
    return [rule for group in groups(name)["groups"] for rule in group["rules"] if "alert" in rule]


@dataclass(frozen=True, slots=True)
class Case:
    """Series, a sample a minute; when they are looked at, and whether the alert fires then (with these labels)."""

    alert: str
    series: Mapping[str, str]
    minute: int
    fires: Mapping[str, str] | None = field(default=None)


def of_pod(name: str, labels: str = "") -> str:
    return f"sidecall_{name}{{{POD}{', ' if labels else ''}{labels}}}"


def overhead(quick: str, every: str) -> dict[str, str]:
    """Requests, and those of them that were quick enough, as promtool writes series."""
    return {
        of_pod("overhead_seconds_bucket", 'le="0.05", api="chat"'): quick,
        of_pod("overhead_seconds_count", 'api="chat"'): every,
    }


def calls(blocked: str, allowed: str) -> dict[str, str]:
    label = 'mode="enforce", tool="t", decision='
    return {
        of_pod("tool_calls_total", f'{label}"blocked"'): blocked,
        of_pod("tool_calls_total", f'{label}"allowed"'): allowed,
        # What is in shadow has no part in it.
        of_pod("tool_calls_total", 'mode="shadow", tool="t", decision="blocked"'): "0+100x2000",
    }


AT_POD = {"namespace": NAMESPACE, "pod": "a"}
IN_NAMESPACE = {"namespace": NAMESPACE}
RECORDED = {**IN_NAMESPACE, "sidecall_rules": f"{NAMESPACE}/release-sidecall"}
RULE = {**IN_NAMESPACE, "policy": "p", "rule": "r"}
ERRORS = of_pod("policy_errors_total", 'policy="p", rule="r"')
PENDING = of_pod("approvals_pending", 'tool="t"')

CASES = [
    Case("SidecallAbsent", {'sidecall_build_info{namespace="other"}': "1x30"}, 10, IN_NAMESPACE),
    Case("SidecallAbsent", {of_pod("build_info"): "1x30"}, 10),
    Case("SidecallAbsent", {of_pod("build_info"): "1x5 _x3 1x30"}, 9),
    Case("SidecallStateUnavailable", {of_pod("state_unavailable_total"): "0x5 1+1x20"}, 12, AT_POD),
    Case("SidecallStateUnavailable", {of_pod("state_unavailable_total"): "7x30"}, 12),
    Case("SidecallStateUnavailable", {of_pod("state_unavailable_total"): "0x5 1x40"}, 20),
    Case("SidecallStoreDown", {of_pod("store_up"): "1x5 0x20"}, 12, AT_POD),
    Case("SidecallStoreDown", {of_pod("store_up"): "1x5 0x3 1x20"}, 12),
    Case("SidecallPolicyReloadFailed", {of_pod("policy_reload_ok"): "1x5 0x20"}, 12, AT_POD),
    Case("SidecallPolicyReloadFailed", {of_pod("policy_reload_ok"): "1x5 0x2 1x20"}, 12),
    Case("SidecallPolicyErrors", {ERRORS: "_x5 1x20"}, 8, RULE),  # the very first one
    Case("SidecallPolicyErrors", {ERRORS: "1x20 2x20"}, 24, RULE),
    Case("SidecallPolicyErrors", {ERRORS: "1x60"}, 40),
    Case("SidecallHeldCallsOld", {of_pod("held_call_age_seconds"): "0+60x100"}, 75, AT_POD),
    Case("SidecallHeldCallsOld", {of_pod("held_call_age_seconds"): "0+60x59 0x50"}, 75),
    Case("SidecallBlockedShareJumped", calls("0+1x1500 1501+50x60", "0+50x1560"), 1560, RECORDED),
    Case("SidecallBlockedShareJumped", calls("0+50x60", "0+50x60"), 25, RECORDED),  # no day before: as if nothing was
    Case("SidecallBlockedShareJumped", calls("0+30x1560", "0+50x1560"), 1560),  # as always
    Case("SidecallBlockedShareJumped", calls("0x1500 0+0.2x60", "0+0.2x1560"), 1560),  # six calls are no share
    Case("SidecallOverheadHigh", overhead("0+40x90", "0+50x90"), 80, RECORDED),
    Case("SidecallOverheadHigh", overhead("0+49x90", "0+50x90"), 80),
    Case("SidecallOverheadHigh", overhead("0+40x60 2400+50x30", "0+50x90"), 80),  # it is over
    Case("SidecallOverheadRising", overhead("0+46x500", "0+50x500"), 400, RECORDED),
    Case("SidecallOverheadRising", overhead("0+49x500", "0+50x500"), 400),
    Case(
        "SidecallApprovalsWaiting",
        {of_pod("approvals_pending", 'tool="t"'): "0x5 2x30"},
        25,
        {**IN_NAMESPACE, "tool": "t"},
    ),
    Case("SidecallApprovalsWaiting", {of_pod("approvals_pending", 'tool="t"'): "0x5 2x10 0x30"}, 25),
]
