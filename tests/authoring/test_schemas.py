from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from proxy.authoring.examples import EXAMPLES
from proxy.authoring.schemas import files, schema_of, schema_of_all
from proxy.yamlfile import read_documents
from tests.authoring.files import CASES, CONFIG, POLICY, write

ROOT = Path(__file__).parent.parent.parent
ALL = schema_of_all()


def complaints(document: Any, schema: dict[str, Any] = ALL) -> list[str]:
    return [
        "/".join(map(str, error.instance_path)) for error in jsonschema_rs.validator_for(schema).iter_errors(document)
    ]


def test_the_files_are_those_of_the_models() -> None:
    """`sidecall schema` and docs/schemas/ say the same; `make schemas` renews them."""
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "schemas").glob("*.json")}
    assert kept == dict(files())


@pytest.mark.parametrize("name", ["config", "policy", "test"])
def test_a_schema_is_one_that_editors_know(name: str) -> None:
    """Of the draft that their language server reads, with a title, and with a description for every key."""
    schema = schema_of(name)
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["title"].startswith("Sidecall ")
    models = {"root": schema, **schema["definitions"]}
    bare = [
        f"{model}.{key}"
        for model, part in models.items()
        for key, value in part.get("properties", {}).items()
        if "description" not in {**schema["definitions"].get(value.get("$ref", "").rpartition("/")[2], {}), **value}
    ]
    assert bare == []
    assert all(part.get("title") for part in models.values())
    assert set(schema["required"]) >= {"apiVersion", "kind"}


def test_what_the_models_take_the_schema_takes() -> None:
    """Ready policies, their cases, and the configuration."""
    for path in [*(ROOT / "policies").rglob("*.yaml")]:
        for document in read_documents(path):
            assert complaints(document.value) == [], path
    write(policy=POLICY, cases=CASES, sidecall=CONFIG)
    for name in ("policy", "cases", "sidecall"):
        assert complaints(read_documents(f"{name}.yaml")[0].value) == []


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({"rules": [{"name": "r", "blok": {}}]}, "spec/rules/0"),
        ({"rules": [{"name": "r", "allow": {}, "block": {}}]}, "spec/rules/0"),
        ({"rules": [{"name": "r", "block": None}]}, "spec/rules/0/block"),
        ({"rules": [{"name": "r", "limit": {"max": 0, "per": "1m"}}]}, "spec/rules/0/limit/max"),
        ({"rules": [{"name": "r", "limit": {"max": 1, "per": "soon"}}]}, "spec/rules/0/limit/per"),
        ({"mode": "shade"}, "spec/mode"),
    ],
)
def test_an_editor_marks_what_is_wrong(document: Any, at: str) -> None:
    """Where it is."""
    policy = {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy", "metadata": {"name": "p"}, "spec": document}
    assert at in complaints(policy)
    assert complaints({**policy, "spec": {}}) == []


def test_the_kind_of_a_document_tells_its_schema() -> None:
    """One of another kind is none of ours."""
    assert complaints({"apiVersion": "sidecall.io/v1", "kind": "Deployment"}) == ["kind"]
    assert complaints({"apiVersion": "sidecall.io/v1", "kind": "ToolPolicyTest"}) == [""] * 2
    assert complaints({"kind": "Config", "apiVersion": "sidecall.io/v1", "listen": {"prot": 1}}) == ["listen"]


def test_a_key_that_asks_for_nothing_when_it_is_left_out_has_no_default() -> None:
    """An editor would fill it in, and change what the rule is for."""
    for model in ("MatchModel", "ConditionModel"):
        parts = schema_of("policy")["definitions"][model]["properties"].values()
        assert [part for part in parts if "default" in part] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_what_they_are_examples_of(name: str) -> None:
    """An editor shows them."""
    roots = {"PolicyDocument": "ToolPolicy", "CasesDocument": "ToolPolicyTest"}
    schema = {
        "$schema": ALL["$schema"],
        "$ref": f"#/definitions/{roots.get(name, name)}",
        "definitions": ALL["definitions"],
    }
    for example in EXAMPLES[name]:
        assert complaints(example, schema) == []
    assert json.dumps(EXAMPLES[name]) in json.dumps(ALL)
