"""The policy engine's front: a set of policies, and the chain of its rules that one request meets.

A set is immutable and safe to share. A chain belongs to one request: it leaves out the rules that the request
alone rules out, and answers what may be asked of the rest. No rule is written or compiled here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from functools import cached_property

from proxy.core.calls import Owner, RequestFacts
from proxy.core.policy.consults import Consult, CountCall, Reply
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.judging import Judgement, Setting, judge
from proxy.core.policy.names import NamedTool, is_parallel_wrapper
from proxy.core.policy.results import ResultJudgement, judge_result
from proxy.core.policy.rules import (
    Allow,
    Block,
    Guard,
    Hide,
    LaneRule,
    Middleware,
    RequireApproval,
    ResultRule,
    Rule,
    Validate,
)
from proxy.core.policy.schemas import DeclaredSchemas
from proxy.core.policy.trail import Trail
from proxy.core.policy.verdicts import (
    Decision,
    DefaultAction,
    Lane,
    Needs,
    ResultOutcome,
    ResultVerdict,
    RuleName,
    Shadow,
    Subject,
    Then,
    Verdict,
)
from proxy.core.policy.views import CallView, is_declared

__all__ = [
    "Chain",
    "Consult",
    "CountCall",
    "Decision",
    "DefaultAction",
    "Judgement",
    "Lane",
    "Needs",
    "PolicySet",
    "ResultOutcome",
    "ResultVerdict",
    "RuleName",
    "Shadow",
    "Subject",
    "Then",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules of calls, of results, and lanes. Those that hide come first: a hidden tool is hidden, come what may."""

    calls: tuple[Rule, ...]
    results: tuple[ResultRule, ...]
    lanes: tuple[LaneRule, ...]

    @property
    def guards(self) -> list[Guard]:
        return [
            *(rule.guard for rule in self.calls),
            *(rule.guard for rule in self.results),
            *(lane.guard for lane in self.lanes),
        ]

    def met_by(self, facts: RequestFacts) -> _Rules:
        return _Rules(
            tuple(rule for rule in self.calls if rule.guard.fits_request(facts)),
            tuple(rule for rule in self.results if rule.guard.fits_request(facts)),
            tuple(rule for rule in self.lanes if rule.guard.fits_request(facts)),
        )


class PolicySet:
    """`policies` and `rules` are names in their order; `digest` tells one set of documents from another."""

    __slots__ = ("_for_all_requests", "_rules", "default_action", "digest", "policies", "rules")

    def __init__(
        self,
        rules: tuple[Rule | ResultRule, ...],
        lanes: tuple[LaneRule, ...],
        *,
        policies: tuple[str, ...],
        default_action: DefaultAction,
        digest: str,
    ) -> None:
        calls = [rule for rule in rules if isinstance(rule, Rule)]
        calls.sort(key=lambda rule: not isinstance(rule.action, Hide))
        results = tuple(rule for rule in rules if isinstance(rule, ResultRule))
        self._rules = _Rules(tuple(calls), results, lanes)
        self._for_all_requests = all(guard.is_for_all_requests for guard in self._rules.guards)
        self.rules = tuple(dict.fromkeys(rule.origin.name for rule in rules))
        self.policies = policies
        self.default_action = default_action
        self.digest = digest

    def __len__(self) -> int:
        return len(self.policies)

    def __bool__(self) -> bool:
        """A set is there, also when it is empty; ask `is_empty`."""
        return True

    @property
    def rules_count(self) -> int:
        return len(self.rules)

    @property
    def is_empty(self) -> bool:
        """Whether nothing in this set could ever touch a request."""
        return not self.rules and not self._rules.lanes and self.default_action is DefaultAction.ALLOW

    @property
    def middleware(self) -> frozenset[str]:
        """The Python objects that rules name."""
        rules: tuple[Rule | ResultRule, ...] = (*self._rules.calls, *self._rules.results)
        return frozenset(rule.action.target for rule in rules if isinstance(rule.action, Middleware))

    @property
    def asks_people(self) -> bool:
        """Whether a call could wait for a person."""
        return any(isinstance(r.action, RequireApproval) and not r.origin.shadow for r in self._rules.calls)

    @property
    def call_rules(self) -> tuple[Rule, ...]:
        """The rules of calls in the order in which they are tried."""
        return self._rules.calls

    @property
    def result_rules(self) -> tuple[ResultRule, ...]:
        """The rules of results in the order in which they are tried."""
        return self._rules.results[::-1]

    def for_request(self, facts: RequestFacts) -> Chain:
        met = self._rules if self._for_all_requests else self._rules.met_by(facts)
        return Chain(met, Setting(facts, DeclaredSchemas(facts), self.default_action))


class Chain:
    """The rules that one request meets."""

    def __init__(self, rules: _Rules, setting: Setting) -> None:
        self._rules = rules
        self._setting = setting

    @cached_property
    def could_hold(self) -> bool:
        """Whether an enforced rule, or the default action, could hold, change or defer some call."""
        if self._setting.default is DefaultAction.BLOCK or self._rules.lanes:
            return True
        return any(rule.could_hold for rule in self._rules.calls)

    @cached_property
    def ends_turns(self) -> bool:
        """Whether an enforced rule has `then: stop` or `fail`."""
        return any(
            isinstance(rule.action, Block) and rule.action.then is not Then.CONTINUE and not rule.origin.shadow
            for rule in self._rules.calls
        )

    @property
    def has_result_rules(self) -> bool:
        return bool(self._rules.results)

    @property
    def asks_of_results(self) -> bool:
        """Whether what becomes of a result may have to be asked of somebody."""
        return any(isinstance(rule.action, Middleware) for rule in self._rules.results)

    def hidden_by(self, name: str, namespace: str = "") -> RuleName | None:
        """The enforced rule that hides a tool from this request; `namespace` may be the label of its MCP server."""
        tool = NamedTool.of(name, namespace)
        for rule in self._rules.calls:
            if not isinstance(rule.action, Hide):
                break
            if not rule.origin.shadow and rule.guard.fits_tool(tool):
                return rule.origin.name
        return None

    def needs(self, name: str, owner: Owner, namespace: str = "") -> Needs:
        """The least that must be known of a call by this name before it can be judged."""
        needs = Needs.NAME
        wrapper = is_parallel_wrapper(name)
        if wrapper and (self._rules.calls or self._setting.default is DefaultAction.BLOCK):
            needs = Needs.ARGUMENTS
        tool = NamedTool.of(name, namespace)
        declared = is_declared(tool, owner, self._setting.facts)
        for lane in self._rules.lanes:
            if wrapper or lane.guard.fits_call(tool, owner, declared=declared):
                needs = max(needs, lane.guard.needs)
        for rule in self._rules.calls:
            if wrapper or rule.guard.fits_call(tool, owner, declared=declared):
                needs = max(needs, rule.needs)
                if rule.always_ends and not wrapper:
                    break
        return needs

    def may_hold_upstream(self, label: str, names: Collection[str] | None) -> bool:
        """Whether a call of an MCP server that the upstream asks could be held, when it may have any of these names
        (none given: any name at all). Where that cannot be told it could."""
        if not names:
            return self._may_hold(lambda guard: guard.may_fit_server(label), lambda guard: guard.fits_server(label))
        return any(self._may_hold_tool(NamedTool.of(name, label)) for name in names)

    def _may_hold_tool(self, tool: NamedTool) -> bool:
        def fits(guard: Guard) -> bool:
            return guard.fits_call(tool, Owner.UPSTREAM, declared=True)

        return self._may_hold(fits, fits)

    def _may_hold(self, may_fit: Callable[[Guard], bool], fits: Callable[[Guard], bool]) -> bool:
        """Whether the upstream's calls for which rules fit in this way could be held; what a rule that always ends lets
        go ahead reaches no other."""
        for rule in self._rules.calls:
            if rule.could_hold_upstream and may_fit(rule.guard):
                return True
            if rule.always_ends and fits(rule.guard):
                return False
        return self._setting.default is DefaultAction.BLOCK

    def judge(self, subject: Subject, *, trail: Trail | None = None) -> Judgement:
        """The verdict on a call; yields only for what the world must say (`limit`, `ask`, `middleware`,
        `requireApproval`)."""
        return judge(self._rules.calls, subject, self._setting, trail=trail)

    def recheck(self, subject: Subject) -> Verdict:
        """The verdict on a held call that is about to run: `allow`, `block`, `hide`, `validate` and the default action
        are looked at again; nothing is counted, changed or answered, and nothing is noted of shadow rules."""
        rules = [rule for rule in self._rules.calls if isinstance(rule.action, _RECHECKED) and not rule.origin.shadow]
        return _without_consults(judge(rules, subject, self._setting))

    def lanes(self, subject: Subject) -> tuple[Lane, ...]:
        """The limits on calls at a time that a call falls under; a condition that cannot be judged counts as met. What
        the upstream runs is never put off, and falls under none."""
        if not self._rules.lanes or subject.owner is Owner.UPSTREAM:
            return ()
        view = CallView(self._setting.facts, subject)
        return tuple(Lane(lane.policy, lane.most) for lane in self._rules.lanes if _falls_under(lane, view))

    def judge_result(
        self, subject: Subject, *, result: str, is_error: bool, trail: Trail | None = None
    ) -> ResultJudgement:
        """What the model sees of a result; yields for `middleware` alone. The call of a result whose call is not known
        has an empty name; it meets every result rule, whatever its `match` says."""
        if not self._rules.results:
            return ResultVerdict(result, ResultOutcome.OK)
        view = CallView(self._setting.facts, subject, result=result, isError=is_error)
        return (yield from judge_result(self._rules.results, view, result, trail=trail))


_RECHECKED = (Allow, Block, Hide, Validate)


def _without_consults(judgement: Generator[Consult, Reply, Verdict]) -> Verdict:
    try:
        next(judgement)
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict
    raise AssertionError("a recheck asks nothing of the world")


def _falls_under(lane: LaneRule, view: CallView) -> bool:
    if not lane.guard.fits_call(view.tool, view.subject.owner, declared=view.declared):
        return False
    try:
        return view.fits(lane.guard)
    except EvaluationError:
        return True
