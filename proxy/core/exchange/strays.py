"""Results that are not a client's to give: of calls that it was never shown, and approvals of what a rule blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from proxy.core.batch.split import is_strong
from proxy.core.calls import CallId, Kind, Owner
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import Sent
from proxy.core.history import EntryKind
from proxy.core.policy.verdicts import Subject


def answered_ids(sent: Sent) -> list[str]:
    """The calls that an input has results for, as far as their ids tell one from every other."""
    found = (e.call_id for e in sent.entries if e.kind is EntryKind.RESULT and e.call_id)
    return [call_id for call_id in found if is_strong(call_id) or call_id.startswith("mcpr_")]


def strays(sent: Sent, held: Collection[str], *, judge: Judge) -> list[int]:
    """The entries of an input that are no client's to send. `held` are calls that were kept from it."""
    calls = {call.call_id: call for entry in sent.entries for call in entry.calls}
    found = []
    for entry in sent.entries:
        if entry.kind is not EntryKind.RESULT:
            continue
        call = calls.get(CallId(entry.call_id))
        if call is None:
            forged = entry.call_id in held
        else:
            approves = call.kind is Kind.APPROVAL and sent.values[entry.index].get("approve") is True
            forged = approves and judge.chain.recheck(Subject(call, Owner.UPSTREAM)).held
        if forged:
            found.append(entry.index)
    return found


def without(sent: Sent, indexes: Collection[int]) -> Sent:
    """An input less some of its entries."""
    left = [index for index in range(len(sent.values)) if index not in set(indexes)]
    entries = [replace(sent.entries[index], index=number) for number, index in enumerate(left)]
    return Sent([sent.raws[i] for i in left], [sent.values[i] for i in left], entries)
