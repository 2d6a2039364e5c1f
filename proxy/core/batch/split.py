"""Which calls of a batch a client sees, when, and under which ids. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from proxy.core.calls import ToolCall

_COUNTER = re.compile(r"[\w.\-/ ]*[A-Za-z_][:#.\-_]?\d{1,6}|[\w.\-/ ]+[:#]\d+")
_STRONG = 16


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a decided call stands: held back from the client, or to be surfaced, perhaps after others. `lanes` are
    the limits that apply to it: (whose, how many at a time)."""

    held: bool
    deferred: bool = False
    lanes: tuple[tuple[str, int], ...] = ()


def stages(batch: Sequence[Standing]) -> list[int | None]:
    """For each call when it is surfaced: 0 at once, 1 after stage 0 has its results, …; None: never.

    Deferred calls come last, together, or at once where there is nothing to wait for. A lane that takes only so
    many at a time puts the others off, in the model's order.
    """
    found: list[int | None] = [None] * len(batch)
    taken: dict[tuple[str, int], int] = {}
    for deferred in (False, True):
        floor = 1 + max((s for s in found if s is not None), default=-1) if deferred else 0
        for at, standing in enumerate(batch):
            if standing.held or standing.deferred is not deferred:
                continue
            stage = floor
            while any(taken.get((name, stage), 0) >= most for name, most in standing.lanes):
                stage += 1
            for name, _ in standing.lanes:
                taken[name, stage] = taken.get((name, stage), 0) + 1
            found[at] = stage
    return found


def is_weak_id(call: ToolCall) -> bool:
    """Whether an id may well come again: empty, short, or a name with a counter."""
    call_id = str(call.call_id)
    if len(call_id) < _STRONG:
        return True
    return bool(_COUNTER.fullmatch(call_id)) and (call.name in call_id or ":" in call_id or "#" in call_id)


def is_strong(name: str) -> bool:
    """Whether an id that is no call's can be told from every other."""
    return len(name) >= _STRONG


def given_ids(calls: Sequence[ToolCall], taken: Collection[str], fresh_id: Callable[[], str]) -> list[str]:
    """The ids that a client gets for the surfaced calls of a batch that enters the ledger: a call's own where it
    can be told from every other. `taken` are ids of the request's history and of the tenant's ledger."""
    found: list[str] = []
    for call in calls:
        if is_weak_id(call) or call.call_id in taken or call.call_id in found:
            found.append(fresh_id())
        else:
            found.append(str(call.call_id))
    return found
