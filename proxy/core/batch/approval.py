"""An approval: what a person is asked about one call, its states, what may happen in each, and what it is as bytes.

Nothing that a client or a model sends is an event here. An approval counts for one call with the same arguments of the
same tenant, once, and for so long; a denial stands for as long as an approval would have.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from proxy.core.batch.ledger import IllegalStepError
from proxy.core.jsontext import parse_own, render

VERSION = 1


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    EXPIRED = "expired"


class ApprovalEvent(StrEnum):
    APPROVE = "approve"  # a person says yes
    DENY = "deny"  # a person says no
    USE = "use"  # the call goes ahead
    RETURN = "return"  # it did not go ahead after all, since its turn was ended
    EXPIRE = "expire"  # its time is over


TRANSITIONS: dict[tuple[ApprovalState, ApprovalEvent], ApprovalState] = {
    (ApprovalState.PENDING, ApprovalEvent.APPROVE): ApprovalState.APPROVED,
    (ApprovalState.PENDING, ApprovalEvent.DENY): ApprovalState.DENIED,
    (ApprovalState.PENDING, ApprovalEvent.EXPIRE): ApprovalState.EXPIRED,
    (ApprovalState.APPROVED, ApprovalEvent.USE): ApprovalState.USED,
    (ApprovalState.APPROVED, ApprovalEvent.EXPIRE): ApprovalState.EXPIRED,
    (ApprovalState.USED, ApprovalEvent.RETURN): ApprovalState.APPROVED,
}
_ENDING = frozenset(state for state, event in TRANSITIONS if event is ApprovalEvent.EXPIRE)


@dataclass(frozen=True, slots=True)
class Approval:
    """`place` is where the store says which approval counts for the call. `arguments` is JSON text. `created` and
    `expires` are Unix seconds; a decision sets `expires` anew, `ttl` later."""

    id: str
    place: str
    tool: str
    arguments: str
    call_id: str
    api: str
    client: str
    policy: str
    rule: str
    message: str
    declared: bool
    created: float
    expires: float
    ttl: float
    state: ApprovalState = ApprovalState.PENDING
    note: str = ""


def step(approval: Approval, event: ApprovalEvent) -> Approval:
    """The approval in its next state. Raises IllegalStepError."""
    try:
        return replace(approval, state=TRANSITIONS[approval.state, event])
    except KeyError:
        raise IllegalStepError(f"an approval that is {approval.state} cannot {event}") from None


def as_of(approval: Approval, now: float) -> Approval:
    """The approval as it stands at a time: one whose time is over is expired."""
    if now >= approval.expires and approval.state in _ENDING:
        return step(approval, ApprovalEvent.EXPIRE)
    return approval


def counts(approval: Approval, now: float) -> bool:
    """Whether it says something of a call that is made now."""
    return now < approval.expires and approval.state is not ApprovalState.USED


def decided(approval: Approval, event: ApprovalEvent, *, note: str, now: float) -> Approval:
    """The approval once a person has decided. Raises IllegalStepError."""
    return replace(step(as_of(approval, now), event), note=note, expires=now + approval.ttl)


def used(approval: Approval, now: float) -> Approval:
    """The approval once its call goes ahead. Raises IllegalStepError."""
    return step(as_of(approval, now), ApprovalEvent.USE)


def returned(approval: Approval) -> Approval:
    """The approval once its call was kept back for another reason. Raises IllegalStepError."""
    return step(approval, ApprovalEvent.RETURN)


def render_approval(approval: Approval) -> bytes:
    return render({"v": VERSION, "approval": asdict(approval)})


def parse_approval(data: bytes) -> Approval:
    """Bytes to an approval. Raises ValueError for a form that this release does not know."""
    try:
        value = parse_own(data)
        if value["v"] != VERSION:
            raise ValueError(f"an approval of form {value['v']}, known is {VERSION}")
        fields = value["approval"]
        return Approval(**{**fields, "state": ApprovalState(fields["state"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no approval: {error}") from error
