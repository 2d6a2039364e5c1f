"""JSON values as rules read them: compared, looked up by path, and in forms that other libraries take.

Numbers are equal by value (1 and 1.0), and a truth value is never a number.
"""

from __future__ import annotations

import math
from decimal import Decimal, DecimalException
from enum import Enum
from typing import Any

from proxy.core.jsontext import Json, SpelledFloat, SpelledInt, render_text


class Absent(Enum):
    """The one value that stands for none at all; null is a value."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
Found = Json | Absent
Steps = tuple[str, ...]


def look_up(value: Json, steps: Steps) -> Found:
    """The value behind a dotted path; a step of digits also counts into a list."""
    for step in steps:
        if isinstance(value, dict):
            if step not in value:
                return ABSENT
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Json, right: Json) -> bool:
    """Whether two values are equal as JSON."""
    if left is right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def plain(value: Json) -> Json:
    """The value with numbers of Python's own types, for libraries that refuse others."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, SpelledFloat):
        return float(value)
    if isinstance(value, SpelledInt):
        return int(value)
    return value


def exact(value: Any) -> Json:
    """A value of a document, with integers that keep all their digits when they are written. Raises ValueError."""
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a JSON value, got the number {value}")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return SpelledInt(str(value))
    if isinstance(value, str):
        _check_text(value)
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError(f"expected a JSON value, got a {type(value).__name__}")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("expected a JSON value, got text with half a surrogate pair") from None


def canonical(value: Json) -> str:
    """A text that is the same for values that no reader tells apart, and for no others: numbers by their exact value,
    keys in order, strings as they are."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{render_text(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if is_number(value):
        return _exactly(value.text if isinstance(value, SpelledInt | SpelledFloat) else str(value))
    return render_text(value)


def _exactly(number: str) -> str:
    try:
        sign, digits, exponent = Decimal(number).as_tuple()
    except DecimalException:  # an exponent beyond what can be held
        return number
    text = "".join(map(str, digits)).rstrip("0")
    if not text.strip("0"):
        return "0"
    assert isinstance(exponent, int)
    return f"{'-' * sign}{text.lstrip('0')}e{exponent + len(digits) - len(text)}"


def keyed(value: Json) -> str:
    """A text that is the same for equal values, whatever the spelling of numbers and the order of keys."""
    return render_text(_ordered(value))


def _ordered(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return exact(int(value))
    if isinstance(value, SpelledInt):
        return exact(int(value))
    return float(value) if isinstance(value, SpelledFloat) else value
