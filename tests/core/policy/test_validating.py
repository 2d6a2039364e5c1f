from __future__ import annotations

import pytest

from proxy.core.jsontext import Json, SpelledFloat, SpelledInt
from proxy.core.policy.validating import Schema

LIMIT: Json = {"type": "object", "properties": {"limit": {"type": "integer", "maximum": 10}}, "required": ["limit"]}


def test_complaints_name_the_place_and_the_value() -> None:
    """What does not fit is told so that the writer can mend it."""
    schema = Schema.compile(LIMIT)
    assert schema.complaints({"limit": 4711}) == "4711 is greater than the maximum of 10 (at /limit)"
    assert schema.complaints({"limit": SpelledInt("-0"), "x": SpelledFloat("1.50")}) == ""
    assert schema.accepts({"limit": 1})
    assert not schema.accepts({})


def test_complaints_are_short() -> None:
    """Neither many nor long complaints flood the model."""
    schema = Schema.compile({"items": {"maxLength": 3}})
    said = schema.complaints(["x" * 10_000] * 100)
    assert said.endswith("; and more")
    assert len(said) < 2_000


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "file:///etc/passwd"},
        {"pattern": "(?=a)b"},
        {"type": "nope"},
        {"$schema": "http://unknown/x"},
        {"pattern": "a{1000}{1000}{1000}"},
        "text",
        None,
        [1],
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Json) -> None:
    """Nothing is fetched, and nothing that is not linear is run."""
    with pytest.raises(ValueError, match="JSON Schema"):
        Schema.compile(schema)
