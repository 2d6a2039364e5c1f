"""Arguments that policies read although they may not be there: what is suspicious, and no mistake.

An expression that reads an argument, a header or metadata without asking first whether it is there fails to evaluate
where it is not; and a path that no tool's schema has is most often a slip of the pen. Schemas are those of the tools
that a configuration declares, and count only for rules that name such tools alone: of others nothing is known. Works on
policy documents that compile; must not know files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.policy.names import fold
from proxy.core.policy.scanning import Read, scan, unguarded

_MARKS = "*?["
_HOLDS_FOR_NOTHING = frozenset({"notIn", "notGlob", "notInside", "notHost"})
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something odd: in which document, where in it, and what."""

    document: int
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule with its policy's `match`, and the schemas of the tools that it names, where all are known."""

    path: Path
    value: Mapping[str, Any]
    matches: tuple[Mapping[str, Any], ...]
    schemas: tuple[Any, ...]

    @property
    def expressions(self) -> Iterator[tuple[Path, str]]:
        for keys in (("when",), ("answer", "expr"), ("rewrite", "expr")):
            found: Any = self.value
            for key in keys:
                found = found.get(key) if isinstance(found, dict) else None
            if isinstance(found, str):
                yield (*self.path, *keys), found

    @property
    def argument_paths(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """The dotted paths of arguments, and where they stand."""
        for path in (self.value.get("match") or {}).get("args") or {}:
            yield (*self.path, "match", "args", path), tuple(path.split("."))
        for path in (self.value.get("rewrite") or {}).get("clamp") or {}:
            yield (*self.path, "rewrite", "clamp", path), tuple(path.split("."))
        for index, part in enumerate((self.value.get("limit") or {}).get("by") or ()):
            if part.startswith("args."):
                yield (*self.path, "limit", "by", index), tuple(part.split(".")[1:])
        for place, expression in self.expressions:
            for read in scan(expression).reads:
                if read[0] == "args" and len(read) > 1:
                    yield place, read[1:]


def suspicious_reads(documents: Sequence[Any], schemas: Mapping[str, Any]) -> Iterator[Suspicion]:
    """What is odd in the documents of a set. `schemas` are those of tools that are known, by name."""
    known = {fold(name): schema for name, schema in schemas.items()}
    for number, document in enumerate(documents):
        spec = document.get("spec") or {}
        for index, rule in enumerate(spec.get("rules") or ()):
            matches = tuple(match for match in (spec.get("match"), rule.get("match")) if match)
            found = _Rule(("spec", "rules", index), rule, matches, _schemas_of(matches, known))
            for place, message in (*_unasked(found), *_unknown(found)):
                yield Suspicion(number, place, message)


def _schemas_of(matches: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> tuple[Any, ...]:
    """The schemas of the tools that a rule is for; none where one of them is not known."""
    for match in reversed(matches):
        if "tools" in match:
            names = match["tools"]
            if any(mark in name for name in names for mark in _MARKS) or any(fold(n) not in known for n in names):
                return ()
            return tuple(known[fold(name)] for name in names)
    return ()


# ---------------------------------------------------------------- reads without asking


def _unasked(rule: _Rule) -> Iterator[tuple[Path, str]]:
    guarded = set(_guards(rule.matches))
    for place, expression in rule.expressions:
        for read in unguarded(expression, guarded):
            if read[0] == "args" and rule.schemas and all(_requires(schema, read[1:]) for schema in rule.schemas):
                continue
            yield place, _advice(read)


def _advice(read: Read) -> str:
    variable, key = ".".join(read[:-1]), read[-1]
    dotted = ".".join(read)
    if read[0] == "args" and key.isidentifier():
        return f"{dotted} is read without has({dotted}): where it is absent, the rule cannot be evaluated"
    return (
        f"{variable}['{key}'] is read without '{key}' in {variable}: where it is absent, the rule cannot be evaluated"
    )


def _guards(matches: Sequence[Mapping[str, Any]]) -> Iterator[Read]:
    """What is there wherever the plain conditions of a rule hold."""
    for match in matches:
        for name in match.get("headers") or {}:
            yield "headers", name.lower()
        for path, condition in (match.get("args") or {}).items():
            wants = {key for key in condition if key not in _HOLDS_FOR_NOTHING}
            if wants - {"present"} or condition.get("present"):
                steps = path.split(".")
                yield from (("args", *steps[: length + 1]) for length in range(len(steps)))


def _requires(schema: Any, steps: Sequence[str]) -> bool:
    """Whether what fits a schema has an argument for sure."""
    for step in steps:
        if not isinstance(schema, dict) or step not in (schema.get("required") or ()):
            return False
        schema = (schema.get("properties") or {}).get(step)
    return True


# ---------------------------------------------------------------- paths that nobody knows


def _unknown(rule: _Rule) -> Iterator[tuple[Path, str]]:
    for place, steps in rule.argument_paths:
        if rule.schemas and not any(_may_have(schema, steps) for schema in rule.schemas):
            yield place, f"the schema of the tool has no argument '{'.'.join(steps)}'"


def _may_have(schema: Any, steps: Sequence[str]) -> bool:
    """Whether what fits a schema may have an argument, as far as its properties tell."""
    for step in steps:
        if not isinstance(schema, dict):
            return True
        if step.isdecimal() and "items" in schema:
            schema = schema["items"]
            continue
        properties = schema.get("properties")
        if not isinstance(properties, dict) or any(key in schema for key in _OPEN_ENDED):
            return True
        if step not in properties:
            return bool(schema.get("additionalProperties"))
        schema = properties[step]
    return True


_OPEN_ENDED = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
