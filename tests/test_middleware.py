"""What middleware is given and may give."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, cast

import pytest

from proxy.middleware import Allow, Answer, Block, Call, Rewrite


def test_a_call_shows_what_the_contract_lists() -> None:
    """Name, id, arguments, owner, and facts of the request."""
    names = {field.name for field in fields(Call)}
    assert {"name", "call_id", "args", "raw_args", "owner", "declared", "model", "api", "client", "tenant"} <= names
    assert {"user", "metadata", "headers", "namespace"} <= names


@pytest.mark.parametrize("decision", [Allow(), Block(), Block("no"), Answer("x"), Rewrite({"a": 1})])
def test_decisions_are_values(decision: Any) -> None:
    """They are equal by what they say, and do not change."""
    copy = type(decision)(*(getattr(decision, field.name) for field in fields(decision)))
    assert copy == decision
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        cast(Any, decision).message = "other"
