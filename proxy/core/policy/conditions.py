"""`match.args`: plain conditions on arguments by dotted path.

Of a value that is absent or null only the negative conditions hold: what cannot be seen to be safe is not. A
value of a type that a condition cannot judge raises `UnjudgeableError`. Where a text has several readings (paths,
hosts), a rule that can hold a call takes the reading under which the condition holds, and a rule that lets
calls go ahead asks that it hold under all. What does not hold is told by its key, so that it can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.jsontext import Json, Object
from proxy.core.policy.failures import UnjudgeableError
from proxy.core.policy.folders import Folder
from proxy.core.policy.hosts import hosts_of, is_private, normal_pattern
from proxy.core.policy.patterns import Glob, Pattern
from proxy.core.policy.values import ABSENT, Found, Steps, is_number, look_up, same

PRIVATE = "private"

Check = Callable[[Any, bool], bool]
"""Whether a condition holds for a value that is there and not null; the flag asks for all readings."""


@dataclass(frozen=True, slots=True)
class _One:
    key: str
    check: Check
    holds_for_nothing: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """The conditions on the value behind one path; all must hold."""

    path: Steps
    present: bool | None
    type: str | None
    checks: tuple[_One, ...]
    given: Mapping[str, Any] = field(compare=False, repr=False)

    def miss(self, arguments: Object, *, for_all_readings: bool) -> str:
        """The key of the first condition that does not hold, whatever else cannot be judged; empty when all hold. What
        cannot be judged does not hold under all readings, and raises UnjudgeableError otherwise."""
        value = look_up(arguments, self.path)
        if self.present is not None and self.present is (value is ABSENT):
            return "present"
        if self.type is not None and (value is ABSENT or not TYPES[self.type](value)):
            return "type"
        nothing = value is ABSENT or value is None
        failure: UnjudgeableError | None = None
        for one in self.checks:
            try:
                if not (one.holds_for_nothing if nothing else one.check(value, for_all_readings)):
                    return one.key
            except UnjudgeableError as error:
                if for_all_readings:
                    return one.key
                failure = UnjudgeableError(f"args.{'.'.join(self.path)} ({one.key}): {error}")
        if failure is not None:
            raise failure
        return ""

    def holds(self, arguments: Object, *, for_all_readings: bool) -> bool:
        return not self.miss(arguments, for_all_readings=for_all_readings)


Miss = tuple[Condition, str]
"""The conditions on an argument, and the key of the one among them that does not hold."""


def first_miss(conditions: Iterable[Condition], arguments: Object, *, for_all_readings: bool) -> Miss | None:
    """The first condition that does not hold, whatever else cannot be judged; None when all hold. Raises
    UnjudgeableError."""
    failure: UnjudgeableError | None = None
    for one in conditions:
        try:
            if key := one.miss(arguments, for_all_readings=for_all_readings):
                return one, key
        except UnjudgeableError as error:
            failure = error
    if failure is not None:
        raise failure
    return None


def conditions_hold(conditions: Iterable[Condition], arguments: Object, *, for_all_readings: bool) -> bool:
    """Whether all hold. Raises UnjudgeableError."""
    return first_miss(conditions, arguments, for_all_readings=for_all_readings) is None


def compile_condition(path: str, given: Mapping[str, Any]) -> Condition:
    """The condition that a document gives, by its keys there. Values are of the right type; raises ValueError."""
    steps = tuple(path.split("."))
    if not all(steps):
        raise ValueError(f"expected a dotted path of keys, got '{path}'")
    if not given:
        raise ValueError("expected at least one condition")
    checks = [_One(key, _CHECKS[key](value), key in _NEGATIVE) for key, value in given.items() if key in _CHECKS]
    return Condition(steps, given.get("present"), given.get("type"), tuple(checks), given)


_NEGATIVE = frozenset({"notIn", "notGlob", "notInside", "notHost"})

TYPES: dict[str, Callable[[Found], bool]] = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: is_number(v) and (isinstance(v, int) or float(v).is_integer()),  # type: ignore[arg-type]  # is_number
    "number": is_number,
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "null": lambda v: v is None,
}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnjudgeableError("the value is no text")
    return value


def _number(value: Any) -> float:
    if not is_number(value):
        raise UnjudgeableError("the value is no number")
    return value  # type: ignore[no-any-return]  # an int or a float, as is_number says


def _length(value: Any) -> int:
    if not isinstance(value, str | list):
        raise UnjudgeableError("the value is neither text nor a list")
    return len(value)


def _over(readings: frozenset[bool], wanted: bool, for_all: bool) -> bool:
    """Whether a condition holds that wants one answer of several readings."""
    return readings == {wanted} if for_all else wanted in readings


def _equals(expected: Json) -> Check:
    return lambda value, _: same(value, expected)


def _is_in(options: list[Json]) -> Check:
    return lambda value, _: any(same(value, option) for option in options)


def _not_in(options: list[Json]) -> Check:
    return lambda value, _: not any(same(value, option) for option in options)


def _glob(globs: list[str]) -> Check:
    compiled = [Glob.compile(glob) for glob in globs]
    return lambda value, _: any(glob.fits(_text(value)) for glob in compiled)


def _not_glob(globs: list[str]) -> Check:
    fits = _glob(globs)
    return lambda value, every: not fits(value, every)


def _regex(source: str) -> Check:
    pattern = Pattern.compile(source)
    return lambda value, _: pattern.finds(_text(value))


def _compare(holds: Callable[[float, float], bool]) -> Callable[[float], Check]:
    return lambda bound: lambda value, _: holds(_number(value), bound)


def _measure(holds: Callable[[int, int], bool]) -> Callable[[int], Check]:
    return lambda bound: lambda value, _: holds(_length(value), bound)


def _folder(wanted: bool) -> Callable[[list[str]], Check]:
    def compiled(paths: list[str]) -> Check:
        folders = [Folder.of(path) for path in paths]

        def check(value: Any, every: bool) -> bool:
            answers = [folder.takes_in(_text(value)) for folder in folders]
            inside = any(a == {True} for a in answers), any(True in a for a in answers)
            return _over(frozenset(inside), wanted, every)

        return check

    return compiled


def _host(wanted: bool) -> Callable[[list[str]], Check]:
    def compiled(globs: list[str]) -> Check:
        private = PRIVATE in globs
        patterns = [Glob.compile(normal_pattern(glob)) for glob in globs if glob != PRIVATE]

        def fits(host: str) -> bool:
            return (private and is_private(host)) or any(pattern.fits(host) for pattern in patterns)

        def check(value: Any, every: bool) -> bool:
            found = frozenset(map(fits, hosts_of(_text(value)))) or frozenset({False})
            return _over(found, wanted, every)

        return check

    return compiled


_CHECKS: dict[str, Callable[[Any], Check]] = {
    "equals": _equals,
    "in": _is_in,
    "notIn": _not_in,
    "glob": _glob,
    "notGlob": _not_glob,
    "regex": _regex,
    "gt": _compare(lambda a, b: a > b),
    "gte": _compare(lambda a, b: a >= b),
    "lt": _compare(lambda a, b: a < b),
    "lte": _compare(lambda a, b: a <= b),
    "longerThan": _measure(lambda a, b: a > b),
    "shorterThan": _measure(lambda a, b: a < b),
    "inside": _folder(True),
    "notInside": _folder(False),
    "host": _host(True),
    "notHost": _host(False),
}
