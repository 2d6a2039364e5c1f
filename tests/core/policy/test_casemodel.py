from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.core.policy.casemodel import CaseModel, CasesDocument, ExplainModel
from proxy.core.policy.problems import problems_of

CALL = {"tool": "t"}
WELL = {"name": "n", "call": CALL, "expect": {"decision": "allowed"}}


def problems(source: Any, model: Any = CaseModel) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as raised:
        model.model_validate(source)
    return [(problem.path, problem.message) for problem in problems_of(raised.value, source, model=model)]


def test_a_case_has_a_call_a_batch_or_a_result() -> None:
    """What a result is the result of is a call."""
    for given in (WELL, {**WELL, "call": None, "batch": [CALL], "expect": {"ends": "pass"}}):
        assert CaseModel.model_validate({k: v for k, v in given.items() if v is not None})
    found = CaseModel.model_validate({**WELL, "result": "text", "expect": {"outcome": "ok"}})
    assert found.result is not None
    assert (found.result.text, found.result.is_error) == ("text", False)
    error = CaseModel.model_validate({**WELL, "result": {"text": "x", "isError": True}, "expect": {"outcome": "ok"}})
    assert error.result is not None
    assert error.result.is_error


@pytest.mark.parametrize(
    ("case", "path", "message"),
    [
        ({"name": "n", "expect": {"decision": "allowed"}}, (), "expected either call or batch"),
        ({**WELL, "batch": [CALL]}, (), "expected either call or batch"),
        ({"name": "n", "call": CALL}, (), "the key 'expect' is missing: a case expects something"),
        (
            {"name": "n", "batch": [CALL], "result": "x", "expect": {"ends": "pass"}},
            ("result",),
            "expected call beside",
        ),
        ({**WELL, "expect": {}}, ("expect",), "expected at least one expectation"),
        ({**WELL, "expect": {"order": []}}, ("expect", "order"), "'order' cannot be expected of a call"),
        ({**WELL, "expect": {"outcome": "ok"}}, ("expect", "outcome"), "'outcome' cannot be expected of a call"),
        (
            {**WELL, "result": "x", "expect": {"decision": "allowed"}},
            ("expect", "decision"),
            "'decision' cannot be expected of a result",
        ),
        (
            {"name": "n", "batch": [CALL], "expect": {"rawArgs": "{}"}},
            ("expect", "rawArgs"),
            "'rawArgs' cannot be expected of a batch",
        ),
        (
            {"name": "n", "batch": [{**CALL, "expect": {"ends": "pass"}}]},
            ("batch", 0, "expect", "ends"),
            "'ends' cannot be expected of a call",
        ),
        (
            {**WELL, "expect": {"decision": "block"}},
            ("expect", "decision"),
            "'block' is not known (did you mean 'blocked'",
        ),
        ({**WELL, "expct": {}}, ("expct",), "unknown key 'expct' (did you mean 'expect'?)"),
        (
            {**WELL, "call": {"tool": True}},
            ("call", "tool"),
            "expected text, got the truth value true: put it in quotes",
        ),
        ({**WELL, "call": {}}, ("call",), "the key 'tool' is missing"),
        (
            {**WELL, "call": {"tool": "t", "args": {}, "rawArgs": "{}"}},
            ("call", "rawArgs"),
            "there is 'args' already; expected one of args, rawArgs and input",
        ),
        ({**WELL, "declared": "search"}, ("declared",), "expected a list of tool names, or a mapping"),
        (
            {**WELL, "expect": {"errors": ["r"]}},
            ("expect", "errors", 0),
            "expected a rule with its policy, such as orders/no-deletes, got 'r'",
        ),
    ],
)
def test_a_mistake_is_told_where_it_is(case: Any, path: Any, message: str) -> None:
    """An expectation without a meaning is one too: it would always hold."""
    ((found, told),) = problems(case)
    assert found == path
    assert told.startswith(message)


def test_declared_tools_are_names_or_have_schemas() -> None:
    """A name alone has no schema."""
    names = CaseModel.model_validate({**WELL, "declared": ["a", "b"]})
    assert names.declared == {"a": None, "b": None}
    schemas = CaseModel.model_validate({**WELL, "declared": {"a": {"type": "object"}, "b": None}})
    assert schemas.declared == {"a": {"type": "object"}, "b": None}


def test_names_of_cases_differ() -> None:
    """A report names a case by its name."""
    source = {
        "apiVersion": "sidecall.io/v1",
        "kind": "ToolPolicyTest",
        "metadata": {"name": "t"},
        "cases": [WELL, {**WELL, "name": "m"}, WELL],
    }
    ((path, message),) = problems(source, CasesDocument)
    assert (path, message) == (("cases", 2, "name"), "there is a case 'n' already; expected a name of its own")


def test_a_call_to_explain_has_its_request_beside_it() -> None:
    """In one mapping, and a result if there is one."""
    found = ExplainModel.model_validate({"tool": "t", "args": {"a": 1}, "model": "m", "result": "x", "isError": True})
    assert (found.tool, found.model, found.result, found.is_error) == ("t", "m", "x", True)
