"""What is wrong with a document, and where: for policies and for any other file that pydantic models read.

A path is one inside the document (keys and list indexes) and names the key or value at fault. Files, lines and
columns are not known here; whoever read the file maps paths back to them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """One mistake in the document of that number (from 0, in the order given)."""

    document: int
    path: Path
    message: str


class PolicyProblems(Exception):  # noqa: N818  # it is raised for a list of mistakes
    """Policies that cannot be used: all their problems at once."""

    def __init__(self, problems: list[DocumentProblem]) -> None:
        super().__init__("\n".join(f"{p.document}: {dotted(p.path)}: {p.message}" for p in problems))
        self.problems = problems


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def misplaced(message: str, *below: str | int) -> PydanticCustomError:
    """What a validator of a model raises when a key below the model is at fault: the path is led on to it."""
    return PydanticCustomError("misplaced", "{text}", {"text": message, "below": below})


def suggestion(word: str, known: Sequence[str]) -> str:
    """` (did you mean 'x'?)` where a known word is close, nothing otherwise."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f" (did you mean '{lower[close[0]]}'?)" if close else ""


def problems_of(
    error: ValidationError, source: Any, *, model: type[BaseModel], document: int = 0
) -> list[DocumentProblem]:
    """The problems that reading `source` into `model` gave."""
    found = []
    for detail in error.errors(include_url=False):
        path = _inside(source, detail["loc"]) if detail["type"] != "missing" else _inside(source, detail["loc"][:-1])
        below = detail.get("ctx", {}).get("below", ())
        found.append(DocumentProblem(document, (*path, *below), _message(detail, model)))
    return found


def _inside(source: Any, loc: Sequence[str | int]) -> Path:
    """The part of a pydantic location that is a path in the source: pydantic also names branches of unions, and
    marks a key of a mapping that is itself at fault."""
    path: list[str | int] = []
    for step in loc:
        in_list = isinstance(source, list) and isinstance(step, int) and step < len(source)
        if in_list or (isinstance(source, dict) and step in source):
            source = source[step]
            path.append(step)
    return tuple(path)


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, ctx = detail["type"], detail["input"], detail.get("ctx", {})
    last = detail["loc"][-1] if detail["loc"] else ""
    if kind == "extra_forbidden":
        known = list(_keys_at(model, detail["loc"][:-1]))
        return f"unknown key '{last}'{suggestion(str(last), known)}: expected {_listed(known)}"
    if kind == "missing":
        return f"the key '{last}' is missing; expected '{last}: {_fixed_value(model, detail['loc'])}' here"
    if kind == "string_type":
        return _no_text(value)
    if kind == "literal_error":
        expected = str(ctx.get("expected", ""))
        known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
        return f"{_shown(value)} is not known{suggestion(str(value), known)}: expected {expected}"
    if kind == "greater_than_equal":
        return f"expected at least {ctx['ge']}, got {_shown(value)}"
    if kind == "greater_than":
        return f"expected more than {ctx['gt']:g}, got {_shown(value)}"
    if kind == "list_type" and isinstance(value, str):
        return f"expected a list, got '{value[:60]}': write [{value[:60]}]"
    if kind == "string_pattern_mismatch":
        return f"{_shown(value)} does not fit {ctx['pattern']}"
    if kind == "too_short":
        return "expected at least one entry"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {_shown(value)}"
    if kind == "value_error":
        return str(ctx.get("error", detail["msg"]))
    return detail["msg"]


_EXPECTED = {
    "model_type": "a mapping such as {key: value}, or {}",
    "dict_type": "a mapping such as {key: value}, or {}",
    "list_type": "a list such as [a, b]",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
}


def _no_text(value: Any) -> str:
    """YAML reads `no`, `1.10`, `12:30:00` and the like as something else than text; the writer meant text."""
    if value is None:
        return "expected text, got nothing (null)"
    if isinstance(value, dict | list):
        return f"expected text, got {_shown(value)}"
    return f"expected text, got {_shown(value)}: put it in quotes"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"the truth value {str(value).lower()}"
        case int() | float():
            return f"the number {str(value).removesuffix('.0')[:40]}"
        case str():
            return f"'{value[:60]}'"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"the {type(value).__name__} {str(value)[:40]}"


def _listed(known: Sequence[str]) -> str:
    return "no keys here" if not known else "one of " + ", ".join(sorted(known)[:24])


def _keys_at(model: type[BaseModel], loc: Sequence[str | int]) -> Iterator[str]:
    """The keys that the model at this location knows."""
    found = _model_at(model, loc)
    for name, field in (found.model_fields if found is not None else {}).items():
        yield field.alias or name


def _fixed_value(model: type[BaseModel], loc: Sequence[str | int]) -> str:
    """The one value that the key at this location may have; dots where it may have several."""
    found = _model_at(model, loc[:-1])
    for name, field in (found.model_fields if found is not None else {}).items():
        values: tuple[Any, ...] = getattr(field.annotation, "__args__", ())
        if loc[-1] in (name, field.alias) and len(values) == 1 and isinstance(values[0], str):
            return values[0]
    return "…"


def _model_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for step in loc:
        if found is not None and isinstance(step, str):
            found = next(
                (_model_in(f.annotation) for n, f in found.model_fields.items() if step in (n, f.alias)), found
            )
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `list[Rule] | None` holds, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = getattr(annotation, "__args__", ())
    return next((model for part in inner if (model := _model_in(part)) is not None), None)
