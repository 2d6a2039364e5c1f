from __future__ import annotations

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.names import NamedTool
from proxy.core.policy.schemas import DeclaredSchemas

SCHEMAS = DeclaredSchemas(
    RequestFacts(declared={"t": {"required": ["a"]}, "n.t": False, "n.bad": True, "bad": {"type": 1}, "none": None})
)


def test_a_schema_is_found_by_any_name_of_the_tool_and_kept() -> None:
    """As written and as run."""
    found = SCHEMAS.of(NamedTool.of("functions.t"))
    assert found is not None
    assert found is SCHEMAS.required(NamedTool.of("t"))


def test_a_namespaced_tool_has_the_schema_behind_its_namespace() -> None:
    """A tool of the same name outside it is another tool, for which another schema stands."""
    for tool in (NamedTool.of("t", "n"), NamedTool.of("functions.t", "n"), NamedTool.of("n.t")):
        namespaced = SCHEMAS.required(tool)
        assert namespaced is not None
        assert not namespaced.accepts({"a": 1})
    assert SCHEMAS.required(NamedTool.of("t", "m")) is None
    assert SCHEMAS.required(NamedTool.of("bad", "n")) is not None


def test_a_schema_that_cannot_be_used_is_an_error_to_who_needs_it() -> None:
    """And none to who only asks."""
    bad = NamedTool.of("bad")
    assert SCHEMAS.of(bad) is None
    with pytest.raises(EvaluationError, match="JSON Schema"):
        SCHEMAS.required(bad)


def test_a_tool_may_have_none() -> None:
    """Undeclared, or declared without."""
    assert SCHEMAS.required(NamedTool.of("none")) is None
    assert SCHEMAS.required(NamedTool.of("other")) is None
