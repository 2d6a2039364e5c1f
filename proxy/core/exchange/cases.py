"""Running a case of a test document against a set of policies: what was decided, and where that differs from what is
expected.

What rules ask of the world is answered by the case. Files, and how a difference is shown, are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.core.arguments import read_arguments
from proxy.core.calls import Api, Batch, CallId, Kind, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Conclusion, Judged, conclude
from proxy.core.jsontext import Json, render_text
from proxy.core.policy.casemodel import CallModel, CaseModel, ExpectModel, ExplainModel, RequestModel, ShadowModel
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.explaining import Explanation, ResultExplanation, explain, explain_result
from proxy.core.policy.names import NamedTool
from proxy.core.policy.scripted import Script, ScriptError, settle
from proxy.core.policy.trail import ACTED, Step
from proxy.core.policy.values import same
from proxy.core.policy.verdicts import ResultOutcome, ResultVerdict, RuleName, Shadow, Subject, Verdict

_STOP_AFTER = 1 << 30
"""A case is a turn of its own: no calls were blocked before it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What was expected under a key, and what came. Of a part of a text `got` is the whole text."""

    key: str
    expected: Json
    got: Json


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """How a case went; the explanations are those of its calls, or of its result."""

    differences: tuple[Difference, ...]
    explanations: tuple[Explanation | ResultExplanation, ...]

    @property
    def passed(self) -> bool:
        return not self.differences


# ---------------------------------------------------------------- what comes in


def call_of(model: CallModel) -> ToolCall:
    """The call that a document describes."""
    call_id = CallId(model.call_id)
    if model.input is not None:
        return ToolCall(call_id, model.tool, model.input, Kind.CUSTOM, namespace=model.namespace)
    text = render_text(model.args) if model.raw_args is None else model.raw_args
    return ToolCall(call_id, model.tool, text, namespace=model.namespace)


def facts_of(model: RequestModel, calls: Sequence[ToolCall]) -> RequestFacts:
    """The request that a document describes. Where it says nothing of tools, it declares those that are called."""
    declared = model.declared
    if declared is None:
        declared = {NamedTool.of(call.name, call.namespace).spellings[-1]: None for call in calls}
    return RequestFacts(
        model=model.model,
        api=Api(model.api),
        headers={name.lower(): value for name, value in model.headers.items()},
        user=model.user,
        metadata=model.metadata,
        client=model.client,
        declared=declared,
    )


def subject_of(model: CallModel, batch: Batch | None = None) -> Subject:
    """A call, and its place among those of its turn; it is alone where nothing is said of others."""
    call = call_of(model)
    return Subject(call, Owner(model.owner), batch or Batch(1, 0, (call.name,)))


def explain_model(policies: PolicySet, model: ExplainModel) -> Explanation | ResultExplanation:
    """How the policies decide what a document describes. Raises ScriptError for an answer that is none."""
    subject = subject_of(model)
    facts, script = facts_of(model, [subject.call]), Script(model.answers)
    if model.result is None:
        return settle(explain(policies, facts, subject), script.answer)
    asking = explain_result(policies, facts, subject, result=model.result, is_error=model.is_error)
    return settle(asking, script.answer)


# ---------------------------------------------------------------- running


def run_case(policies: PolicySet, case: CaseModel) -> CaseOutcome:
    """Decide what the case gives, and compare."""
    script = Script(case.answers)
    try:
        if case.call is not None and case.result is not None:
            outcome = _run_result(policies, case, script)
        elif case.call is not None:
            outcome = _run_call(policies, case, script)
        else:
            outcome = _run_batch(policies, case, script)
    except ScriptError as error:
        return CaseOutcome((Difference("answers", str(error), None),), ())
    unused = tuple(Difference(f"answers.{name}", "a rule that asks", "no rule asked") for name in script.unused)
    return replace(outcome, differences=outcome.differences + unused)


def _run_call(policies: PolicySet, case: CaseModel, script: Script) -> CaseOutcome:
    assert case.call is not None
    assert case.expect is not None
    subject = subject_of(case.call)
    explanation = settle(explain(policies, facts_of(case, [subject.call]), subject), script.answer)
    return CaseOutcome(tuple(_call_differences(case.expect, subject.call, explanation.verdict)), (explanation,))


def _run_result(policies: PolicySet, case: CaseModel, script: Script) -> CaseOutcome:
    assert case.call is not None
    assert case.result is not None
    assert case.expect is not None
    subject = subject_of(case.call)
    facts = facts_of(case, [subject.call])
    asking = explain_result(policies, facts, subject, result=case.result.text, is_error=case.result.is_error)
    explanation = settle(asking, script.answer)
    return CaseOutcome(tuple(_result_differences(case.expect, explanation)), (explanation,))


def _run_batch(policies: PolicySet, case: CaseModel, script: Script) -> CaseOutcome:
    models = case.batch or []
    calls = [call_of(model) for model in models]
    facts = facts_of(case, calls)
    names = tuple(call.name for call in calls)
    chain = policies.for_request(facts)
    explanations: list[Explanation] = []
    judged: list[Judged] = []
    differences: list[Difference] = []
    for index, model in enumerate(models):
        subject = subject_of(model, Batch(len(names), index, names))
        explanation = settle(explain(policies, facts, subject), script.answer)
        explanations.append(explanation)
        verdict = explanation.verdict
        judged.append(Judged(subject.call, subject.call.text, subject.owner, verdict, chain.lanes(subject)))
        for found in _call_differences(model.expect, subject.call, verdict) if model.expect else ():
            differences.append(replace(found, key=f"batch.{index}.{found.key}"))
    ended = conclude(judged, cut=False, closing=False, denied=0, stop_after=_STOP_AFTER)
    differences += _batch_differences(case.expect, ended, names) if case.expect else ()
    return CaseOutcome(tuple(differences), tuple(explanations))


# ---------------------------------------------------------------- comparing


def _call_differences(expect: ExpectModel, call: ToolCall, verdict: Verdict) -> Iterator[Difference]:
    text = call.text if verdict.text is None else verdict.text
    arguments = read_arguments(replace(call, text=text)).value
    got: dict[str, Json] = {
        "decision": str(verdict.decision),
        "policy": verdict.policy,
        "rule": verdict.rule,
        "args": text if arguments is None else arguments,
        "rawArgs": text,
        "result": verdict.result,
        "then": str(verdict.then),
        "deferred": verdict.deferred,
        "failed": verdict.failed,
        "errors": _names(verdict.errors),
        "shadows": _shadows(verdict.shadows),
    }
    yield from _differences(expect, got)
    yield from _parts(expect, verdict.result or "")
    yield from (Difference("lacks", part, text) for part in expect.lacks if part in text)


def _result_differences(expect: ExpectModel, explanation: ResultExplanation) -> Iterator[Difference]:
    verdict = explanation.verdict
    got: dict[str, Json] = {
        "outcome": str(verdict.outcome),
        "result": verdict.text,
        "errors": _names(verdict.errors),
        "shadows": _shadows(verdict.shadows),
    }
    yield from _differences(expect, got)
    yield from _parts(expect, verdict.text)
    acted = _acted(explanation.steps, verdict)
    for key, names in (("policy", [rule.policy for rule in acted]), ("rule", [rule.rule for rule in acted])):
        expected = expect.given().get(key)
        if expected is not None and expected not in (names or [""]):
            yield Difference(key, expected, ", ".join(names))


def _acted(steps: Sequence[Step], verdict: ResultVerdict) -> list[RuleName]:
    """The rules that made the result what it is."""
    withheld = verdict.outcome is ResultOutcome.BLOCKED
    return [
        step.rule
        for step in steps
        if not step.shadow and (step.outcome in ACTED or (withheld and step.rule in verdict.errors))
    ]


def _batch_differences(expect: ExpectModel, ended: Conclusion, names: Sequence[str]) -> Iterator[Difference]:
    last = max((stage for stage in ended.stages if stage is not None), default=-1)
    turns: list[Json] = [
        [name for name, stage in zip(names, ended.stages, strict=True) if stage == turn] for turn in range(last + 1)
    ]
    yield from _differences(expect, {"ends": ended.end.name.lower(), "order": turns, "message": ended.message})


def _differences(expect: ExpectModel, got: dict[str, Json]) -> Iterator[Difference]:
    for key, value in expect.given().items():
        if key in got:
            expected = _shown(value)
            if not same(expected, got[key]):
                yield Difference(key, expected, got[key])


def _shown(value: object) -> Json:
    """An expectation as a JSON value."""
    if isinstance(value, list):
        return [one.given() if isinstance(one, ShadowModel) else one for one in value]
    plain: Json = value  # type: ignore[assignment]  # fields hold JSON values, and lists of models
    return plain


def _parts(expect: ExpectModel, text: str) -> Iterator[Difference]:
    yield from (Difference("contains", part, text) for part in expect.contains if part not in text)
    yield from (Difference("lacks", part, text) for part in expect.lacks if part in text)


def _names(rules: Sequence[RuleName]) -> list[Json]:
    return [f"{rule.policy}/{rule.rule}" for rule in rules]


def _shadows(shadows: Sequence[Shadow]) -> list[Json]:
    return [{"policy": s.policy, "rule": s.rule, "decision": str(s.decision)} for s in shadows]
