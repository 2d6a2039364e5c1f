"""Approvals: their states, and what each may become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.batch.approval import (
    TRANSITIONS,
    Approval,
    ApprovalEvent,
    ApprovalState,
    as_of,
    counts,
    decided,
    parse_approval,
    render_approval,
    returned,
    step,
    used,
)
from proxy.core.batch.ledger import IllegalStepError

PENDING = Approval(
    id="apr_1",
    place="approval-call/t/x",
    tool="pay",
    arguments='{"amount":10000000000000000000001,"to":"é\\ud800"}',
    call_id="call_1",
    api="chat",
    client="team",
    policy="p",
    rule="r",
    message="Ask first.",
    declared=True,
    created=1000.0,
    expires=1060.0,
    ttl=60.0,
)
APPROVED = decided(PENDING, ApprovalEvent.APPROVE, note="fine", now=1030.0)
DENIED = decided(PENDING, ApprovalEvent.DENY, note="no", now=1030.0)
USED = used(APPROVED, 1040.0)


@pytest.mark.parametrize("state", ApprovalState)
@pytest.mark.parametrize("event", ApprovalEvent)
def test_every_state_meets_every_event(state: ApprovalState, event: ApprovalEvent) -> None:
    """What the table has happens, everything else is refused."""
    approval = replace(PENDING, state=state)
    if (state, event) in TRANSITIONS:
        assert step(approval, event) == replace(approval, state=TRANSITIONS[state, event])
    else:
        with pytest.raises(IllegalStepError, match=f"{state} cannot {event}"):
            step(approval, event)


def test_a_decision_sets_the_time_anew() -> None:
    """An approval counts for as long as a question stands, from the decision on."""
    assert (APPROVED.state, APPROVED.note, APPROVED.expires) == (ApprovalState.APPROVED, "fine", 1090.0)
    assert (DENIED.state, DENIED.note, DENIED.expires) == (ApprovalState.DENIED, "no", 1090.0)


def test_time_runs_out() -> None:
    """What is pending or approved expires; a denial and what was used stay what they are."""
    assert as_of(PENDING, 1059.9) is PENDING
    assert as_of(PENDING, 1060.0).state is ApprovalState.EXPIRED
    assert as_of(APPROVED, 1090.0).state is ApprovalState.EXPIRED
    assert [as_of(one, 9999.0).state for one in (DENIED, USED)] == [ApprovalState.DENIED, ApprovalState.USED]


@pytest.mark.parametrize(
    ("approval", "now", "says"),
    [
        (PENDING, 1059.9, True),
        (PENDING, 1060.0, False),
        (APPROVED, 1089.9, True),
        (APPROVED, 1090.0, False),
        (DENIED, 1089.9, True),
        (DENIED, 1090.0, False),
        (USED, 1041.0, False),
        (returned(USED), 1041.0, True),
    ],
)
def test_what_counts_for_a_call(approval: Approval, now: float, says: bool) -> None:
    """Neither what was used nor what has expired says anything of a call that is made now."""
    assert counts(approval, now) is says


@pytest.mark.parametrize("event", [ApprovalEvent.APPROVE, ApprovalEvent.DENY])
def test_what_is_over_is_not_decided(event: ApprovalEvent) -> None:
    """One that has expired, or is decided, is not decided again; an approval that has expired is not used."""
    for approval, now in ((PENDING, 1060.0), (APPROVED, 1031.0), (DENIED, 1031.0), (USED, 1041.0)):
        with pytest.raises(IllegalStepError):
            decided(approval, event, note="", now=now)
    with pytest.raises(IllegalStepError):
        used(APPROVED, 1090.0)


@pytest.mark.parametrize("approval", [PENDING, APPROVED, DENIED, USED])
def test_bytes_and_back(approval: Approval) -> None:
    """What is kept comes back as it was, wide numbers and half characters of its arguments too."""
    assert parse_approval(render_approval(approval)) == approval


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "Expecting"),
        (b"[]", "no approval"),
        (b"{}", "no approval"),
        (b'{"v":2,"approval":{}}', "form 2"),
        (b'{"v":1,"approval":{"id":"x","state":"pending"}}', "no approval"),
        (b'{"v":1,"approval":{"state":"maybe"}}', "maybe"),
    ],
)
def test_other_forms_are_refused(data: bytes, why: str) -> None:
    """A form of another release is no approval."""
    with pytest.raises(ValueError, match=why):
        parse_approval(data)
