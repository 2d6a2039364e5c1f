"""Short ways to build a set of policies and to judge a call by it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from proxy.core.calls import Batch, CallId, Kind, Owner, RequestFacts, ToolCall
from proxy.core.jsontext import render_text
from proxy.core.policy.compile import compile_policies
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.decide import (
    Chain,
    DefaultAction,
    PolicySet,
    ResultVerdict,
    Subject,
    Verdict,
)
from proxy.core.policy.model import PolicyDocument, read_document

UNEVALUATED = "the rule could not be evaluated"
NO = {"message": "no"}


def source(spec: Any, name: str = "p0") -> dict[str, Any]:
    """A document's source; a list stands for its rules."""
    spec = {"rules": spec} if isinstance(spec, list) else spec
    return {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy", "metadata": {"name": name}, "spec": spec}


def documents(*specs: Any) -> list[PolicyDocument]:
    return [read_document(source(spec, f"p{n}"), n) for n, spec in enumerate(specs)]


def policies(*specs: Any, default: DefaultAction = DefaultAction.ALLOW) -> PolicySet:
    return compile_policies(documents(*specs), default_action=default)


def rule(*tools: str, name: str = "r", **parts: Any) -> dict[str, Any]:
    match = {"match": {"tools": list(tools)}} if tools else {}
    return {"name": name, **match, **parts}


def subject(
    name: str,
    arguments: Any = "{}",
    *,
    kind: Kind = Kind.FUNCTION,
    owner: Owner = Owner.CLIENT,
    batch: Batch | None = None,
    namespace: str = "",
) -> Subject:
    text = arguments if isinstance(arguments, str) else render_text(arguments)
    return Subject(ToolCall(CallId("call_1"), name, text, kind, namespace=namespace), owner, batch)


T = TypeVar("T")


def finish(judgement: Generator[Consult, Reply, T], answer: Callable[[Any], Reply] = lambda _: True) -> T:
    """Drive a judgement to its end; `answer` is told what it asks."""
    given: Any = None
    while True:
        try:
            given = answer(judgement.send(given))
        except StopIteration as done:
            came_to: T = done.value
            return came_to


def chain(rules: PolicySet | list[Any], facts: RequestFacts | None = None) -> Chain:
    found = rules if isinstance(rules, PolicySet) else policies(rules)
    return found.for_request(facts or RequestFacts())


def judge(
    rules: PolicySet | list[Any], name: str, arguments: Any = "{}", *, facts: RequestFacts | None = None, **more: Any
) -> Verdict:
    return finish(chain(rules, facts).judge(subject(name, arguments, **more)))


def judge_result(
    rules: PolicySet | list[Any], name: str, result: str, *, arguments: Any = "{}", is_error: bool = False
) -> ResultVerdict:
    return finish(chain(rules).judge_result(subject(name, arguments), result=result, is_error=is_error))


def blocked(message: str, where: str = "p0/r") -> str:
    return f"Tool call blocked by policy {where}: {message}"
