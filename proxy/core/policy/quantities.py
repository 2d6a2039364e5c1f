"""Durations (`250ms`, `5s`, `10m`, `24h`) and sizes (`512Ki`, `64Mi`) as documents spell them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 10 * 365 * 24 * 3600.0
"""Longer ones are mistakes, and clocks do not hold all of them."""
_SIZE = re.compile(r"([0-9]+)(Ki|Mi|Gi)?")
_BYTES = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def parse_duration(value: Any) -> float:
    """Seconds. Raises ValueError."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a duration such as '250ms', '5s', '10m' or '24h', got {value!r:.60}")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > _LONGEST:
        raise ValueError(f"expected a duration of at most {spelled_duration(_LONGEST)}, got {value!r:.60}")
    return seconds


def spelled_duration(seconds: float) -> str:
    """Seconds as a document would spell them, in the largest unit that leaves a whole number."""
    thousandths = round(seconds * 1000)
    for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if thousandths % length == 0 and (thousandths or unit == "s"):
            return f"{thousandths // length}{unit}"
    return f"{thousandths}ms"


def parse_size(value: Any) -> int:
    """Bytes. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a size such as 512Ki, 64Mi or a number of bytes, got {value!r:.60}")
    return int(found[1]) * _BYTES[found[2]]


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi)?$"}]}
    ),
]
