"""Reading the template of a sidecar: one YAML document, as the chart writes it into a ConfigMap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.configfile import read_remote
from proxy.errors import ConfigError, Problem
from proxy.injector.patching import Template
from proxy.injector.pods import items
from proxy.yamlfile import Document, read_documents

_KINDS: dict[str, type] = {
    "container": dict,
    "config": str,
    "native": bool,
    "first": list,
    "volumes": list,
    "env": list,
    "labels": dict,
    "annotations": dict,
}
_WORDS = {dict: "a mapping", str: "text", bool: "true or false", list: "a list of mappings"}


def read_template(path: Path | str) -> Template:
    """The sidecar that is put into pods. Raises ConfigError with every problem."""
    documents = read_documents(path)
    found: Any = documents[0].value if len(documents) == 1 else None
    if not isinstance(found, dict):
        raise ConfigError([Problem(str(path), 1, 1, "expected one mapping: a sidecar as the chart renders it")])
    [document] = documents
    if problems := _problems(document, found):
        raise ConfigError(problems)
    read_remote(found["config"], f"{path}: config")
    return Template(
        container=found["container"],
        config=found["config"],
        is_native=found.get("native", True),
        first=tuple(found.get("first", ())),
        volumes=tuple(found.get("volumes", ())),
        env=tuple(found.get("env", ())),
        labels=found.get("labels", {}),
        annotations=found.get("annotations", {}),
    )


def _problems(document: Document, found: dict[str, Any]) -> list[Problem]:
    problems = [
        document.problem((), f"the key '{key}' is missing") for key in ("container", "config") if key not in found
    ]
    for key, value in found.items():
        kind = _KINDS.get(key)
        if kind is None:
            problems.append(document.problem((key,), f"unknown key '{key}'; expected one of {', '.join(_KINDS)}"))
        elif not isinstance(value, kind) or (isinstance(value, list) and len(items(value)) != len(value)):
            problems.append(document.value_problem((key,), f"expected {_WORDS[kind]}"))
    return problems
