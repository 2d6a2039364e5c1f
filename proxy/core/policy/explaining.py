"""Explaining a decision: the verdict as it is always found, and beside it what every rule of the set did on the way.

The words are here too, so that everybody who shows an explanation says the same. Judging is not done here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Json, Object
from proxy.core.policy.comparing import Compared
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.rules import ResultRule, Rule
from proxy.core.policy.trail import Outcome, Step, Trail, not_for_request, unreached
from proxy.core.policy.verdicts import ResultVerdict, RuleName, Subject, Verdict

_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict, and every rule's step in the order in which rules are tried; of a wrapper the steps of each call in
    it, by the call's name."""

    verdict: Verdict
    steps: tuple[Step, ...]
    inner: tuple[tuple[str, tuple[Step, ...]], ...] = ()

    @property
    def all_steps(self) -> Iterator[Step]:
        yield from self.steps
        for _, steps in self.inner:
            yield from steps


@dataclass(frozen=True, slots=True)
class ResultExplanation:
    """What became of a result, and every result rule's step in the order in which they are tried."""

    verdict: ResultVerdict
    steps: tuple[Step, ...]


def explain(policies: PolicySet, facts: RequestFacts, subject: Subject) -> Generator[Consult, Reply, Explanation]:
    """The verdict on a call, and how it came about. Yields what judging yields."""
    trail = Trail()
    verdict = yield from policies.for_request(facts).judge(subject, trail=trail)
    rules = policies.call_rules
    if trail.inner:
        inner = tuple((tool, _whole(rules, below, facts)) for tool, below in trail.inner)
        return Explanation(verdict, (), inner)
    return Explanation(verdict, _whole(rules, trail, facts))


def explain_result(
    policies: PolicySet, facts: RequestFacts, subject: Subject, *, result: str, is_error: bool
) -> Generator[Consult, Reply, ResultExplanation]:
    """The same for a result of the call."""
    trail = Trail()
    chain = policies.for_request(facts)
    verdict = yield from chain.judge_result(subject, result=result, is_error=is_error, trail=trail)
    return ResultExplanation(verdict, _whole(policies.result_rules, trail, facts))


def _whole(rules: Sequence[Rule | ResultRule], trail: Trail, facts: RequestFacts) -> tuple[Step, ...]:
    """A step for every rule: as noted, or why there is none."""
    taken = {step.rule: step for step in trail.steps}
    return tuple(taken.get(rule.origin.name) or _untaken(rule, facts) for rule in rules)


def _untaken(rule: Rule | ResultRule, facts: RequestFacts) -> Step:
    return unreached(rule) if rule.guard.fits_request(facts) else not_for_request(rule, facts)


# ---------------------------------------------------------------- in words


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people. `outcome` is that of the step that it opens; None for any other line."""

    text: str
    outcome: Outcome | None = None


def lines_of(explanation: Explanation | ResultExplanation, *, all_rules: bool = True) -> Iterator[Line]:
    """The words of an explanation of either kind."""
    if isinstance(explanation, Explanation):
        return explanation_lines(explanation, all_rules=all_rules)
    return result_explanation_lines(explanation, all_rules=all_rules)


def explanation_lines(explanation: Explanation, *, all_rules: bool = True) -> Iterator[Line]:
    """The steps, and the decision behind them. Not of all rules: of those that are for the tool and were reached."""
    yield from step_lines(explanation.steps, all_rules=all_rules)
    for tool, steps in explanation.inner:
        yield Line(f"in it: {tool or 'a call without a name'}")
        yield from step_lines(steps, all_rules=all_rules)
    yield from verdict_lines(explanation.verdict)


def result_explanation_lines(explanation: ResultExplanation, *, all_rules: bool = True) -> Iterator[Line]:
    yield from step_lines(explanation.steps, all_rules=all_rules)
    verdict = explanation.verdict
    yield Line(f"result: {verdict.outcome}")
    yield from (Line(_INDENT + line) for line in verdict.text.splitlines())


def step_lines(steps: Sequence[Step], *, all_rules: bool = True) -> Iterator[Line]:
    if not all_rules:
        steps = [step for step in steps if _came_close(step)]
    width = max((len(_heading(step)) for step in steps), default=0)
    for step in steps:
        said = step.said
        if step.outcome is Outcome.SKIPPED and step.difference is not None:
            said = comparison(step.difference)
        heading = _heading(step).ljust(width)
        yield Line(f"{_INDENT}{step.outcome:<9} {heading}  {said}".rstrip(), step.outcome)
        if step.outcome not in (Outcome.SKIPPED, Outcome.UNREACHED):
            yield from (Line(f"{_INDENT}{'':<9} {_INDENT}{comparison(one)}") for one in step.compared)


def _came_close(step: Step) -> bool:
    if step.outcome is Outcome.SKIPPED:
        return step.difference is not None and step.difference.is_condition
    return step.outcome is not Outcome.UNREACHED


def _heading(step: Step) -> str:
    mode = ", shadow" if step.shadow else ""
    return f"{step.rule.policy}/{step.rule.rule} ({step.action}{mode})"


def comparison(one: Compared) -> str:
    """What was asked, what for, and what was found."""
    if one.about == "when":
        found = {True: "is true", False: "is false", None: "cannot be evaluated"}[one.holds]
        return f"when: {one.wanted} {found}" + (f": {one.found}" if one.found else "")
    if one.holds is None:
        return f"{one.about}: {one.found}"
    return f"{one.about}: {one.found} {'fits' if one.holds else 'does not fit'} {one.wanted}"


def verdict_lines(verdict: Verdict) -> Iterator[Line]:
    """The decision, and what comes of it."""
    by = f" by {verdict.policy}/{verdict.rule}" if verdict.rule else ", as no rule decided"
    yield Line(f"decision: {verdict.decision}{by}")
    if verdict.deferred:
        yield Line("surfaced when the others of its batch have their results")
    if verdict.text is not None:
        yield Line(f"arguments: {verdict.text}")
    if verdict.result is not None:
        yield Line(f"the model is told: {verdict.result}")
    if verdict.then != "continue":
        yield Line({"stop": "the turn ends there", "fail": "the client gets 403"}[verdict.then])
    for shadow in verdict.shadows:
        yield Line(f"in shadow mode: {shadow.decision} by {shadow.policy}/{shadow.rule}")


# ---------------------------------------------------------------- for machines


def object_of(explanation: Explanation | ResultExplanation) -> Object:
    """An explanation of either kind as a JSON object."""
    if isinstance(explanation, Explanation):
        return explanation_object(explanation)
    return result_explanation_object(explanation)


def explanation_object(explanation: Explanation) -> Object:
    """The same as a JSON object."""
    verdict = explanation.verdict
    return {
        **_named(RuleName(verdict.policy, verdict.rule)),
        "decision": str(verdict.decision),
        "args": verdict.text,
        "result": verdict.result,
        "then": str(verdict.then),
        "deferred": verdict.deferred,
        "failed": verdict.failed,
        "shadows": [{"policy": s.policy, "rule": s.rule, "decision": str(s.decision)} for s in verdict.shadows],
        "steps": _objects(explanation.steps),
        "inner": [{"tool": tool, "steps": _objects(steps)} for tool, steps in explanation.inner],
    }


def result_explanation_object(explanation: ResultExplanation) -> Object:
    verdict = explanation.verdict
    return {"outcome": str(verdict.outcome), "result": verdict.text, "steps": _objects(explanation.steps)}


def _objects(steps: Sequence[Step]) -> Json:
    return [
        {
            **_named(step.rule),
            "action": step.action,
            "shadow": step.shadow,
            "outcome": str(step.outcome),
            "said": step.said,
            "compared": [
                {"about": one.about, "wanted": one.wanted, "found": one.found, "holds": one.holds}
                for one in step.compared
            ],
        }
        for step in steps
    ]


def _named(rule: RuleName) -> Object:
    return {"policy": rule.policy, "rule": rule.rule}
