"""Rewriting arguments: merge patch, defaults, clamps, JSON patch, expression.

Every change makes a new value and leaves the old one alone; values that are not changed keep their spelling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.jsontext import Json, Object
from proxy.core.policy.expressions import Expression, Scope
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.model import PatchModel, RewriteModel
from proxy.core.policy.values import ABSENT, Steps, is_number, look_up, same

Change = Callable[[Object, Callable[[Object], Scope]], Object]
"""The new object from the old one; the second argument gives the variables once the old one is `args`."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    changes: tuple[Change, ...]
    expression: Expression | None
    original_history: bool

    @classmethod
    def compile(cls, model: RewriteModel) -> Rewrite:
        changes: list[Change] = []
        if model.merge is not None:
            changes.append(_merging(dict(model.merge)))
        if model.default is not None:
            changes.append(_defaulting(dict(model.default)))
        if model.clamp is not None:
            changes.append(_clamping([(tuple(path.split(".")), c.min, c.max) for path, c in model.clamp.items()]))
        if model.patch is not None:
            changes.append(_patching(model.patch))
        expression = None if model.expr is None else Expression.compile(model.expr)
        if expression is not None:
            changes.append(_computing(expression))
        return cls(tuple(changes), expression, model.history == "original")

    def new(self, arguments: Object, scope: Callable[[Object], Scope]) -> Object:
        """Raises EvaluationError."""
        for change in self.changes:
            arguments = change(arguments, scope)
        return arguments


def _merging(patch: Object) -> Change:
    return lambda old, _: _merged_object(old, patch)


def _merged_object(old: Json, patch: Object) -> Object:
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged_object(new.get(key), value) if isinstance(value, dict) else value
    return new


def _defaulting(values: Object) -> Change:
    return lambda old, _: {**old, **{key: value for key, value in values.items() if key not in old}}


def _clamping(bounds: list[tuple[Steps, float | None, float | None]]) -> Change:
    def change(old: Object, _: object) -> Object:
        for steps, least, most in bounds:
            value = look_up(old, steps)
            if value is ABSENT:
                continue
            if not is_number(value):
                raise EvaluationError(f"{'.'.join(steps)} is no number")
            assert isinstance(value, int | float)
            within = (
                least if least is not None and value < least else most if most is not None and value > most else None
            )
            if within is not None:
                old = _as_object(_put(old, steps, _replacing(within)))
        return old

    return change


def _computing(expression: Expression) -> Change:
    return lambda old, scope: expression.object(scope(old), old)


def _as_object(value: Json) -> Object:
    if not isinstance(value, dict):
        raise EvaluationError("the arguments are no object any more")
    return value


# ---------------------------------------------------------------- JSON patch

Edit = Callable[[dict[str, Json] | list[Json], str], None]
"""Changes a container, which is a copy already, at a step."""


def _put(value: Json, steps: Steps, edit: Edit) -> Json:
    """The value with an edit made in the container of the last step; containers on the way are copied."""
    if not isinstance(value, dict | list):
        raise EvaluationError(f"there is no '{steps[0]}' to change")
    copy: dict[str, Json] | list[Json] = dict(value) if isinstance(value, dict) else list(value)
    if len(steps) == 1:
        edit(copy, steps[0])
    elif isinstance(copy, dict):
        if steps[0] not in copy:
            raise EvaluationError(f"there is no '{steps[0]}' to change")
        copy[steps[0]] = _put(copy[steps[0]], steps[1:], edit)
    else:
        at = _index(steps[0], len(copy))
        copy[at] = _put(copy[at], steps[1:], edit)
    return copy


def _index(step: str, length: int) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0") or int(step) >= length:
        raise EvaluationError(f"there is no item '{step[:40]}' in a list of {length}")
    return int(step)


def _replacing(new: Json) -> Edit:
    def edit(container: dict[str, Json] | list[Json], step: str) -> None:
        if isinstance(container, list):
            container[_index(step, len(container))] = new
        elif step in container:
            container[step] = new
        else:
            raise EvaluationError(f"there is no '{step}' to replace")

    return edit


def _adding(new: Json) -> Edit:
    def edit(container: dict[str, Json] | list[Json], step: str) -> None:
        if isinstance(container, dict):
            container[step] = new
        else:
            container.insert(len(container) if step == "-" else _index(step, len(container) + 1), new)

    return edit


def _removing(container: dict[str, Json] | list[Json], step: str) -> None:
    if isinstance(container, list):
        del container[_index(step, len(container))]
    elif container.pop(step, ABSENT) is ABSENT:
        raise EvaluationError(f"there is no '{step}' to remove")


def _pointer(text: str) -> Steps:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _at(value: Json, steps: Steps) -> Json:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(step, len(value))]
        else:
            raise EvaluationError(f"there is no '{step}'")
    return value


@dataclass(frozen=True, slots=True)
class _Operation:
    op: str
    path: Steps
    source: Steps
    value: Json


def _patching(models: list[PatchModel]) -> Change:
    operations = [_Operation(m.op, _pointer(m.path), _pointer(m.from_ or ""), m.value) for m in models]

    def change(old: Object, _: object) -> Object:
        new: Json = old
        for operation in operations:
            new = _patched(new, operation)
        return _as_object(new)

    return change


def _patched(value: Json, operation: _Operation) -> Json:
    match operation.op:
        case "test":
            if not same(_at(value, operation.path), operation.value):
                raise EvaluationError("a test of the patch fails")
            return value
        case "remove":
            return _edited(value, operation.path, _removing)
        case "replace":
            return _edited(value, operation.path, _replacing(operation.value), whole=operation.value)
        case "add":
            return _edited(value, operation.path, _adding(operation.value), whole=operation.value)
        case "move":
            moved = _at(value, operation.source)
            if operation.path[: len(operation.source)] == operation.source:
                raise EvaluationError("a value cannot be moved into itself")
            return _edited(_edited(value, operation.source, _removing), operation.path, _adding(moved), whole=moved)
        case _:
            copied = _at(value, operation.source)
            return _edited(value, operation.path, _adding(copied), whole=copied)


def _edited(value: Json, path: Steps, edit: Edit, whole: Json = None) -> Json:
    return _put(value, path, edit) if path else whole
