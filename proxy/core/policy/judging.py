"""Judging one call by a list of rules, from the outermost in.

A judgement is a generator: it yields what it must ask of the world (may one more call be counted?) and is sent
the answer; all else is decided without a yield. Rules in shadow mode are judged in their places, and what they
decide is noted and not applied. Which rules a request meets is not known here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Object
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.names import fold, is_parallel_wrapper
from proxy.core.policy.rewriting import Rewrite
from proxy.core.policy.rules import Allow, Answer, Block, Defer, Hide, Limit, Rule, Validate
from proxy.core.policy.schemas import DeclaredSchemas
from proxy.core.policy.values import ABSENT, Steps, keyed, look_up
from proxy.core.policy.verdicts import (
    Consult,
    CountCall,
    Decision,
    DefaultAction,
    RuleName,
    Shadow,
    Subject,
    Then,
    Verdict,
)
from proxy.core.policy.views import CallView
from proxy.core.policy.wrappers import calls_in_wrapper, together

UNEVALUATED = "the rule could not be evaluated"
NO_POLICY = "no policy allows it"
HIDDEN = "This tool is not available."

Judgement = Generator[Consult, bool, Verdict]


def blocked_text(name: RuleName, message: str) -> str:
    return f"Tool call blocked by policy {name.policy}/{name.rule}: {message}"


@dataclass(frozen=True, slots=True)
class _End:
    """The chain ends here."""

    decision: Decision
    result: str | None = None
    message: str = ""
    then: Then = Then.CONTINUE
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """The call goes on with other arguments."""

    arguments: Object
    text: str
    original_history: bool


@dataclass(frozen=True, slots=True)
class _Deferral:
    """The call goes on, and is surfaced later."""


_Effect = _End | _Change | _Deferral | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all calls of a request. `may_change` False: a rule that would change the arguments
    cannot be evaluated (a call inside a wrapper has no text of its own)."""

    facts: RequestFacts
    schemas: DeclaredSchemas
    default: DefaultAction
    may_change: bool = True


def judge(rules: Iterable[Rule], subject: Subject, setting: Setting) -> Judgement:
    """The verdict on one call."""
    if is_parallel_wrapper(subject.call.name):
        return (yield from _judge_wrapper(tuple(rules), subject, setting))
    return (yield from _Run(subject, setting).through(rules))


class _Run:
    """One call on its way through the rules."""

    __slots__ = (
        "_changed_by",
        "_deferred",
        "_ended_shadows",
        "_errors",
        "_original_history",
        "_setting",
        "_shadows",
        "_view",
    )

    def __init__(self, subject: Subject, setting: Setting) -> None:
        self._setting = setting
        self._view = CallView(setting.facts, subject)
        self._changed_by: RuleName | None = None
        self._original_history = False
        self._deferred = False
        self._ended_shadows: set[str] = set()
        self._shadows: list[Shadow] = []
        self._errors: list[RuleName] = []

    def through(self, rules: Iterable[Rule]) -> Judgement:
        view = self._view
        for rule in rules:
            if not rule.guard.fits_call(view.tool, view.subject.owner, declared=view.declared):
                continue
            if rule.origin.shadow and rule.origin.name.policy in self._ended_shadows:
                continue
            effect = yield from self._effect(rule)
            if rule.origin.shadow:
                self._note(rule.origin.name, effect)
            elif isinstance(effect, _End):
                return self._ended(rule.origin.name, effect)
            else:
                self._apply(rule.origin.name, effect)
        return self._undecided()

    # ---------------------------------------------------------------- what a rule does

    def _effect(self, rule: Rule) -> Generator[Consult, bool, _Effect]:
        self._view.enforced = not rule.origin.shadow
        try:
            if rule.guard.has_conditions and not self._view.fits(rule.guard):
                return None
            return (yield from self._act(rule))
        except EvaluationError:
            self._errors.append(rule.origin.name)
            if rule.origin.ignores_errors:
                return None
            return self._block(rule.origin.name, UNEVALUATED, failed=True)

    def _act(self, rule: Rule) -> Generator[Consult, bool, _Effect]:
        name, action = rule.origin.name, rule.action
        match action:
            case Allow():
                return _End(Decision.ALLOWED)
            case Block():
                return self._block(name, action.message, action.then)
            case Hide():
                return self._block(name, HIDDEN)
            case Answer():
                return self._answer(action)
            case Rewrite():
                return self._rewrite(action)
            case Validate():
                complaints = self._complaints(action)
                return self._block(name, complaints) if complaints else None
            case Limit():
                counted = yield CountCall(self._key(name, action), action.most, action.window)
                return None if counted else self._block(name, _too_many(action))
            case Defer():
                return None if self._view.is_upstreams else _Deferral()
            case _:
                # An approval, another service's or a middleware's decision would be asked for here, with a yield.
                assert_never(action)

    def _block(self, name: RuleName, message: str, then: Then = Then.CONTINUE, *, failed: bool = False) -> _End:
        return _End(Decision.BLOCKED, blocked_text(name, message), message, then, failed)

    def _answer(self, action: Answer) -> _End:
        if self._view.is_upstreams:
            raise EvaluationError("a call that the upstream runs cannot be answered")
        content = action.content
        text = content if isinstance(content, str) else self._view.ask(content).text(self._view.scope)
        return _End(Decision.ANSWERED, text)

    def _rewrite(self, action: Rewrite) -> _Effect:
        view = self._view
        if action.expression is not None:
            view.ask(action.expression)
        new = action.new(view.arguments(), view.trial)
        if not view.would_change(new):
            return None
        if view.is_upstreams or not self._setting.may_change:
            raise EvaluationError("the arguments of this call cannot be changed")
        text = view.written(new)
        schema = None if view.is_free_text else self._setting.schemas.of(view.tool)
        if schema is not None and schema.accepts(view.original()) and not schema.accepts(new):
            raise EvaluationError("the new arguments do not fit the declared schema")
        return _Change(new, text, action.original_history)

    def _complaints(self, action: Validate) -> str:
        """Why the arguments are refused; empty when they fit."""
        if misread := self._view.misread():
            return f"the arguments cannot be read: {misread}"
        schema = action.schema
        if schema is None:
            schema = self._setting.schemas.required(self._view.tool)
        complaints = "" if schema is None else schema.complaints(self._view.arguments())
        return f"the arguments do not fit: {complaints}" if complaints else ""

    def _key(self, name: RuleName, action: Limit) -> tuple[str, ...]:
        return (name.policy, name.rule, *(f"{_spelled(part)}={self._counted(part)}" for part in action.by))

    def _counted(self, part: str | Steps) -> str:
        facts = self._setting.facts
        match part:
            case tuple():
                value = look_up(self._view.arguments(), part)
                return "" if value is ABSENT else keyed(value)
            case "tool":
                return fold(self._view.tool.name)
            case "tenant":
                return facts.tenant
            case "client":
                return facts.client
            case _:
                return facts.user

    # ---------------------------------------------------------------- what becomes of it

    def _note(self, name: RuleName, effect: _Effect) -> None:
        """What a rule in shadow mode decided; it ends the chain of its own policy only."""
        if isinstance(effect, _End):
            self._ended_shadows.add(name.policy)
            if effect.decision is not Decision.ALLOWED:
                self._shadows.append(Shadow(name.policy, name.rule, effect.decision))
        elif isinstance(effect, _Change):
            self._shadows.append(Shadow(name.policy, name.rule, Decision.REWRITTEN))

    def _apply(self, name: RuleName, effect: _Change | _Deferral | None) -> None:
        if isinstance(effect, _Change):
            self._view.change(effect.arguments, effect.text)
            self._changed_by = name
            self._original_history = self._original_history or effect.original_history
        elif isinstance(effect, _Deferral):
            self._deferred = True

    def _ended(self, name: RuleName, end: _End) -> Verdict:
        if end.decision is Decision.ALLOWED:
            return self._goes_ahead(name)
        return Verdict(
            end.decision,
            name.policy,
            name.rule,
            result=end.result,
            message=end.message,
            then=end.then,
            failed=end.failed,
            shadows=tuple(self._shadows),
            errors=tuple(self._errors),
        )

    def _undecided(self) -> Verdict:
        if self._setting.default is DefaultAction.ALLOW:
            return self._goes_ahead(RuleName("", ""))
        return Verdict(
            Decision.BLOCKED,
            result=f"Tool call blocked: {NO_POLICY}",
            message=NO_POLICY,
            shadows=tuple(self._shadows),
            errors=tuple(self._errors),
        )

    def _goes_ahead(self, name: RuleName) -> Verdict:
        changed_by = self._changed_by if self._view.is_changed else None
        named = changed_by or name
        return Verdict(
            Decision.ALLOWED if changed_by is None else Decision.REWRITTEN,
            named.policy,
            named.rule,
            text=self._view.new_text,
            original_history=self._original_history and changed_by is not None,
            deferred=self._deferred,
            shadows=tuple(self._shadows),
            errors=tuple(self._errors),
        )


def _spelled(part: str | Steps) -> str:
    return part if isinstance(part, str) else ".".join(("args", *part))


def _too_many(action: Limit) -> str:
    calls = "1 call" if action.most == 1 else f"{action.most} calls"
    return f"more than {calls} within {_duration(action.window)}"


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds * 1000:g}ms"


def _judge_wrapper(rules: tuple[Rule, ...], subject: Subject, setting: Setting) -> Judgement:
    """A wrapper is judged by the calls in it, and held whole when one of them is."""
    view = CallView(setting.facts, subject)
    verdicts = []
    for call in calls_in_wrapper(view):
        inner = replace(subject, call=call)
        verdicts.append((yield from judge(rules, inner, replace(setting, may_change=False))))
        if verdicts[-1].held:
            break
    enforced = any(not rule.origin.shadow for rule in rules)
    return together(verdicts, view.new_text if enforced else None)
