"""A response that is read again: its calls as they were decided the first time, without a rule being asked."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from proxy.core.batch.record import CallRecord, ResponseRecord
from proxy.core.calls import Batch, ToolCall
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import Decision, Subject, Verdict


def recall(calls: Sequence[CallRecord], batch: Sequence[ToolCall]) -> list[CallRecord | None]:
    """The records of these calls; None for one that nothing is known of."""
    left = list(calls)
    found: list[CallRecord | None] = []
    for call in batch:
        record = next((r for r in left if (r.call.call_id, r.call.name) == (call.call_id, call.name)), None)
        found.append(record)
        if record is not None:
            left.remove(record)
    return found


def recalled_conclusion(record: ResponseRecord, batch: Sequence[ToolCall]) -> Conclusion:
    """How the turn ended. A call that nothing is known of is not shown."""
    found = recall(record.calls, batch)
    stages = tuple(None if known is None else known.stage for known in found)
    if record.said:
        return Conclusion(End.STOP, stages, record.said)
    return Conclusion(End.PASS if all(stage == 0 for stage in stages) else End.SPLIT, stages)


def recalled_ids(record: ResponseRecord, batch: Sequence[ToolCall]) -> list[str | None]:
    """The ids that the client was given."""
    return [known.given_id if known else None for known in recall(record.calls, batch)]


class RecalledJudge(Judge):
    """Says of each call what was decided of it. What has to be known of a call before that, and what it waits for,
    is as it was, so that events come in the same order and under the same numbers."""

    def __init__(self, judge: Judge, record: ResponseRecord) -> None:
        super().__init__(judge.chain, judge.facts, judge.tools)
        self._left = list(record.calls)

    @property
    def could_hold(self) -> bool:
        return True

    def judge(self, call: ToolCall, raw: str, batch: Batch | None) -> Generator[Consult, Reply, Judged]:
        yield from ()
        known = recall(self._left, [call])[0]
        if known is None:
            return Judged(call, raw, self.owner(call.name), Verdict(Decision.BLOCKED, result=""))
        self._left.remove(known)
        if known.stage is None:
            return Judged(call, raw, known.owner, Verdict(Decision.BLOCKED, result=known.result or ""))
        verdict = Verdict(Decision.ALLOWED, text=known.given, deferred=known.stage > 0)
        lanes = self.chain.lanes(Subject(call, known.owner, batch))
        renamed = known.given_id not in ("", known.call.call_id)
        return Judged(call, raw, known.owner, verdict, lanes, renamed=renamed)
