"""JSON Schemas for editors: of a configuration, a policy and a test document, made of the models that read them.

An editor completes keys, shows what they are for, and marks what is wrong while it is written. What only the reader can
judge (whether an expression compiles, whether a name is taken) stays with `sidecall check`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from proxy.authoring.examples import EXAMPLES
from proxy.config import Config
from proxy.core.policy.casemodel import CasesDocument
from proxy.core.policy.model import ACTIONS, PolicyDocument
from proxy.core.policy.quantities import spelled_duration

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that the language server of YAML files knows."""
MODELS: dict[str, type[BaseModel]] = {"config": Config, "policy": PolicyDocument, "test": CasesDocument}
TITLES = {"config": "Sidecall configuration", "policy": "Sidecall policy", "test": "Sidecall policy test"}
KINDS = {"config": "Config", "policy": "ToolPolicy", "test": "ToolPolicyTest"}

_GIVEN_COUNTS = frozenset({"MatchModel", "ConditionModel", "ExpectModel"})
"""In these a key that is left out asks for nothing, so that a default would mislead."""
_NO_NULL = {"RuleModel": frozenset(ACTIONS), "ResultModel": frozenset({"redact", "replace", "truncate", "block"})}
"""Keys that are left out or given, but never null."""


def schema_of(name: str) -> dict[str, Any]:
    """The schema of one kind of document: config, policy or test."""
    model = MODELS[name]
    found = model.model_json_schema(ref_template="#/definitions/{model}")
    definitions = {key: _tidied(key, part) for key, part in found.pop("$defs").items()}
    root = _tidied(model.__name__, found)
    root["title"] = TITLES[name]
    root["required"] = ["apiVersion", "kind", *(k for k in root.get("required", ()) if k not in ("apiVersion", "kind"))]
    return {"$schema": DRAFT, **root, "definitions": definitions}


def schema_of_all() -> dict[str, Any]:
    """One schema for all kinds: a document is judged by what its `kind` says."""
    choices: list[Any] = []
    definitions: dict[str, Any] = {}
    for name, kind in KINDS.items():
        found = schema_of(name)
        del found["$schema"]
        parts = {**found.pop("definitions"), kind: found}
        clashing = [key for key, part in parts.items() if definitions.get(key, part) != part]
        assert not clashing, f"these models have one name: {clashing}"
        definitions.update(parts)
        is_kind = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
        choices.append({"if": is_kind, "then": {"$ref": f"#/definitions/{kind}"}})
    return {
        "$schema": DRAFT,
        "title": "Sidecall",
        "description": "A configuration, a policy or a policy test of Sidecall, as its kind says.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"const": "sidecall.io/v1"},
            "kind": {"enum": list(KINDS.values()), "description": "What the document is."},
        },
        "allOf": choices,
        "definitions": definitions,
    }


def rendered(schema: dict[str, Any]) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def files() -> Iterator[tuple[str, str]]:
    """Every schema file, by name."""
    yield "sidecall.schema.json", rendered(schema_of_all())
    for name in MODELS:
        yield f"{name}.schema.json", rendered(schema_of(name))


def _tidied(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A model's schema with a title that is a word, without defaults that say nothing, and with examples."""
    found = dict(schema)
    found["title"] = name.removesuffix("Model").removesuffix("Document")
    if "properties" in found:
        found["properties"] = {key: _tidied_key(name, key, part) for key, part in found["properties"].items()}
    if name in EXAMPLES:
        found["examples"] = EXAMPLES[name]
    return found


def _tidied_key(model: str, key: str, schema: dict[str, Any]) -> dict[str, Any]:
    found = {word: value for word, value in schema.items() if word != "title"}
    default = found.get("default")
    if model in _GIVEN_COUNTS or default is None or isinstance(default, dict | list):
        found.pop("default", None)
    if isinstance(default, float) and found.get("type") == "string":
        found["default"] = spelled_duration(default)
    if key in _NO_NULL.get(model, ()):
        (only,) = (part for part in found.pop("anyOf") if part != {"type": "null"})
        found = {**only, **found}
    return found
