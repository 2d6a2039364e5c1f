"""Replaying recorded calls: which of them a set of policies would decide otherwise than was recorded, or than another
set would.

Memory does not grow with the number of records: counts are kept for a bounded number of names, and examples for each
kind of difference alone. How a replay is shown is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.authoring.records import Lines, Progress, read_calls
from proxy.core.jsontext import Object
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.explaining import Line, step_lines
from proxy.core.policy.failures import NotKnownError
from proxy.core.policy.recorded import RecordedCall, RecordedSet
from proxy.core.policy.trail import Trail
from proxy.core.policy.verdicts import Verdict

_MOST_NAMES = 1000
_OTHER = "(other)"
_MOST_EXAMPLES = 3
_MOST_SHOWN = 200


class Decided(NamedTuple):
    """What was decided of a call, and by which rule."""

    decision: str
    policy: str
    rule: str

    def __str__(self) -> str:
        return f"{self.decision} by {self.policy}/{self.rule}" if self.rule else self.decision


class Flip(NamedTuple):
    """A difference of decisions. Both may be the same one, with other arguments or another result."""

    before: Decided
    after: Decided


@dataclass(frozen=True, slots=True)
class Example:
    """A call that is decided otherwise, and the trail of its new decision where that was wanted."""

    time: float
    call_id: str
    tool: str
    client: str
    args: str
    why: tuple[Line, ...]


@dataclass(slots=True)
class Replay:
    """What came of it. `undecidable` counts calls by what was not recorded."""

    calls: int = 0
    flipped: int = 0
    unreadable: int = 0
    undecidable: Counter[str] = field(default_factory=Counter)
    flips: Counter[Flip] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    clients: Counter[str] = field(default_factory=Counter)
    examples: dict[Flip, list[Example]] = field(default_factory=dict)

    @property
    def decided(self) -> int:
        return self.calls - self.undecidable.total()

    @property
    def is_well(self) -> bool:
        """Whether calls were decided, and all of them as before."""
        return bool(self.decided) and not self.flipped


def replay(
    paths: Iterable[str],
    policies: PolicySet,
    against: PolicySet | None,
    *,
    why: bool = False,
    progress: Progress = lambda _: None,
) -> Replay:
    """Judge all calls of the files again. Raises ConfigError for a file that cannot be read."""
    found, lines = Replay(), Lines()
    new = RecordedSet(policies)
    old = None if against is None else RecordedSet(against)
    for path in paths:
        for call in read_calls(path, lines, progress):
            found.calls += 1
            try:
                verdict = new.judge(call)
                before = None if old is None else old.judge(call)
            except NotKnownError as error:
                found.undecidable[error.what] += 1
                continue
            flip = _flip(call, before, verdict)
            if flip is not None:
                _note(found, call, flip, trail=new.retrace(call) if why and _wants_example(found, flip) else None)
    found.unreadable = lines.unreadable
    return found


def _flip(call: RecordedCall, before: Verdict | None, after: Verdict) -> Flip | None:
    """The difference between two verdicts, or between what was recorded and a verdict."""
    if before is None:
        if call.decision == after.decision:
            return None
        return Flip(Decided(call.decision, call.policy, call.rule), _decided(after))
    if (before.decision, before.text, before.result, before.then) == (
        after.decision,
        after.text,
        after.result,
        after.then,
    ):
        return None
    return Flip(_decided(before), _decided(after))


def _decided(verdict: Verdict) -> Decided:
    return Decided(str(verdict.decision), verdict.policy, verdict.rule)


def _note(found: Replay, call: RecordedCall, flip: Flip, *, trail: Trail | None) -> None:
    found.flipped += 1
    found.flips[flip] += 1
    subject = call.subject
    _count(found.tools, subject.call.name)
    _count(found.clients, call.facts.client)
    if _wants_example(found, flip):
        shown = "" if "args" in call.facts.unknown else _cut(subject.call.text)
        lines = () if trail is None else tuple(step_lines(trail.steps, all_rules=False))
        example = Example(call.time, str(subject.call.call_id), subject.call.name, call.facts.client, shown, lines)
        found.examples.setdefault(flip, []).append(example)


def _wants_example(found: Replay, flip: Flip) -> bool:
    return len(found.examples.get(flip, ())) < _MOST_EXAMPLES


def _count(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < _MOST_NAMES else _OTHER] += 1


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def replay_object(found: Replay) -> Object:
    """The replay as a JSON object."""
    return {
        "calls": found.calls,
        "decided": found.decided,
        "flipped": found.flipped,
        "unreadable": found.unreadable,
        "undecidable": dict(found.undecidable.most_common()),
        "flips": [
            {
                "before": flip.before._asdict(),
                "after": flip.after._asdict(),
                "count": count,
                "examples": [_example(example) for example in found.examples.get(flip, ())],
            }
            for flip, count in found.flips.most_common()
        ],
        "tools": dict(found.tools.most_common()),
        "clients": dict(found.clients.most_common()),
    }


def _example(example: Example) -> Object:
    return {
        "time": example.time,
        "callId": example.call_id,
        "tool": example.tool,
        "client": example.client,
        "args": example.args,
        "why": [line.text.strip() for line in example.why],
    }
