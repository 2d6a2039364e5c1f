from __future__ import annotations

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.names import NamedTool
from proxy.core.policy.schemas import DeclaredSchemas

SCHEMAS = DeclaredSchemas(
    RequestFacts(declared={"t": {"required": ["a"]}, "n.t": False, "bad": {"type": 1}, "none": None})
)


def test_a_schema_is_found_by_any_name_of_the_tool_and_kept() -> None:
    """As written, as run, and behind the namespace."""
    found = SCHEMAS.of(NamedTool.of("functions.t"), "functions.t")
    assert found is not None
    assert found is SCHEMAS.required(NamedTool.of("t"), "t")
    namespaced = SCHEMAS.of(NamedTool.of("x.t", "n"), "n.t")
    assert namespaced is not None
    assert not namespaced.accepts({})


def test_a_schema_that_cannot_be_used_is_an_error_to_who_needs_it() -> None:
    """And none to who only asks."""
    bad = NamedTool.of("bad")
    assert SCHEMAS.of(bad, "bad") is None
    with pytest.raises(EvaluationError, match="JSON Schema"):
        SCHEMAS.required(bad, "bad")


def test_a_tool_may_have_none() -> None:
    """Undeclared, or declared without."""
    assert SCHEMAS.required(NamedTool.of("none"), "none") is None
    assert SCHEMAS.required(NamedTool.of("other"), "other") is None
