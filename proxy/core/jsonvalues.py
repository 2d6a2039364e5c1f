"""JSON values and their texts: reading and writing. `jsontext` is the door to all of it.

Three ways to read, by how much is believed of the text: `parse` takes strict JSON and is fast; `parse_exact`
keeps the spelling of numbers and says whether the text can be read in only one way; `parse_lenient` also
takes what some servers send (a byte-order mark, NaN, lone surrogates, trailing text) and is for looking only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Union

import orjson

Json = Union[None, bool, int, float, str, list["Json"], dict[str, "Json"]]
Object = dict[str, Json]


class SpelledFloat(float):
    """A float that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> SpelledFloat:
        number = super().__new__(cls, text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{text[:40]} is no number that every reader can hold")
        number.text = text
        return number


class SpelledInt(int):
    """An integer that remembers how it was written: one beyond 64 bits, or `-0`."""

    text: str

    def __new__(cls, text: str) -> SpelledInt:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _spelled(value: object) -> orjson.Fragment:
    if isinstance(value, SpelledFloat | SpelledInt):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _read_int(text: str) -> int:
    if len(text) > 18 or text == "-0":
        return SpelledInt(text)
    return int(text)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def parse(data: bytes | str) -> Any:
    """Strict JSON to a value. Raises ValueError. Numbers beyond a double or 64 bits lose digits."""
    return orjson.loads(data)


def parse_own(data: bytes) -> Any:
    """A text that `render` wrote, back to a value. Raises ValueError."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)


def render(value: Any) -> bytes:
    """A value to compact UTF-8 JSON. Spelled numbers are written as they came, half surrogate pairs as escapes, keys
    that are numbers as text. Raises TypeError for what is no JSON value."""
    try:
        return orjson.dumps(value, default=_spelled, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:  # what orjson cannot write: wide integers, half pairs, deep nesting; or what nobody can
        out: list[str] = []
        _write(value, out)
        return "".join(out).encode()


def _write(value: Any, out: list[str]) -> None:
    """As orjson writes, without its limits; one frame a level, so that no value that was read is too deep."""
    if isinstance(value, dict):
        mark = "{"
        for key, item in value.items():
            out += [mark, _quoted(key if isinstance(key, str) else _as_key(key)), ":"]
            _write(item, out)
            mark = ","
        out.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        mark = "["
        for item in value:
            out.append(mark)
            _write(item, out)
            mark = ","
        out.append("]" if value else "[]")
    else:
        out.append(_scalar(value))


def _as_key(value: Any) -> str:
    """A number, bool or None as a key, in the words of Python's own writer. Raises TypeError."""
    return str(next(iter(json.loads(json.dumps({value: None})))))


def _scalar(value: Any) -> str:
    if isinstance(value, SpelledFloat | SpelledInt):
        return value.text
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    return orjson.dumps(value).decode()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=_has_half(text))


def _has_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def render_text(value: Any) -> str:
    """As `render`, as a string."""
    return render(value).decode()


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of a text gave. `unambiguous`: no other reader of JSON would see something else."""

    value: Json
    unambiguous: bool


_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_exact(text: str) -> Reading:
    """Strict JSON with its numbers as spelled.

    A key that comes twice (the last one counts) and text behind the value leave a reading, but not an
    unambiguous one. Raises ValueError for what is not JSON, for numbers that no reader can hold, for lone
    surrogates, and for nesting that Python cannot read.
    """
    twice = False

    def pairs(members: list[tuple[str, Json]]) -> Object:
        nonlocal twice
        found = dict(members)
        twice = twice or len(found) != len(members)
        return found

    decoder = json.JSONDecoder(
        object_pairs_hook=pairs, parse_float=SpelledFloat, parse_int=_read_int, parse_constant=_refuse_constant
    )
    start = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deep") from None
    escaped = _SURROGATE_ESCAPE.search(text) is not None
    if _has_half(text) or (escaped and _has_half(json.dumps(value, ensure_ascii=False))):
        raise ValueError("it has half a surrogate pair")
    return Reading(value, not twice and not text[end:].strip(" \t\n\r"))


def encoding(data: bytes) -> str:
    """How a JSON text is encoded, by its first bytes: some readers take UTF-16 and UTF-32 too."""
    return json.detect_encoding(data)


class NestingError(ValueError):
    """A text nests deeper than can be read here; another reader may be able to."""


def parse_lenient(data: bytes) -> Any:
    """The first JSON value in a text, by a reader that forgives; for looking only. Raises ValueError."""
    return parse_first(data)[0]


def parse_first(data: bytes) -> tuple[Any, str]:
    """As `parse_lenient`, with the text behind the value. Raises ValueError."""
    text = as_text(data).lstrip("\ufeff \t\n\r")
    try:
        value, end = json.JSONDecoder(strict=False, parse_int=_read_any_int).raw_decode(text)
    except RecursionError:
        raise NestingError("nested too deep") from None
    return value, text[end:].strip(" \t\n\r")


class _KeyTwiceError(ValueError):
    """A key comes twice, with two values."""


@lru_cache(maxsize=8)
def _doubting(names: frozenset[str]) -> json.JSONDecoder:
    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        if len(found) != len(members) and any(key in names and found[key] != value for key, value in members):
            raise _KeyTwiceError
        return found

    return json.JSONDecoder(object_pairs_hook=pairs, strict=False, parse_int=_read_any_int)


def reads_two_ways(data: bytes, names: frozenset[str]) -> bool:
    """Whether an object at any depth gives one of these keys two values: readers take the first, or the last."""
    try:
        _doubting(names).raw_decode(as_text(data).lstrip("\ufeff \t\n\r"))
    except _KeyTwiceError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def as_text(data: bytes) -> str:
    """Bytes as text, by the encoding that they begin as."""
    return data.decode(encoding(data), "replace")


def _read_any_int(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # more digits than Python turns into an integer
        return float(text)


def join_surrogates(text: str) -> str:
    """Halves of a pair that came in two fragments, joined; a half on its own stays."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


BRACKET_OR_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def nests_deeper(data: bytes, limit: int) -> bool:
    """Whether brackets nest deeper than `limit`. Works on any bytes."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for found in BRACKET_OR_STRING.finditer(data):
        mark = found[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth > limit:
                return True
        elif mark in (b"}", b"]"):
            depth = max(0, depth - 1)
    return False


def is_deeper(value: Any, limit: int) -> bool:
    """As `nests_deeper`, of a text that has been read already: far cheaper."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        parts = (part for item in level for part in (item.values() if isinstance(item, dict) else item))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return False
    return bool(level)
