"""Judging calls that were recorded: by the same rules, and only as far as the record tells what they ask.

A record knows no headers, users, metadata, batches or schemas, and perhaps no arguments. A rule that asks for one of
them, of a call that it is for, raises NotKnownError. Rules in shadow mode decide nothing, and are left out.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from proxy.core.calls import RequestFacts, ToolCall
from proxy.core.policy.consults import (
    AskCode,
    AskCodeOfResult,
    AskPerson,
    AskService,
    Consult,
    CountCall,
    PersonSaid,
    Reply,
    Word,
)
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.expressions import RESULT_VARIABLES, Expression
from proxy.core.policy.failures import EvaluationError, NotKnownError
from proxy.core.policy.judging import Judgement, Setting, judge
from proxy.core.policy.matching import RequestMatch
from proxy.core.policy.names import NamedTool, is_parallel_wrapper
from proxy.core.policy.rules import Guard, ResultRule, Rule
from proxy.core.policy.schemas import DeclaredSchemas
from proxy.core.policy.scripted import settle
from proxy.core.policy.trail import Trail
from proxy.core.policy.verdicts import Decision, RuleName, Subject, Verdict
from proxy.core.policy.views import CallView
from proxy.core.policy.wrappers import calls_in_wrapper

NEVER_RECORDED = frozenset({"headers", "user", "metadata", "batch", "rawArgs", "schemas"})
_MOST_REQUESTS = 4096
_MOST_COUNTS = 20_000


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call as it was recorded, when it was, and what was decided of it then."""

    subject: Subject
    facts: RequestFacts
    time: float
    decision: str
    policy: str
    rule: str


class RecordedSet:
    """A set of policies for recorded calls, in the order of their times. Limits are counted anew, over the records."""

    def __init__(self, policies: PolicySet) -> None:
        self._default = policies.default_action
        self._rules = tuple(_without_headers(rule) for rule in policies.call_rules if not rule.origin.shadow)
        self._met: dict[tuple[str, str, str], tuple[Rule, ...]] = {}
        self._counts = RecordedCounts()
        self._answers: list[Reply] = []

    def judge(self, call: RecordedCall) -> Verdict:
        """Raises NotKnownError."""
        answers = self._answers = []

        def answer(asked: Consult) -> Reply:
            answers.append(self._answer(asked, call))
            return answers[-1]

        return settle(self._judgement(call, None), answer)

    def retrace(self, call: RecordedCall) -> Trail:
        """The trail of the call that was judged last; nothing is counted anew."""
        trail, answers = Trail(), iter(self._answers)
        settle(self._judgement(call, trail), lambda _: next(answers))
        return trail

    def _judgement(self, call: RecordedCall, trail: Trail | None) -> Judgement:
        facts = call.facts
        setting = Setting(facts, DeclaredSchemas(facts), self._default)
        return judge(self._rules_for(facts), call.subject, setting, trail=trail)

    def _rules_for(self, facts: RequestFacts) -> tuple[Rule, ...]:
        key = (facts.model, facts.api, facts.client)
        found = self._met.get(key)
        if found is None:
            if len(self._met) >= _MOST_REQUESTS:
                self._met.clear()
            found = tuple(rule for rule in self._rules if rule.guard.fits_request(facts))
            self._met[key] = found
        return found

    def _answer(self, asked: Consult, call: RecordedCall) -> Reply:
        match asked:
            case CountCall():
                if any(part.startswith("user=") for part in asked.key[2:]):
                    raise NotKnownError("user")
                return self._counts.count(asked, call.time)
            case AskPerson():
                same = (asked.rule.policy, asked.rule.rule) == (call.policy, call.rule)
                said = call.decision if same and call.decision in _SAID else Word.PENDING
                return PersonSaid(Word(said), "an-approval")
            case AskService():
                raise NotKnownError("ask")
            case AskCode() | AskCodeOfResult():
                raise NotKnownError("middleware")
            case _:
                assert_never(asked)


_SAID = frozenset({Decision.APPROVED, Decision.DENIED, Decision.PENDING})


R = TypeVar("R", Rule, ResultRule, Rule | ResultRule)


def _without_headers(rule: R) -> R:
    """The rule, with an expression in place of its globs of headers: it is asked of calls that all else fits."""
    if not any(match.headers for match in rule.guard.requests):
        return rule
    requests = tuple(
        RequestMatch(models=match.models, apis=match.apis, clients=match.clients) for match in rule.guard.requests
    )
    return replace(rule, guard=Guard(requests, rule.guard.calls, _READS_HEADERS))


_READS_HEADERS = Expression.compile("size(headers) >= 0")


class RecordedCounts:
    """Calls counted by the times of their records, as a store counts them; of very many keys the latest."""

    def __init__(self, most: int = _MOST_COUNTS) -> None:
        self._most = most
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def count(self, asked: CountCall, now: float) -> bool:
        times = self._times.setdefault(asked.key, deque())
        self._times.move_to_end(asked.key)
        while times and times[0] <= now - asked.window:
            times.popleft()
        if len(self._times) > self._most:
            self._times.popitem(last=False)
        if len(times) >= asked.limit:
            return False
        times.append(now)
        return True


class Sightings:
    """Which rules of a set are for no call that was recorded. Every rule is looked at by itself, also behind one that
    ends the chain, and in shadow mode; of a result rule what it says of the call. A rule that asks for what no record
    has may have been met."""

    def __init__(self, policies: PolicySet) -> None:
        rules: tuple[Rule | ResultRule, ...] = (*policies.call_rules, *policies.result_rules)
        self._unmet = {rule.origin.name: _without_headers(_of_call(rule)) for rule in rules}

    @property
    def unmet(self) -> tuple[RuleName, ...]:
        return tuple(self._unmet)

    def see(self, call: RecordedCall) -> None:
        if not self._unmet:
            return
        view = CallView(call.facts, call.subject)
        views = [view]
        if is_parallel_wrapper(view.subject.call.name):
            views = [CallView(call.facts, replace(call.subject, call=inner)) for inner in _inner(view)]
        for name, rule in list(self._unmet.items()):
            if rule.guard.fits_request(call.facts) and any(_may_be_for(rule.guard, one) for one in views):
                del self._unmet[name]


def _of_call(rule: Rule | ResultRule) -> Rule | ResultRule:
    """The rule, without an expression that reads a result."""
    when = rule.guard.when
    if when is None or when.variables.isdisjoint(RESULT_VARIABLES):
        return rule
    return replace(rule, guard=replace(rule.guard, when=None))


def _inner(view: CallView) -> Sequence[ToolCall]:
    try:
        return calls_in_wrapper(view)
    except NotKnownError:
        return ()


def _may_be_for(guard: Guard, view: CallView) -> bool:
    """Whether a rule is for a call, or might be: one that fails on it is."""
    if not guard.fits_call(view.tool, view.subject.owner, declared=view.declared):
        return False
    try:
        return not guard.has_conditions or view.fits(guard)
    except (EvaluationError, NotKnownError):
        return True


def names_tool(policies: PolicySet, tool: NamedTool) -> bool:
    """Whether some rule names a tool; one that is for all tools names none."""
    rules: tuple[Rule | ResultRule, ...] = (*policies.call_rules, *policies.result_rules)
    return any(
        any(match.tools is not None for match in rule.guard.calls) and rule.guard.fits_tool(tool) for rule in rules
    )
