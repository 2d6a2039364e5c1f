"""Policy documents to a set of rules, once at load. What a single field or rule says is checked by the models;
what is checked here is what documents say together. Python objects are not looked at: whoever can says what they
handle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxy.core.policy.decide import PolicySet
from proxy.core.policy.expressions import Expression
from proxy.core.policy.findings import Finder, find_named
from proxy.core.policy.matching import CallMatch, RequestMatch
from proxy.core.policy.model import MatchModel, PolicyDocument, RedactModel, ResultModel, RuleModel
from proxy.core.policy.patterns import Pattern
from proxy.core.policy.problems import DocumentProblem, PolicyProblems
from proxy.core.policy.rewriting import Rewrite
from proxy.core.policy.rules import (
    Action,
    Allow,
    Answer,
    Ask,
    Block,
    Defer,
    Guard,
    Hide,
    LaneRule,
    Limit,
    Middleware,
    Origin,
    Redact,
    Replace,
    RequireApproval,
    ResultAction,
    ResultRule,
    Rule,
    Truncate,
    Validate,
    Withhold,
)
from proxy.core.policy.validating import Schema
from proxy.core.policy.verdicts import DefaultAction, RuleName, Then

__all__ = ["DocumentProblem", "PolicyProblems", "compile_policies"]


@dataclass(frozen=True, slots=True)
class Handled:
    """What a Python object has a say in."""

    calls: bool = True
    results: bool = True


Handles = Callable[[str], Handled]


def compile_policies(
    documents: Sequence[PolicyDocument], *, default_action: DefaultAction, handles: Handles = lambda _target: Handled()
) -> PolicySet:
    """The documents in their order as one set; `handles` tells of each Python object what it handles. Raises
    PolicyProblems with all that is wrong."""
    problems = list(_duplicates(documents))
    if problems:
        raise PolicyProblems(problems)
    return PolicySet(
        tuple(rule for document in documents for rule in _rules(document, handles)),
        tuple(lane for document in documents for lane in _lanes(document)),
        policies=tuple(document.metadata.name for document in documents),
        default_action=default_action,
        digest=_digest(documents, default_action),
    )


def _digest(documents: Sequence[PolicyDocument], default_action: DefaultAction) -> str:
    digest = hashlib.sha256(default_action.encode())
    for document in documents:
        digest.update(b"\0" + repr(document).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _duplicates(documents: Sequence[PolicyDocument]) -> Iterator[DocumentProblem]:
    policies: set[str] = set()
    for number, document in enumerate(documents):
        name = document.metadata.name
        if name in policies:
            message = f"there is a policy '{name}' already; expected a name of its own"
            yield DocumentProblem(number, ("metadata", "name"), message)
        policies.add(name)
        rules: set[str] = set()
        for place, rule in enumerate(document.spec.rules):
            if rule.name in rules:
                message = f"there is a rule '{rule.name}' already; expected a name of its own"
                yield DocumentProblem(number, ("spec", "rules", place, "name"), message)
            rules.add(rule.name)


def _lanes(document: PolicyDocument) -> Iterator[LaneRule]:
    spec = document.spec
    if spec.batch.max_parallel is not None and spec.mode == "enforce":
        guard = Guard((RequestMatch.compile(spec.match),), (CallMatch.compile(spec.match, exact=False),))
        yield LaneRule(document.metadata.name, spec.batch.max_parallel, guard)


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """What a policy's `spec.match` says, for rules that can hold and for rules that let calls go ahead."""

    request: RequestMatch
    folded: CallMatch
    exact: CallMatch

    @classmethod
    def compile(cls, model: MatchModel) -> _Narrowing:
        calls = (CallMatch.compile(model, exact=exact) for exact in (False, True))
        return cls(RequestMatch.compile(model), *calls)


def _rules(document: PolicyDocument, handles: Handles) -> Iterator[Rule | ResultRule]:
    narrowing = _Narrowing.compile(document.spec.match)
    for model in document.spec.rules:
        exact = model.allow is not None
        guard = Guard(
            (narrowing.request, RequestMatch.compile(model.match)),
            (narrowing.exact if exact else narrowing.folded, CallMatch.compile(model.match, exact=exact)),
            None if model.when is None else Expression.compile(model.when),
        )
        origin = Origin(
            RuleName(document.metadata.name, model.name),
            shadow=document.spec.mode == "shadow",
            ignores_errors=document.spec.failure_policy == "Ignore",
        )
        if model.result is not None:
            yield ResultRule(origin, guard, _result_action(model.result))
        elif model.middleware is not None:
            handled = handles(model.middleware)
            if handled.calls:
                yield Rule(origin, guard, Middleware(model.middleware))
            if handled.results:
                yield ResultRule(origin, guard, Middleware(model.middleware))
        else:
            yield Rule(origin, guard, _action(model))


def _action(model: RuleModel) -> Action:
    if model.allow is not None:
        return Allow()
    if model.block is not None:
        return Block(model.block.message, Then(model.block.then))
    if model.answer is not None:
        content = model.answer.content
        return Answer(content if content is not None else Expression.compile(model.answer.expr or ""))
    if model.rewrite is not None:
        return Rewrite.compile(model.rewrite)
    if model.validate_ is not None:
        schema = model.validate_.schema_
        return Validate(None if schema == "declared" else Schema.compile(schema))
    if model.limit is not None:
        by = tuple(part if part in _COUNTED else tuple(part.split(".")[1:]) for part in model.limit.by)
        return Limit(model.limit.max, model.limit.per, by)
    if model.defer is not None:
        return Defer()
    if model.require_approval is not None:
        approval = model.require_approval
        return RequireApproval(approval.wait, approval.ttl, approval.message)
    if model.ask is not None:
        return Ask(model.ask.url, model.ask.timeout, model.ask.on_error == "next")
    assert model.hide is not None, "the model lets no rule pass without an action"
    return Hide()


_COUNTED = frozenset({"tool", "tenant", "client", "user"})


def _finder(model: RedactModel) -> Pattern | Finder:
    return find_named(model.name) if model.name is not None else Pattern.compile(model.pattern or "")


def _result_action(model: ResultModel) -> ResultAction:
    if model.redact is not None:
        return Redact(tuple((_finder(one), one.with_) for one in model.redact))
    if model.replace is not None:
        return Replace(model.replace.content)
    if model.truncate is not None:
        return Truncate(model.truncate.max_bytes)
    assert model.block is not None
    return Withhold(model.block.message)
