"""The playground of the admin page: how the policies that are loaded now would decide a call, and why.

Nothing is decided in earnest: nothing is counted, no person or service is asked. What is typed in the form is shown
again and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from proxy.core.exchange.cases import explain_model
from proxy.core.jsontext import Object, parse_exact
from proxy.core.policy.casemodel import ExplainModel
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.explaining import Explanation, ResultExplanation, lines_of, object_of
from proxy.core.policy.problems import dotted, problems_of
from proxy.core.policy.scripted import ScriptError
from proxy.errors import RequestError

PATH = "/admin/explain"
TEXT_FIELDS = ("tool", "model", "client", "user")
CHOICES = {"api": ("chat", "responses"), "owner": ("client", "proxy", "upstream")}
MORE = ("namespace", "headers", "metadata", "declared", "rawArgs", "input", "isError", "answers")
_MOST_NESTING = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """What the form asked, and what came of it: an explanation, or what was wrong with the question."""

    fields: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""
    text: str = ""
    problem: str = ""


def explain_body(policies: PolicySet, body: bytes) -> Object:
    """The same input and output as `sidecall explain --call --output json`, and its text. Raises RequestError (422)."""
    explanation = _explained(policies, _json("the call", body.decode("utf-8", "replace")))
    return {**object_of(explanation), "text": _text(explanation)}


def answer_form(policies: PolicySet, fields: Mapping[str, str]) -> Answer:
    """What the form of the page asks for."""
    try:
        explanation = _explained(policies, _asked(fields))
    except RequestError as error:
        return Answer(fields, problem=error.message)
    return Answer(fields, _heading(explanation), _text(explanation))


def _explained(policies: PolicySet, asked: Any) -> Explanation | ResultExplanation:
    if _nesting(asked) > _MOST_NESTING:
        raise RequestError(f"nested too deep; expected at most {_MOST_NESTING}", status=422)
    try:
        return explain_model(policies, ExplainModel.model_validate(asked))
    except ValidationError as error:
        found = problems_of(error, asked, model=ExplainModel)
        told = "; ".join(f"{dotted(one.path)}: {one.message}" if one.path else one.message for one in found)
        raise RequestError(told, status=422) from None
    except ScriptError as error:
        raise RequestError(f"answers: {error}", status=422) from None


def _nesting(value: Any) -> int:
    """How deep lists and objects lie in each other."""
    depth, level = 0, [value]
    while level := [below for one in level for below in _below(one)]:
        depth += 1
    return depth


def _below(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _asked(fields: Mapping[str, str]) -> dict[str, Any]:
    """The call that the form describes; what is left empty is left out. Raises RequestError."""
    asked: dict[str, Any] = {name: fields[name] for name in (*TEXT_FIELDS, *CHOICES) if fields.get(name)}
    if fields.get("result"):
        asked["result"] = fields["result"].replace("\r\n", "\n")  # a form spells every line break so
    if fields.get("args", "").strip():
        asked["args"] = _json("arguments", fields["args"])
    if fields.get("more", "").strip():
        more = _json("more", fields["more"])
        if not isinstance(more, dict):
            raise RequestError(f"more: expected an object with keys such as {', '.join(MORE)}", status=422)
        asked |= more
    return asked


def _json(name: str, text: str) -> Any:
    try:
        reading = parse_exact(text)
    except ValueError as error:
        raise RequestError(f"{name}: expected JSON: {error}", status=422) from None
    if not reading.unambiguous:
        raise RequestError(
            f"{name}: expected JSON that can be read in one way: no key twice, no text behind it", status=422
        )
    return reading.value


def _heading(explanation: Explanation | ResultExplanation) -> str:
    if isinstance(explanation, Explanation):
        return str(explanation.verdict.decision)
    return str(explanation.verdict.outcome)


def _text(explanation: Explanation | ResultExplanation) -> str:
    return "\n".join(line.text for line in lines_of(explanation))
