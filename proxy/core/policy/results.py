"""Result rules: what the model sees of a result. A chain of its own, last listed first; the same result always
comes out the same, so that prompt caches hold (where a Python object is asked, that is its duty)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import assert_never

from proxy.core.policy.consults import AskCodeOfResult, Consult, NewText, Reply, Unanswered
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.judging import UNEVALUATED
from proxy.core.policy.rules import Middleware, Redact, Replace, ResultRule, Truncate, Withhold
from proxy.core.policy.trail import Trail
from proxy.core.policy.verdicts import Decision, ResultOutcome, ResultVerdict, RuleName, Shadow
from proxy.core.policy.views import CallView

_STRENGTH = (
    ResultOutcome.OK,
    ResultOutcome.TRUNCATED,
    ResultOutcome.REDACTED,
    ResultOutcome.REPLACED,
    ResultOutcome.BLOCKED,
)


ResultJudgement = Generator[Consult, Reply, ResultVerdict]


def withheld_text(name: RuleName, message: str) -> str:
    return f"Tool result withheld by policy {name.policy}/{name.rule}: {message}"


def judge_result(
    rules: Sequence[ResultRule], view: CallView, result: str, *, trail: Trail | None = None
) -> ResultJudgement:
    """`view` knows `result` and `isError`. A call of unknown name (empty) meets every rule."""
    outcome, errors, shadows = ResultOutcome.OK, list[RuleName](), list[Shadow]()
    for rule in reversed(rules):
        if not _fits_call(rule, view):
            if trail is not None:
                trail.skipped(rule, view)
            continue
        name = rule.origin.name
        try:
            new, done = yield from _acted(rule, view, result)
        except EvaluationError as error:
            errors.append(name)
            if trail is not None:
                trail.failed(rule, view, error)
            if rule.origin.ignores_errors:
                continue
            new, done = withheld_text(name, UNEVALUATED), ResultOutcome.BLOCKED
        else:
            if trail is not None:
                trail.did_to_result(rule, view, done)
        if done is ResultOutcome.OK:
            continue
        if rule.origin.shadow:
            held = done is ResultOutcome.BLOCKED
            shadows.append(Shadow(name.policy, name.rule, Decision.BLOCKED if held else Decision.REWRITTEN))
            continue
        result, outcome = new, max(outcome, done, key=_STRENGTH.index)
        view.set_result(result)
    return ResultVerdict(result, outcome, tuple(errors), tuple(shadows))


def _fits_call(rule: ResultRule, view: CallView) -> bool:
    unknown = not view.tool.name
    return unknown or rule.guard.fits_call(view.tool, view.subject.owner, declared=view.declared)


def _acted(rule: ResultRule, view: CallView, result: str) -> Generator[Consult, Reply, tuple[str, ResultOutcome]]:
    """The new result and what was done; OK where the rule does nothing. Raises EvaluationError."""
    if view.tool.name and not view.fits(rule.guard):
        return result, ResultOutcome.OK
    if not view.tool.name and rule.guard.when is not None and not rule.guard.when.is_true(view.scope):
        return result, ResultOutcome.OK
    match action := rule.action:
        case Redact():
            new = result
            for finder, into in action.findings:
                new = finder.replaced(new, into)
            return new, ResultOutcome.OK if new == result else ResultOutcome.REDACTED
        case Replace():
            return action.content, ResultOutcome.REPLACED
        case Truncate():
            new = cut(result, action.most)
            return new, ResultOutcome.OK if new == result else ResultOutcome.TRUNCATED
        case Withhold():
            return withheld_text(rule.origin.name, action.message), ResultOutcome.BLOCKED
        case Middleware():
            reply = yield AskCodeOfResult(rule.origin.name, action.target, view.seen(), result)
            if not isinstance(reply, NewText):
                raise EvaluationError(reply.reason if isinstance(reply, Unanswered) else "there is no new text")
            if reply.text is None or reply.text == result:
                return result, ResultOutcome.OK
            return reply.text, ResultOutcome.REPLACED
        case _:
            assert_never(action)


def cut(text: str, most: int) -> str:
    """The text, cut behind the last character that fits into `most` bytes, with a note that says so."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    kept = data[:most]
    while kept and data[len(kept)] & 0xC0 == 0x80:
        kept = kept[:-1]
    shown = kept.decode("utf-8", "surrogatepass")
    return f"{shown}\n(cut: {len(kept)} of {len(data)} bytes shown)"
