"""Judging the calls of one request: whose they are, what may be decided when, and how a decided batch is sorted.

Both wires, and both ways to answer (in one piece, and as a stream), come here for every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from proxy.core.batch.split import Standing, stages
from proxy.core.calls import PARALLEL_WRAPPER, Batch, Kind, Owner, RequestFacts, ToolCall, run_name
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.decide import Chain
from proxy.core.policy.verdicts import Lane, Needs, Subject, Then, Verdict
from proxy.errors import UpstreamError


@dataclass(frozen=True, slots=True)
class Judged:
    """A decided call. `raw` is it as it stands in its message; `runs` says that a proxy tool has to answer it,
    `approves` that the upstream asked for an approval which the proxy gives in the client's place, `renamed` whether
    the client knows the call by another id (None: that is not settled yet)."""

    call: ToolCall
    raw: str
    owner: Owner
    verdict: Verdict
    lanes: tuple[Lane, ...] = ()
    approves: bool = False
    renamed: bool | None = None

    @property
    def runs(self) -> bool:
        return self.owner is Owner.PROXY and not self.verdict.held

    @property
    def held(self) -> bool:
        return self.verdict.held or self.runs or self.approves

    @property
    def result(self) -> str | None:
        """The result of a held call, as far as it is known already; that of an approved one has no text."""
        return self.verdict.result if self.verdict.held else "" if self.approves else None

    @property
    def text(self) -> str:
        """The arguments that the call's owner gets."""
        return self.call.text if self.verdict.text is None else self.verdict.text


class Judge:
    """The rules and owners of one request. `approves(server label, tool)` says whether an approval that the upstream
    asks for is the proxy's to give, and not the client's."""

    def __init__(
        self,
        chain: Chain,
        facts: RequestFacts,
        tools: Collection[str],
        *,
        approves: Callable[[str, str], bool] = lambda _label, _name: False,
    ) -> None:
        self.chain = chain
        self.facts = facts
        self.tools = tools
        self._approves = approves

    @property
    def could_hold(self) -> bool:
        """Whether any call of this request could be held, changed or put off."""
        return self.chain.could_hold or bool(self.tools)

    @property
    def ends_turns(self) -> bool:
        """Whether a rule could end the turn, so that no call may go before its batch is decided."""
        return self.chain.ends_turns

    def owner(self, name: str, *, namespace: str = "", kind: Kind = Kind.FUNCTION) -> Owner:
        """A proxy tool's calls are the proxy's, unless the request declares a tool of that name."""
        if kind is Kind.APPROVAL:
            return Owner.UPSTREAM
        if kind is Kind.ACTION or namespace or name in self.facts.declared:
            return Owner.CLIENT
        plain = run_name(name)
        return Owner.PROXY if plain in self.tools and plain not in self.facts.declared else Owner.CLIENT

    def needs(self, name: str, *, namespace: str = "", kind: Kind = Kind.FUNCTION) -> Needs:
        """What has to be known of a call by this name before it can be decided."""
        if run_name(name) == PARALLEL_WRAPPER:
            return Needs.BATCH
        return self.chain.needs(name, self.owner(name, namespace=namespace, kind=kind), namespace)

    def judge(self, call: ToolCall, raw: str, batch: Batch | None) -> Generator[Consult, Reply, Judged]:
        """Decide a call. Yields what has to be asked of the world and is sent the answer."""
        subject = Subject(call, self.owner(call.name, namespace=call.namespace, kind=call.kind), batch)
        verdict = yield from self.chain.judge(subject)
        approves = call.kind is Kind.APPROVAL and not verdict.held and self._approves(call.namespace, call.name)
        return Judged(call, raw, subject.owner, verdict, self.chain.lanes(subject), approves)


def check_approvals(batch: Sequence[Judged]) -> None:
    """One approval is asked for under one id: else nobody can say which of two an answer is for. Raises
    UpstreamError."""
    ids = [judged.call.call_id for judged in batch if judged.call.kind is Kind.APPROVAL]
    if len(set(ids)) != len(ids):
        raise UpstreamError("Two approvals are asked for under one id.", kind="protocol")


class End(Enum):
    """How the turn of one choice ends, or goes on."""

    PASS = auto()  # every call, if any, is surfaced now
    SPLIT = auto()  # some are surfaced, others held or put off
    CONTINUE = auto()  # every call is held: the upstream is asked again
    STOP = auto()  # a rule ends the turn: its message is the text
    FAIL = auto()  # a rule fails the request
    CUT = auto()  # the upstream cut the turn short: nothing runs, nothing is continued
    CLOSED = auto()  # calls came although the last call of the turn allowed none: they are dropped


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`stages` says for each call when it is surfaced (None: it is not)."""

    end: End
    stages: tuple[int | None, ...]
    message: str = ""


def conclude(batch: Sequence[Judged], *, cut: bool, closing: bool, denied: int, stop_after: int) -> Conclusion:
    """Sort a decided batch. `denied` calls in a row were blocked before it came; `closing`: no calls were allowed."""
    nothing = (None,) * len(batch)
    if cut:
        return Conclusion(End.CUT, tuple(None if j.held else 0 for j in batch))
    if closing and batch:
        return Conclusion(End.CLOSED, nothing)
    for then, end in ((Then.FAIL, End.FAIL), (Then.STOP, End.STOP)):
        for judged in batch:
            if judged.verdict.held and judged.verdict.then is then:
                return Conclusion(end, nothing, judged.verdict.message)
    blocked = next((j for j in batch if is_blocked(j)), None)
    if blocked and denied >= stop_after:
        return Conclusion(End.STOP, nothing, blocked.verdict.message)
    found = tuple(stages([_standing(j) for j in batch]))
    if all(stage == 0 for stage in found):
        return Conclusion(End.PASS, found)
    return Conclusion(End.CONTINUE if all(stage is None for stage in found) else End.SPLIT, found)


def without_continuation(conclusion: Conclusion, batch: Sequence[Judged], *, otherwise: str) -> Conclusion:
    """The end of a turn that cannot go on: where every call was held, it ends with a rule's word, or `otherwise`."""
    if conclusion.end is not End.CONTINUE:
        return conclusion
    message = next((j.verdict.message for j in batch if j.verdict.message), otherwise)
    return Conclusion(End.STOP, conclusion.stages, message)


def is_blocked(judged: Judged) -> bool:
    """Whether a rule refused the call (an answer of a rule is no refusal)."""
    return judged.verdict.decision in ("blocked", "denied", "pending")


def _standing(judged: Judged) -> Standing:
    lanes = tuple((lane.policy, lane.max_parallel) for lane in judged.lanes)
    return Standing(judged.held, judged.verdict.deferred, lanes)


def batch_kind(batch: Sequence[Judged]) -> str:
    """The label of a batch: single, parallel, mixed or held."""
    held = sum(j.held for j in batch)
    if held == len(batch):
        return "held"
    if held:
        return "mixed"
    return "single" if len(batch) == 1 else "parallel"


Ids = Callable[[], str]
"""Gives a fresh id for a call."""
