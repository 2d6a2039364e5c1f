from __future__ import annotations

import json

import pytest

from tests.commands.conftest import Run


@pytest.mark.parametrize("name", ["config", "policy", "test"])
def test_the_schema_of_a_kind_is_printed(name: str, run: Run) -> None:
    """As JSON."""
    status, told, _ = run("schema", name)
    assert status == 0
    assert json.loads(told)["properties"]["kind"]["const"] == {
        "config": "Config",
        "policy": "ToolPolicy",
        "test": "ToolPolicyTest",
    }.get(name)


def test_without_a_kind_there_is_one_for_all(run: Run) -> None:
    """It goes by what a document says that it is."""
    found = json.loads(run("schema")[1])
    assert found["properties"]["kind"]["enum"] == ["Config", "ToolPolicy", "ToolPolicyTest"]
