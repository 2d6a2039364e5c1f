"""Judging one call by a list of rules, from the outermost in.

A judgement is a generator: it yields what it must ask of the world (may one more call be counted? what does a
person say?) and is sent the answer; all else is decided without a yield. Rules in shadow mode are judged in their
places, and what they decide is noted and not applied. Which rules a request meets is not known here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Object, render_text
from proxy.core.policy.consults import (
    AskCode,
    AskPerson,
    AskService,
    Consult,
    CountCall,
    Course,
    PersonSaid,
    Reply,
    Ruling,
    Unanswered,
    Word,
)
from proxy.core.policy.effects import Change as _Change
from proxy.core.policy.effects import Deferral as _Deferral
from proxy.core.policy.effects import Effect as _Effect
from proxy.core.policy.effects import End as _End
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.names import fold, is_parallel_wrapper
from proxy.core.policy.rewriting import Rewrite
from proxy.core.policy.rules import (
    Allow,
    Answer,
    Ask,
    Block,
    Defer,
    Hide,
    Limit,
    Middleware,
    RequireApproval,
    Rule,
    Validate,
)
from proxy.core.policy.rulings import UNASKED, denial, pending
from proxy.core.policy.schemas import DeclaredSchemas
from proxy.core.policy.trail import Trail
from proxy.core.policy.values import ABSENT, Steps, canonical, exact, keyed, look_up
from proxy.core.policy.verdicts import (
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
MOST_SHOWN = 256 << 10
"""Arguments of more bytes are not put before a person: nobody would see what is approved."""

Judgement = Generator[Consult, Reply, Verdict]


def blocked_text(name: RuleName, message: str) -> str:
    return f"Tool call blocked by policy {name.policy}/{name.rule}: {message}"


def pending_text(name: RuleName, message: str) -> str:
    return f"Tool call held by policy {name.policy}/{name.rule}: {message}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all calls of a request. `may_change` False: a rule that would change the arguments
    cannot be evaluated (a call inside a wrapper has no text of its own)."""

    facts: RequestFacts
    schemas: DeclaredSchemas
    default: DefaultAction
    may_change: bool = True


def judge(rules: Iterable[Rule], subject: Subject, setting: Setting, *, trail: Trail | None = None) -> Judgement:
    """The verdict on one call. On a trail it is noted what every rule did."""
    if is_parallel_wrapper(subject.call.name):
        return (yield from _judge_wrapper(tuple(rules), subject, setting, trail=trail))
    return (yield from _Run(subject, setting, trail).through(rules))


class _Run:
    """One call on its way through the rules."""

    __slots__ = (
        "_approvals",
        "_approved",
        "_approved_by",
        "_changed_by",
        "_deferred",
        "_ended_shadows",
        "_errors",
        "_original_history",
        "_setting",
        "_shadows",
        "_trail",
        "_view",
    )

    def __init__(self, subject: Subject, setting: Setting, trail: Trail | None) -> None:
        self._setting = setting
        self._trail = trail
        self._view = CallView(setting.facts, subject)
        self._changed_by: RuleName | None = None
        self._approved_by: RuleName | None = None
        self._approved = ""  # the arguments that a person approved
        self._approvals: list[str] = []
        self._original_history = False
        self._deferred = False
        self._ended_shadows: set[str] = set()
        self._shadows: list[Shadow] = []
        self._errors: list[RuleName] = []

    def through(self, rules: Iterable[Rule]) -> Judgement:
        view, trail = self._view, self._trail
        for rule in rules:
            if not rule.guard.fits_call(view.tool, view.subject.owner, declared=view.declared):
                if trail is not None:
                    trail.skipped(rule, view)
                continue
            if rule.origin.shadow and rule.origin.name.policy in self._ended_shadows:
                if trail is not None:
                    trail.silenced(rule)
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

    def _effect(self, rule: Rule) -> Generator[Consult, Reply, _Effect]:
        self._view.enforced = not rule.origin.shadow
        try:
            if rule.guard.has_conditions and not self._view.fits(rule.guard):
                if self._trail is not None:
                    self._trail.skipped(rule, self._view)
                return None
            effect = yield from self._act(rule)
        except EvaluationError as error:
            self._errors.append(rule.origin.name)
            if self._trail is not None:
                self._trail.failed(rule, self._view, error)
            if rule.origin.ignores_errors:
                return None
            return self._block(rule.origin.name, UNEVALUATED, failed=True)
        if self._trail is not None:
            self._trail.did(rule, self._view, effect)
        return effect

    def _act(self, rule: Rule) -> Generator[Consult, Reply, _Effect]:
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
                return None if counted is True else self._block(name, _too_many(action))
            case Defer():
                return None if self._view.is_upstreams else _Deferral()
            case Ask():
                self._view.arguments()  # a service that is told of none would take it for a call without any
                reply = yield AskService(name, action.url, action.seconds, self._view.seen())
                if isinstance(reply, Unanswered) and action.passes_on:
                    self._errors.append(name)
                    return None
                return self._ruled(name, reply)
            case Middleware():
                return self._ruled(name, (yield AskCode(name, action.target, self._view.seen())))
            case RequireApproval():
                return (yield from self._approval(name, action))
            case _:
                assert_never(action)

    def _block(self, name: RuleName, message: str, then: Then = Then.CONTINUE, *, failed: bool = False) -> _End:
        return _End(Decision.BLOCKED, blocked_text(name, message), message, then, failed)

    def _answer(self, action: Answer) -> _End:
        content = action.content
        return self._answered(content if isinstance(content, str) else self._view.ask(content).text(self._view.scope))

    def _answered(self, text: str) -> _End:
        if self._view.is_upstreams:
            raise EvaluationError("a call that the upstream runs cannot be answered")
        return _End(Decision.ANSWERED, text)

    def _rewrite(self, action: Rewrite) -> _Effect:
        view = self._view
        if action.expression is not None:
            view.ask(action.expression)
        return self._changed(action.new(view.arguments(), view.trial), original_history=action.original_history)

    def _changed(self, new: Object, *, original_history: bool = False) -> _Effect:
        view = self._view
        if not view.would_change(new):
            return None
        if view.is_upstreams or not self._setting.may_change:
            raise EvaluationError("the arguments of this call cannot be changed")
        text = view.written(new)
        schema = None if view.is_free_text else self._setting.schemas.of(view.tool)
        if schema is not None and schema.accepts(view.original()) and not schema.accepts(new):
            raise EvaluationError("the new arguments do not fit the declared schema")
        return _Change(new, text, original_history)

    def _ruled(self, name: RuleName, reply: Reply) -> _Effect:
        """What somebody else decided. Raises EvaluationError."""
        if not isinstance(reply, Ruling):
            raise EvaluationError(reply.reason if isinstance(reply, Unanswered) else "there is no decision")
        match reply.course:
            case Course.ALLOW:
                return _End(Decision.ALLOWED)
            case Course.BLOCK:
                return self._block(name, reply.message)
            case Course.ANSWER:
                return self._answered(reply.content)
            case Course.REWRITE:
                try:
                    new = {key: exact(value) for key, value in (reply.arguments or {}).items()}
                except (ValueError, RecursionError) as error:
                    raise EvaluationError(f"the new arguments are no JSON: {error}") from None
                return self._changed(new)
            case Course.NEXT:
                return None
            case _:
                assert_never(reply.course)

    def _approval(self, name: RuleName, action: RequireApproval) -> Generator[Consult, Reply, _Effect]:
        """A person's word; one that is in shadow mode asks nobody. What was approved once is not asked for again."""
        if not self._view.enforced:
            return _End(Decision.PENDING)
        arguments = self._view.arguments()
        key, shown = canonical(arguments), render_text(arguments)
        if self._approved_by is not None and key == self._approved:
            return None
        if len(shown) > MOST_SHOWN:
            raise EvaluationError("the arguments are too long for a person to look at")
        said = yield AskPerson(name, self._view.seen(), key, shown, action.wait, action.ttl, action.message)
        if not isinstance(said, PersonSaid):
            raise EvaluationError("nobody could be asked")
        if said.word is Word.APPROVED:
            self._approved_by, self._approved = name, key
            self._approvals.append(said.approval_id)
            return None
        if said.word is Word.DENIED:
            return _End(Decision.DENIED, blocked_text(name, denial(said)), denial(said))
        if said.word is Word.UNASKED:
            return self._block(name, UNASKED)
        told = pending(said, action.message)
        return _End(Decision.PENDING, pending_text(name, told), told)

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
            approvals=tuple(self._approvals),
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
            approvals=tuple(self._approvals),
        )

    def _goes_ahead(self, name: RuleName) -> Verdict:
        changed_by = self._changed_by if self._view.is_changed else None
        named = changed_by or self._approved_by or name
        otherwise = Decision.ALLOWED if self._approved_by is None else Decision.APPROVED
        return Verdict(
            otherwise if changed_by is None else Decision.REWRITTEN,
            named.policy,
            named.rule,
            text=self._view.new_text,
            original_history=self._original_history and changed_by is not None,
            deferred=self._deferred,
            shadows=tuple(self._shadows),
            errors=tuple(self._errors),
            approvals=tuple(self._approvals),
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


def _judge_wrapper(rules: tuple[Rule, ...], subject: Subject, setting: Setting, *, trail: Trail | None) -> Judgement:
    """A wrapper is judged by the calls in it, and held whole when one of them is."""
    view = CallView(setting.facts, subject)
    verdicts = []
    for call in calls_in_wrapper(view):
        inner = replace(subject, call=call)
        below = None if trail is None else trail.below(call.name)
        verdicts.append((yield from judge(rules, inner, replace(setting, may_change=False), trail=below)))
        if verdicts[-1].held:
            break
    enforced = any(not rule.origin.shadow for rule in rules)
    return together(verdicts, view.new_text if enforced else None)
