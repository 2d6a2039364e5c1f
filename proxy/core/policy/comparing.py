"""What a rule compared on its way to a call: what was wanted, what was found, and where the first difference lies.

The matches themselves say what does not fit (`miss`); here that is only put beside what they were given. Nothing is
asked of a call that the rule did not ask of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Json, Object, render_text
from proxy.core.policy.conditions import Condition
from proxy.core.policy.expressions import Expression
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.matching import CallMatch, RequestMatch
from proxy.core.policy.patterns import Glob
from proxy.core.policy.rules import Guard
from proxy.core.policy.values import ABSENT, Found, look_up
from proxy.core.policy.views import CallView

_MOST = 120
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Compared:
    """One thing that a rule asked. `holds` None: it could not be told, and `found` says why."""

    about: str
    wanted: str
    found: str
    holds: bool | None

    @property
    def is_condition(self) -> bool:
        """Whether it is about more than names and the request."""
        return self.about in ("when", "args") or self.about.startswith("args.")


def shown(value: Found) -> str:
    """A value on one line, cut where it is long."""
    if value is ABSENT:
        return NOTHING
    text = render_text(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text)} characters)"


def compared_with_request(guard: Guard, facts: RequestFacts) -> Iterator[Compared]:
    """What a rule wants of the request, up to what does not fit."""
    for match in guard.requests:
        missed = match.miss(facts)
        yield from _up_to(missed, _request_keys(match, facts))
        if missed:
            return


def compared_with_call(guard: Guard, view: CallView) -> Iterator[Compared]:
    """What a rule wants of the call, up to what does not fit. The arguments are read where the rule reads them."""
    for match in guard.calls:
        missed = match.miss(view.tool, view.subject.owner, declared=view.declared)
        yield from _up_to(missed, _call_keys(match, view))
        if missed:
            return
    if guard.has_conditions:
        yield from compared_conditions(guard, view)


def compared_conditions(guard: Guard, view: CallView) -> Iterator[Compared]:
    """What a rule wants of the arguments, and of what its expression reads."""
    try:
        for match in guard.calls:
            if match.args:
                arguments = view.arguments()
                missed = match.argument_miss(arguments)
                yield from _conditions(match, arguments, missed)
                if missed is not None:
                    return
    except EvaluationError as error:
        yield Compared("args", "", str(error), None)
        return
    if guard.when is not None:
        yield _expression(guard.when, view)


def _up_to(missed: str, keys: Iterable[tuple[str, str, str]]) -> Iterator[Compared]:
    for about, wanted, found in keys:
        yield Compared(about, wanted, found, about != missed)
        if about == missed:
            return


def _request_keys(match: RequestMatch, facts: RequestFacts) -> Iterator[tuple[str, str, str]]:
    if match.apis:
        yield "apis", ", ".join(sorted(match.apis)), facts.api
    if match.models:
        yield "models", _globs(match.models), facts.model or NOTHING
    if match.clients:
        yield "clients", _globs(match.clients), facts.client or NOTHING
    for name, glob in match.headers:
        yield f"headers.{name}", glob.source, facts.headers.get(name, NOTHING)


def _call_keys(match: CallMatch, view: CallView) -> Iterator[tuple[str, str, str]]:
    name = " or ".join(view.tool.exact) or "no name"
    if match.owner is not None:
        yield "owner", match.owner, view.subject.owner
    if match.declared is not None:
        yield "declared", _truth(match.declared), _truth(view.declared)
    if match.tools is not None:
        yield "tools", ", ".join(match.tools.sources), name
    if match.not_tools is not None:
        yield "notTools", ", ".join(match.not_tools.sources), name


def _globs(globs: Iterable[Glob]) -> str:
    return ", ".join(glob.source for glob in globs)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _conditions(match: CallMatch, arguments: Object, missed: tuple[Condition, str] | None) -> Iterator[Compared]:
    for condition in match.args:
        is_missed = missed is not None and missed[0] is condition
        keys = [missed[1]] if missed is not None and is_missed else list(condition.given)
        wanted = ", ".join(f"{key} {_given(condition.given, key)}" for key in keys)
        found = shown(look_up(arguments, condition.path))
        yield Compared(f"args.{'.'.join(condition.path)}", wanted, found, not is_missed)
        if is_missed:
            return


def _given(given: Mapping[str, Any], key: str) -> str:
    value = given[key]
    if isinstance(value, list):
        return ", ".join(one if isinstance(one, str) else shown(one) for one in value)
    return value if isinstance(value, str) else shown(value)


def _expression(expression: Expression, view: CallView) -> Compared:
    source = " ".join(expression.source.split())
    try:
        holds = expression.is_true(view.scope)
    except EvaluationError as error:
        return Compared("when", source, str(error), None)
    return Compared("when", source, values_read(expression, view), holds)


def values_read(expression: Expression, view: CallView) -> str:
    """What an expression reads, and what is there."""
    found = []
    for name, *keys in expression.reads:
        value: Json = view.variable(name)
        found.append(f"{'.'.join((name, *keys))} is {shown(look_up(value, tuple(keys)))}")
    return ", ".join(found)
