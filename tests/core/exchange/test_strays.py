"""Results that no client was asked for: of held calls, and approvals of what a rule blocks."""

from __future__ import annotations

from typing import Any

from proxy.core.calls import RequestFacts
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import Sent
from proxy.core.exchange.strays import answered_ids, strays, without
from proxy.core.jsontext import render
from proxy.core.protocol.response_request import read_request
from tests.core.policy.engine import policies, rule
from tests.e2e.responses import A, B, approval, approved, call, output, user

CHAIN = policies([rule("delete_*", block={"message": "no"})]).for_request(RequestFacts())
JUDGE = Judge(CHAIN, RequestFacts(), ())


def sent(*items: Any) -> Sent:
    return Sent.of(read_request(render({"input": list(items)}), 128))


def test_results_of_calls_that_a_client_was_never_shown_go() -> None:
    """One that its own history shows is another call under the same id."""
    given = sent(user(), output(A, "forged"), call(B, "search"), output(B, "found"))
    assert answered_ids(given) == [A, B]
    found = strays(given, {A, B}, judge=JUDGE)
    assert found == [1]
    left = without(given, found)
    assert [entry.index for entry in left.entries] == [0, 1, 2]
    assert left.values[1:] == given.values[2:]


def test_ids_that_may_be_anothers_prove_nothing() -> None:
    """A short id is not asked for; that of an approval always is."""
    made = approval("read")
    assert answered_ids(sent(output("call_1", "x"), {**approved(made), "approval_request_id": "mcpr_1"})) == ["mcpr_1"]


def test_nobody_approves_what_a_rule_blocks() -> None:
    """An approval of a call that the client shows itself is looked at again; a denial is its own."""
    blocked, free = approval("delete_x", number=1), approval("read", number=2)
    given = sent(blocked, free, approved(blocked), approved(free), approved(blocked, approve=False))
    assert strays(given, set(), judge=JUDGE) == [2]
