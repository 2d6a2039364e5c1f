"""What is told of a request: every call once, every result once, every batch once."""

from __future__ import annotations

from contextlib import suppress

import pytest

from proxy.core.batch.record import BatchRecord, CallRecord
from proxy.core.batch.rejoin import Anchor, Found, Progress
from proxy.core.calls import Api, BatchId, CallId, Owner, ToolCall
from proxy.core.exchange.judging import Judged
from proxy.core.policy.verdicts import Decision, ResultOutcome, ResultVerdict, RuleName, Shadow, Verdict
from proxy.server.telling import Recent, Seen, Telling
from proxy.tools.spec import ToolRun
from tests.server.parts import Parts, Tools

CALL = ToolCall(CallId("call_1"), "search", '{"q":"x"}')
ALLOWED = Verdict(Decision.ALLOWED)
BLOCKED = Verdict(Decision.BLOCKED, "p", "r", result="no", errors=(RuleName("p", "bad"),))
OK = ResultVerdict("found", ResultOutcome.OK)


def telling(parts: Parts, seen: Seen | None = None) -> Telling:
    facts = parts.facts(tools=("search",))
    return Telling(parts.services, parts.exchange, seen or Seen(), facts=facts, api=Api.CHAT)


def judged(verdict: Verdict, call: ToolCall = CALL) -> Judged:
    return Judged(call, "{}", Owner.CLIENT, verdict)


def anchor(name: str = "b", progress: Progress = Progress.WHOLE, dropped: tuple[int, ...] = ()) -> Anchor:
    batch = BatchRecord(BatchId(name), "{}", "", (CallRecord(CALL, "{}", Owner.CLIENT, "call_1", stage=0),))
    return Anchor(batch, (0,), {}, {}, progress, dropped=dropped)


def test_recent_forgets_the_oldest() -> None:
    """What is remembered is bounded, and a key is new once."""
    recent = Recent(2)
    assert [recent.add(key, 1.0) for key in ("a", "a", "b", "c", "a")] == [True, False, True, True, True]
    assert (recent.pop("c"), recent.pop("c"), recent.pop("x")) == (1.0, None, None)


def test_a_batch_and_its_calls() -> None:
    """One count a call under the rule that decided it, one a shadow rule, one a batch, one record a call."""
    parts = Parts()
    shadow = Verdict(Decision.ALLOWED, shadows=(Shadow("s", "try", Decision.BLOCKED),))
    told = telling(parts)
    told.batch([judged(shadow), judged(BLOCKED)], [0.0, 0.5])
    told.batch([], [])
    labels = {"tool": "search", "api": "chat", "owner": "client"}
    for decision, name, mode in (("allowed", "", "enforce"), ("blocked", "s", "shadow"), ("blocked", "p", "enforce")):
        named = {"decision": decision, "policy": name, "mode": mode}
        assert parts.total("tool_calls_total", **labels, **named) == 1
    assert parts.total("tool_calls_total") == 3
    assert parts.total("batches_total", kind="mixed") == parts.total("batches_total") == 1
    assert parts.value("policy_errors_total", policy="p", rule="bad") == 1
    assert parts.value("hold_seconds_count", api="chat") == 2
    audit = [line for line in parts.lines if line["message"] == "tool_call"]
    assert [(a["decision"], a["args"], a["call_id"]) for a in audit] == [
        ("allowed", {"q": "x"}, "call_1"),
        ("blocked", {"q": "x"}, "call_1"),
    ]
    assert parts.exchange.log.calls == 2


def test_names_that_nobody_declares() -> None:
    """What a model makes up is one label; a name is declared with its prefix or without."""
    parts = Parts()
    told = telling(parts)
    for name in ("made_up", "functions.search"):
        told.call(judged(ALLOWED, ToolCall(CallId(""), name, "not json")), 0.0)
    assert parts.total("tool_calls_total", tool="other") == 1
    assert parts.total("tool_calls_total", tool="search") == 1


def test_a_result_counts_when_it_first_comes_back() -> None:
    """Once, with the time since its call was surfaced, as far as this process saw it."""
    parts, seen = Parts(), Seen()
    telling(parts, seen).surfaced(["call_1", None, ""])
    parts.clock.now += 2
    for _ in range(3):
        telling(parts, seen).result(CALL, OK, call_id="call_1", place="")
    telling(parts, seen).surfaced(["call_1"])
    telling(parts, seen).result(CALL, OK, call_id="call_1", place="another conversation")
    assert parts.total("tool_results_total", tool="search", outcome="ok") == parts.total("tool_results_total") == 2
    labels = {"tool": "search", "owner": "client", "outcome": "ok"}
    assert parts.value("tool_call_duration_seconds_sum", **labels) == 2
    blocked = ResultVerdict("x", ResultOutcome.BLOCKED, errors=(RuleName("p", "bad"),))
    telling(parts, seen).result(CALL, blocked, call_id="call_2", place="")
    assert parts.total("tool_results_total", outcome="blocked") == 1
    assert parts.value("tool_call_duration_seconds_count", **labels) == 2
    assert parts.value("policy_errors_total", policy="p", rule="bad") == 1


def test_a_split_is_waited_for_until_it_comes_back() -> None:
    """Calls to run and calls that were put off count in the gauge, blocked and surfaced ones do not."""
    parts, seen = Parts(), Seen()
    calls = (
        CallRecord(CALL, "{}", Owner.CLIENT, "a", stage=0),
        CallRecord(CALL, "{}", Owner.CLIENT, "b", stage=1),
        CallRecord(CALL, "{}", Owner.PROXY, ""),
        CallRecord(CALL, "{}", Owner.CLIENT, "", result="no", blocked=True),
    )
    telling(parts, seen).split(BatchRecord(BatchId("b"), "{}", "", calls))
    parts.clock.now += 5
    assert (parts.value("deferred_calls"), parts.value("held_call_age_seconds")) == (2, 5)
    telling(parts, seen).rejoins(Found((anchor(progress=Progress.WAITING),)), frozenset())
    assert parts.value("deferred_calls") == 2
    telling(parts, seen).rejoins(Found((anchor(),)), frozenset())
    assert (parts.value("deferred_calls"), parts.value("held_call_age_seconds")) == (0, 0)
    telling(parts, seen).split(BatchRecord(BatchId("c"), "{}", "", calls[:1]))
    assert parts.value("deferred_calls") == 0


@pytest.mark.parametrize("first", ["rejoined", "partial", "mismatch"])
def test_a_batch_comes_back_once(first: str) -> None:
    """Under the outcome that it had first, however often its history is sent."""
    parts, seen = Parts(), Seen()
    shown = {
        "rejoined": Found((anchor(),)),
        "partial": Found((anchor(progress=Progress.PARTIAL),)),
        "mismatch": Found(mismatched=frozenset({BatchId("b")})),
    }
    for found in (shown[first], *shown.values()):
        telling(parts, seen).rejoins(found, frozenset())
    assert parts.value("rejoins_total", api="chat", outcome=first) == parts.total("rejoins_total") == 1


def test_a_forgotten_batch_is_counted_and_logged_once() -> None:
    """Also when it had come back before it was forgotten."""
    parts, seen = Parts(), Seen()
    telling(parts, seen).rejoins(Found((anchor(),)), frozenset())
    for _ in range(2):
        telling(parts, seen).rejoins(Found(), frozenset({BatchId("b")}))
    assert parts.value("rejoins_total", api="chat", outcome="forgotten") == 1
    assert [line["message"] for line in parts.lines] == ["a batch was forgotten"]


def test_results_for_held_calls_are_counted_and_logged_once() -> None:
    """One count and one line for each."""
    parts, seen = Parts(), Seen()
    for _ in range(2):
        telling(parts, seen).rejoins(Found((anchor(dropped=(3, 4)),)), frozenset())
    assert parts.value("stray_results_total", api="chat") == 2
    assert [line["message"] for line in parts.lines] == ["a result was dropped"] * 2


def test_waiting_is_not_the_proxys_time() -> None:
    """Also when what is waited for fails."""
    parts = Parts()
    with suppress(LookupError), telling(parts).waiting():
        parts.clock.now += 3
        raise LookupError
    assert parts.exchange.log.waited == 3


def test_a_proxy_tool_is_declared_by_the_configuration() -> None:
    """Its name is a label although the request does not declare it."""

    async def run(run: ToolRun) -> str:
        return ""

    parts = Parts(tools=Tools({"count": run}))
    telling(parts).call(Judged(ToolCall(CallId("x"), "count", "{}"), "{}", Owner.PROXY, ALLOWED), 0.0)
    assert parts.total("tool_calls_total", tool="count", owner="proxy") == 1


def test_turns_with_hidden_rounds() -> None:
    """Each is counted under the way it ended."""
    parts = Parts()
    telling(parts).continuation("text")
    assert parts.value("continuations_total", api="chat", end="text") == 1
