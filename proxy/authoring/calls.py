"""Reading a call that is to be explained, and explaining it."""

from __future__ import annotations

from pydantic import ValidationError

from proxy.core.exchange.cases import explain_model
from proxy.core.policy.casemodel import ExplainModel
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.explaining import Explanation, ResultExplanation
from proxy.core.policy.problems import problems_of
from proxy.core.policy.scripted import ScriptError
from proxy.errors import ConfigError, Problem
from proxy.yamlfile import read_documents

STANDARD_INPUT = "/dev/stdin"


def read_call(path: str) -> ExplainModel:
    """The call that a file describes, in JSON or YAML; `-` is standard input. Raises ConfigError."""
    documents = read_documents(STANDARD_INPUT if path == "-" else path)
    if len(documents) != 1:
        raise ConfigError([Problem(path, 1, 1, f"expected one call, got {len(documents)} documents")])
    document = documents[0]
    try:
        return ExplainModel.model_validate(document.value)
    except ValidationError as error:
        found = problems_of(error, document.value, model=ExplainModel)
        raise ConfigError([document.problem(problem.path, problem.message) for problem in found]) from None


def explain_call(policies: PolicySet, model: ExplainModel, *, path: str) -> Explanation | ResultExplanation:
    """How the policies decide it. Raises ConfigError for an answer that is none."""
    try:
        return explain_model(policies, model)
    except ScriptError as error:
        raise ConfigError([Problem(path, 0, 0, f"answers: {error}")]) from None
