"""The one door to CEL: expressions are compiled and bounded at load, and given only what they read.

The cost of an evaluation is turning values into the library's own, so an expression gets the keys that it names
and nothing beside them; that is also what its bounds are about. Whatever goes wrong in an evaluation is an
EvaluationError. A client never supplies an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proxy.core.jsontext import Json, Object
from proxy.core.policy.cel_library import cel
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.patterns import Pattern
from proxy.core.policy.scanning import Read, literals, renamed, scan
from proxy.core.policy.values import same

MAX_ITEMS = 1000
MAX_VALUES = 20_000

CALL_VARIABLES = frozenset(
    {"tool", "args", "rawArgs", "callId", "model", "api", "owner", "declared", "headers", "user", "metadata"}
    | {"client", "batch"}
)
RESULT_VARIABLES = frozenset({"result", "isError"})

_TYPES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})
_FUNCTIONS = frozenset(
    {"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes", "dyn", "type"}
    | {"timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"}
    | {"getHours", "getMinutes", "getSeconds", "getMilliseconds", "lowerAscii", "upperAscii", "trim"}
)


def _lower_ascii(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


def _upper_ascii(text: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in text)


_pattern = lru_cache(maxsize=512)(Pattern.compile)


def _finds(text: str, pattern: str) -> bool:
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise TypeError("matches wants two texts")
    return _pattern(pattern).finds(text)


_MATCHES = "matchesOnceCompiled"
_OWN_FUNCTIONS: Mapping[str, Callable[..., str | bool]] = {
    "lowerAscii": _lower_ascii,
    "upperAscii": _upper_ascii,
    "trim": str.strip,
    _MATCHES: _finds,
}
"""Of Kubernetes' string functions, those that the library lacks and whose cost is bounded by their input; and `matches`
under another name, since the library compiles a pattern anew for every text that it is asked of, which takes
milliseconds: seconds for a list of a thousand."""

_LIBRARY_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Expression:
    source: str
    reads: tuple[Read, ...]
    variables: frozenset[str]
    _program: Any

    @classmethod
    def compile(cls, source: str) -> Expression:
        """Raises ValueError that says what is wrong."""
        scanned = scan(source)
        program = _compiled(source)
        functions = {name for name in program.functions() if name[0].isalpha()}
        if unknown := sorted(functions - _FUNCTIONS):
            raise ValueError(f"the function '{unknown[0]}' is not known; expected one of {_listed(_FUNCTIONS)}")
        known = CALL_VARIABLES | RESULT_VARIABLES
        if taken := sorted(scanned.bound & known):
            raise ValueError(f"'{taken[0]}' is a variable already; expected another name in the comprehension")
        variables = frozenset(program.variables()) - _TYPES - scanned.bound
        if unknown := sorted(variables - known):
            raise ValueError(f"the variable '{unknown[0]}' is not known; expected one of {_listed(CALL_VARIABLES)}")
        reads = tuple(read for read in scanned.reads if read[0] in variables)
        unseen = variables - {read[0] for read in reads}
        if "matches" in functions:
            for literal in literals(source, "matches"):
                _pattern(cel.compile(literal).execute(cel.Context()))
            program = cel.compile(renamed(source, "matches", _MATCHES))
        return cls(source, reads + tuple((name,) for name in sorted(unseen)), variables, program)

    @property
    def reads_arguments(self) -> bool:
        return not self.variables.isdisjoint({"args", "rawArgs"})

    def reads_below(self, variable: str) -> tuple[Read, ...]:
        """The keys below a variable that are read; an empty tuple among them stands for the whole."""
        return tuple(read[1:] for read in self.reads if read[0] == variable)

    def evaluate(self, values: Scope) -> Any:
        """The result, as the library gives it. Raises EvaluationError."""
        context = values.context(self)
        return _guarded(lambda: self._program.execute(context), "the evaluation failed", EvaluationError)

    def is_true(self, values: Scope) -> bool:
        result = self.evaluate(values)
        if not isinstance(result, bool):
            raise EvaluationError(f"expected true or false, got a {type(result).__name__}")
        return result

    def text(self, values: Scope) -> str:
        result = self.evaluate(values)
        if not isinstance(result, str):
            raise EvaluationError(f"expected text, got a {type(result).__name__}")
        return result

    def object(self, values: Scope, old: Object) -> Object:
        """The result as a JSON object; what is equal to a value of `old` in its place keeps that one's spelling."""
        result = _as_json(self.evaluate(values))
        if not isinstance(result, dict):
            raise EvaluationError("expected an object")
        restored = _restored(result, old)
        assert isinstance(restored, dict)
        return restored


class Scope:
    """The variables of one evaluation after another: each is turned into the library's values once.

    `find` gives a variable's value, or raises EvaluationError; `args` is asked for again after `forget`.
    """

    __slots__ = ("_context", "_find", "_given")

    def __init__(self, find: Callable[[str], Json]) -> None:
        self._find = find
        self._context = cel.Context()
        self._given: dict[str, tuple[Read, ...]] = {}
        for name, function in _OWN_FUNCTIONS.items():
            self._context.add_function(name, function)

    def forget(self, *names: str) -> None:
        for name in names:
            self._given.pop(name, None)

    def context(self, expression: Expression) -> Any:
        for name in expression.variables:
            below = expression.reads_below(name)
            if self._given.get(name) != below:
                self._add(name, below)
        return self._context

    def _add(self, name: str, below: tuple[Read, ...]) -> None:
        value = _Pruning().taken(self._find(name), below)
        _guarded(lambda: self._context.add_variable(name, value), "a value could not be read", EvaluationError)
        self._given[name] = below


class _Pruning:
    """Takes of a value what an expression reads, within the bounds."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def taken(self, value: Json, below: tuple[Read, ...]) -> Json:
        if () in below or not isinstance(value, dict):
            return self._whole(value)
        found: Object = {}
        for key in dict.fromkeys(read[0] for read in below):
            if key in value:
                found[key] = self.taken(value[key], tuple(read[1:] for read in below if read[0] == key))
        return found

    def _whole(self, value: Json) -> Json:
        self._left -= 1
        if self._left < 0:
            raise EvaluationError(f"more than {MAX_VALUES} values are read")
        if isinstance(value, dict | list) and len(value) > MAX_ITEMS:
            raise EvaluationError(f"a list or map of more than {MAX_ITEMS} items is read")
        if isinstance(value, dict):
            return {key: self._whole(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._whole(inner) for inner in value]
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise EvaluationError("an integer beyond 64 bits is read")
            return int(value)
        return float(value) if isinstance(value, float) else value


def _compiled(source: str) -> Any:
    try:
        return _guarded(lambda: cel.compile(source), "no CEL expression", ValueError)
    except ValueError as error:  # what the parser would have taken is a list of its own token names
        told = str(error).partition(" expecting ")[0]
        raise ValueError(f"{told}; expected one such as has(args.limit) && args.limit > 10") from None


def _guarded(run: Callable[[], Any], what: str, raised: type[Exception]) -> Any:
    """Calls the library. Beside its errors it may panic, which derives from BaseException and has no public name."""
    try:
        return run()
    except KeyError as error:  # its text is the key and nothing more
        raise raised(f"{what}: {error} is not there") from None
    except _LIBRARY_ERRORS as error:
        raise raised(f"{what}: {_first_line(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise raised(f"{what}: the library gave up") from None


def _first_line(error: Exception) -> str:
    lines = str(error).removeprefix("Failed to parse expression ").replace(_MATCHES, "matches").splitlines()
    text = next((line for line in lines if line.strip()), type(error).__name__)
    return text[text.find("Syntax error") :][:200] if "Syntax error" in text else text[:200]


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _as_json(value: Any) -> Json:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise EvaluationError("expected an object whose keys are text")
        return {key: _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationError(f"{value} is no JSON number")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise EvaluationError(f"a {type(value).__name__} is no JSON value")


def _restored(new: Json, old: Json) -> Json:
    """The new value in a stable order of keys (the library has none): those of the old one first."""
    if isinstance(new, dict):
        former = old if isinstance(old, dict) else {}
        order = [key for key in former if key in new] + sorted(key for key in new if key not in former)
        return {key: _restored(new[key], former.get(key)) for key in order}
    if isinstance(new, list):
        former_items = old if isinstance(old, list) else []
        padding: list[Json] = [None] * (len(new) - len(former_items))
        return [_restored(n, o) for n, o in zip(new, [*former_items, *padding], strict=False)]
    return old if type(old) is not bool and old is not None and same(new, old) else new
