"""The trail of one call: which rules it met, what each compared, what it did and why.

Whoever judges notes on a trail when there is one (`judge`, `judge_result`); nothing is decided here, and nothing is
decided otherwise because of a trail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Object
from proxy.core.policy.comparing import Compared, compared_with_call, compared_with_request, shown
from proxy.core.policy.effects import Change, Deferral, Effect, End
from proxy.core.policy.rewriting import Rewrite
from proxy.core.policy.rules import (
    Limit,
    Redact,
    Replace,
    RequireApproval,
    ResultRule,
    Rule,
    Truncate,
    Validate,
    Withhold,
)
from proxy.core.policy.values import ABSENT, Found, same
from proxy.core.policy.verdicts import Decision, ResultOutcome, RuleName
from proxy.core.policy.views import CallView

_MOST_CHANGES = 20


class Outcome(StrEnum):
    """What came of a rule."""

    SKIPPED = "skipped"
    """It is not for this request, or not for this call."""
    PASSED = "passed"
    """It is for the call, and found nothing to do."""
    CHANGED = "changed"
    DEFERRED = "deferred"
    APPROVED = "approved"
    ENDED = "ended"
    FAILED = "failed"
    """It could not be evaluated."""
    UNREACHED = "unreached"
    """The chain had ended before."""


ACTED = frozenset({Outcome.CHANGED, Outcome.DEFERRED, Outcome.APPROVED, Outcome.ENDED})


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule compared, and what came of it. `said` is for people; `shadow`: it is not applied."""

    rule: RuleName
    action: str
    shadow: bool
    outcome: Outcome
    compared: tuple[Compared, ...] = ()
    said: str = ""

    @property
    def difference(self) -> Compared | None:
        """What did not hold, or could not be told."""
        return next((one for one in self.compared if not one.holds), None)


@dataclass(slots=True)
class Trail:
    """Steps in the order in which they were taken; of a wrapper, the trails of the calls in it."""

    steps: list[Step] = field(default_factory=list)
    inner: list[tuple[str, Trail]] = field(default_factory=list)

    def below(self, tool: str) -> Trail:
        """The trail of a call within this one."""
        trail = Trail()
        self.inner.append((tool, trail))
        return trail

    # ---------------------------------------------------------------- noted while a call is judged

    def skipped(self, rule: Rule | ResultRule, view: CallView) -> None:
        """Something that the rule wants does not hold."""
        self._add(rule, Outcome.SKIPPED, tuple(compared_with_call(rule.guard, view)))

    def silenced(self, rule: Rule) -> None:
        """A rule before it, of the same policy in shadow mode, would have ended the chain."""
        self._add(rule, Outcome.UNREACHED, (), said="a shadow rule of its policy would have ended the chain")

    def failed(self, rule: Rule | ResultRule, view: CallView, error: Exception) -> None:
        """The rule could not be evaluated."""
        done = "the rule is skipped" if rule.origin.ignores_errors else "so the call is blocked"
        if isinstance(rule, ResultRule) and not rule.origin.ignores_errors:
            done = "so the result is withheld"
        self._add(rule, Outcome.FAILED, tuple(compared_with_call(rule.guard, view)), said=f"{error}; {done}")

    def did(self, rule: Rule, view: CallView, effect: Effect) -> None:
        """The rule is for the call, and this is its effect. The call is as the rule found it."""
        compared = tuple(compared_with_call(rule.guard, view))
        match effect:
            case End():
                self._add(rule, Outcome.ENDED, compared, said=_end(effect))
            case Change():
                self._add(rule, Outcome.CHANGED, compared, said=_changes(view.arguments(), effect.arguments))
            case Deferral():
                self._add(
                    rule, Outcome.DEFERRED, compared, said="surfaced when the others of its batch have their results"
                )
            case None if isinstance(rule.action, RequireApproval):
                self._add(rule, Outcome.APPROVED, compared, said="a person approved it")
            case None:
                self._add(rule, Outcome.PASSED, compared, said=_nothing(rule))

    def did_to_result(self, rule: ResultRule, view: CallView, outcome: ResultOutcome) -> None:
        """The rule is for the result, and did this to it."""
        compared = tuple(compared_with_call(rule.guard, view)) if view.tool.name else ()
        if outcome is not ResultOutcome.OK:
            self._add(rule, Outcome.CHANGED, compared, said=str(outcome))
        elif all(one.holds for one in compared):
            self._add(rule, Outcome.PASSED, compared, said="there is nothing to change")
        else:
            self._add(rule, Outcome.SKIPPED, compared)

    def _add(
        self, rule: Rule | ResultRule, outcome: Outcome, compared: tuple[Compared, ...], *, said: str = ""
    ) -> None:
        self.steps.append(_step(rule, outcome, compared, said=said))


def not_for_request(rule: Rule | ResultRule, facts: RequestFacts) -> Step:
    """The step of a rule that a request leaves out."""
    return _step(rule, Outcome.SKIPPED, tuple(compared_with_request(rule.guard, facts)))


def unreached(rule: Rule | ResultRule) -> Step:
    """The step of a rule that a call did not come to."""
    return _step(rule, Outcome.UNREACHED, (), said="the chain had ended")


def _step(rule: Rule | ResultRule, outcome: Outcome, compared: tuple[Compared, ...], *, said: str = "") -> Step:
    return Step(rule.origin.name, action_name(rule), rule.origin.shadow, outcome, compared, said)


_RESULT_ACTIONS = {Redact: "redact", Replace: "replace", Truncate: "truncate", Withhold: "block"}


def action_name(rule: Rule | ResultRule) -> str:
    """The rule's action as its document spells it."""
    if isinstance(rule, ResultRule) and type(rule.action) in _RESULT_ACTIONS:
        return f"result.{_RESULT_ACTIONS[type(rule.action)]}"
    name = type(rule.action).__name__
    return name[0].lower() + name[1:]


# ---------------------------------------------------------------- in words


def _end(end: End) -> str:
    if end.decision is Decision.ALLOWED:
        return str(end.decision)
    return f"{end.decision}: {end.message or end.result}"


def _nothing(rule: Rule) -> str:
    match rule.action:
        case Limit(most=most):
            return f"within the limit of {most}"
        case Validate():
            return "the arguments fit"
        case Rewrite():
            return "there is nothing to change"
        case _:
            return "it passes the call on"


def _changes(old: Object, new: Object) -> str:
    found = list(_differences(old, new, ()))
    more = [f"and {len(found) - _MOST_CHANGES} more"] if len(found) > _MOST_CHANGES else []
    return "; ".join(
        [f"{'.'.join(path) or 'args'}: {shown(a)} → {shown(b)}" for path, a, b in found[:_MOST_CHANGES]] + more
    )


def _differences(old: Found, new: Found, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Found, Found]]:
    """Where two values differ, as deep as both are objects."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _differences(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
    elif old is ABSENT or new is ABSENT or not same(old, new):
        yield path, old, new
