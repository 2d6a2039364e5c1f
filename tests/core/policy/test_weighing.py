from __future__ import annotations

import pytest

from proxy.core.jsontext import Json, Object
from proxy.core.policy.weighing import check_weight


def doubling(levels: int, name: str = "/$defs/a{}", **more: Json) -> Json:
    """Definitions of which each stands for two of the next."""
    definitions: Object = {}
    for level in range(levels):
        ref = "#" + name.format(level + 1)
        definitions[f"a{level}"] = {"allOf": [{"$ref": ref}, {"$ref": ref}], "$anchor": f"a{level}"}
    definitions[f"a{levels}"] = {"type": "string", "$anchor": f"a{levels}", **more}
    return {"$defs": definitions, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize(
    "schema",
    [doubling(40), doubling(40, "a{}"), doubling(40, "/%24defs/a{}"), doubling(40, items={"$ref": "#/$defs/a0"})],
)
def test_a_schema_that_stands_for_millions_is_refused(schema: Json) -> None:
    """References by pointer and by anchor are followed, in circles too."""
    with pytest.raises(ValueError, match="parts"):
        check_weight(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        doubling(8),
        {"$ref": "#"},
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"anyOf": [{"type": "string"}, {"$ref": "#/anyOf/0"}], "not": {"$ref": "#/no/such"}},
        {"$ref": "#/anyOf/7", "anyOf": []},
    ],
)
def test_ordinary_schemas_pass(schema: Json) -> None:
    """Trees, circles and references to nothing weigh little."""
    check_weight(schema)


@pytest.mark.parametrize("reference", ["other.json", "http://127.0.0.1/x#y"])
def test_a_reference_out_of_the_schema_is_refused(reference: str) -> None:
    """What cannot be followed cannot be weighed."""
    with pytest.raises(ValueError, match="leads out"):
        check_weight({"$ref": reference})
