"""The one door to JSON: reading, writing, and changing a value inside a text whose other bytes stay.

Three ways to read, by how much is believed of the text: `parse` takes strict JSON and is fast; `parse_exact`
keeps the spelling of numbers and says whether the text can be read in only one way; `parse_lenient` also
takes what some servers send (a byte-order mark, NaN, lone surrogates, trailing text) and is for looking only.

To change something, find its bytes and replace those: `edit`. Order of keys, spelling of numbers and unknown
fields all stay, since they are never rendered again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import orjson

Json = Union[None, bool, int, float, str, list["Json"], dict[str, "Json"]]
Object = dict[str, Json]
Path = tuple[str | int, ...]


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
    """A value to compact UTF-8 JSON. Spelled numbers are written as they came, half surrogate pairs as escapes.
    Raises TypeError for what is no JSON value."""
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
            if not isinstance(key, str):
                raise TypeError("the key of an object has to be a string")
            out += [mark, _quoted(key), ":"]
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


def _scalar(value: Any) -> str:
    if isinstance(value, SpelledFloat | SpelledInt):
        return value.text
    if isinstance(value, str):
        return _quoted(value)
    return str(value) if type(value) is int else orjson.dumps(value).decode()


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
    text = data.decode(encoding(data), "replace").lstrip("\ufeff \t\n\r")
    try:
        value, _ = json.JSONDecoder(strict=False, parse_int=_read_any_int).raw_decode(text)
    except RecursionError:
        raise NestingError("nested too deep") from None
    return value


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


_BRACKET_OR_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def nests_deeper(data: bytes, limit: int) -> bool:
    """Whether brackets nest deeper than `limit`. Works on any bytes."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(data):
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


# ---------------------------------------------------------------- places in a text

_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ATOM = re.compile(rb"[^ \t\n\r,\]}:]++")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its key, where its key begins, and where its value begins and ends."""

    key: str
    start: int
    value: int
    end: int


def _skip_space(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    assert found is not None
    return found.end()


def _skip_value(data: bytes, at: int) -> int:
    """Where the value ends that begins at `at`. The text must be JSON (numbers may be NaN and the like)."""
    first = data[at : at + 1]
    if first in (b"{", b"["):
        depth = 0
        for found in _BRACKET_OR_STRING.finditer(data, at):
            mark = found[0]
            if mark in (b"{", b"["):
                depth += 1
            elif mark in (b"}", b"]"):
                depth -= 1
                if depth == 0:
                    return found.end()
        raise ValueError("the text ends inside a value")
    found_one = (_STRING if first == b'"' else _ATOM).match(data, at)
    if found_one is None:
        raise ValueError(f"no value at byte {at}")
    return found_one.end()


def _key(raw: bytes) -> str:
    try:
        return str(orjson.loads(raw)) if b"\\" in raw else raw[1:-1].decode()
    except ValueError:  # half a pair, broken UTF-8: as the lenient reader has it
        return str(parse_lenient(raw))


def members(data: bytes, at: int = 0) -> list[Member]:
    """The members of the object that begins at or behind white space from `at`. Raises ValueError."""
    at = _skip_space(data, at)
    if data[at : at + 1] != b"{":
        raise ValueError(f"no object at byte {at}")
    found: list[Member] = []
    at = _skip_space(data, at + 1)
    while data[at : at + 1] != b"}":
        key_end = _skip_value(data, at)
        value = _skip_space(data, _skip_space(data, key_end) + 1)
        end = _skip_value(data, value)
        found.append(Member(_key(data[at:key_end]), at, value, end))
        at = _skip_space(data, end)
        if data[at : at + 1] == b",":
            at = _skip_space(data, at + 1)
    return found


def element_spans(data: bytes, at: int = 0) -> list[tuple[int, int]]:
    """Where the elements of the array begin and end that begins at or behind white space from `at`."""
    at = _skip_space(data, at)
    if data[at : at + 1] != b"[":
        raise ValueError(f"no array at byte {at}")
    found: list[tuple[int, int]] = []
    at = _skip_space(data, at + 1)
    while data[at : at + 1] != b"]":
        end = _skip_value(data, at)
        found.append((at, end))
        at = _skip_space(data, end)
        if data[at : at + 1] == b",":
            at = _skip_space(data, at + 1)
    return found


def span(data: bytes, path: Path) -> tuple[int, int] | None:
    """Where the value at `path` begins and ends; of a key that comes twice, the last. None: there is none."""
    at = _place(data, path)
    return None if at is None else (at, _skip_value(data, at))


def _place(data: bytes, path: Path) -> int | None:
    """Where the value at `path` begins."""
    at = _skip_space(data, 0)
    for step in path:
        try:
            if isinstance(step, int):
                spans = element_spans(data, at)
                at = spans[step][0]
            else:
                at = next(m.value for m in reversed(members(data, at)) if m.key == step)
        except (ValueError, IndexError, StopIteration):
            return None
    return at


def raw(data: bytes, path: Path = ()) -> bytes | None:
    """The bytes of the value at `path`, or None."""
    found = span(data, path)
    return None if found is None else data[found[0] : found[1]]


def elements(data: bytes, path: Path = ()) -> list[bytes]:
    """The bytes of each element of the array at `path`; none where there is no array."""
    at = _place(data, path)
    if at is None or data[at : at + 1] != b"[":
        return []
    return [data[a:b] for a, b in element_spans(data, at)]


def array(parts: Sequence[bytes]) -> bytes:
    """An array of values that are JSON texts already."""
    return b"[" + b",".join(parts) + b"]"


_ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")


def has_key_twice(data: bytes, value: Mapping[str, Any]) -> bool:
    """Whether the object (of valid JSON, read as `value`) names a key twice; deeper objects are not looked at."""
    if not _ESCAPED_LETTER.search(data) and all(data.count(render(key)) == 1 for key in value):
        return False  # no letter is escaped, and each key stands there once: no need to look closer
    keys = [m.key for m in members(data)]
    return len(set(keys)) != len(keys)


# ---------------------------------------------------------------- changing values in place

Changes = Mapping[Path, bytes | None]
"""The new text of values by path; None takes the member or element out. A key that is not there is added."""


def edit(data: bytes, changes: Changes) -> bytes:
    """The text with some values changed and every other byte as it was. Raises ValueError, KeyError."""
    if not changes:
        return data
    tree: dict[Any, Any] = {}
    for path, value in changes.items():
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = _Leaf(value)
    start = _skip_space(data, 0)
    end = _skip_value(data, start)
    return data[:start] + _edited(data, start, end, tree) + data[end:]


@dataclass(frozen=True, slots=True)
class _Leaf:
    text: bytes | None


def _edited(data: bytes, start: int, end: int, tree: dict[Any, Any]) -> bytes:
    if data[start : start + 1] == b"[":
        spans = element_spans(data, start)
        named: list[tuple[Any, int, int, int]] = [(i, a, a, b) for i, (a, b) in enumerate(spans)]
        missing = [step for step in tree if step not in range(len(spans))]
        if missing:
            raise KeyError(missing[0])
        added: list[bytes] = []
    else:
        found = members(data, start)
        named = [(m.key, m.start, m.value, m.end) for m in found]
        present = {m.key for m in found}
        added = _added({key: change for key, change in tree.items() if key not in present})
    if added or any(_takes_out(tree.get(step)) for step, *_ in named):
        return _rebuilt(data, start, named, tree, added)
    out, at = [], start
    for step, _, value, stop in named:
        if step in tree:
            out += [data[at:value], _changed(data, value, stop, tree[step])]
            at = stop
    return b"".join([*out, data[at:end]])


def _takes_out(change: Any) -> bool:
    return isinstance(change, _Leaf) and change.text is None


def _added(tree: dict[Any, Any]) -> list[bytes]:
    """New members, with the objects on the way to them; what is to be taken out is not there already."""
    found: list[bytes] = []
    for key, change in tree.items():
        if not isinstance(key, str):
            raise KeyError(key)
        if isinstance(change, _Leaf):
            found += [] if change.text is None else [render(key) + b":" + change.text]
        elif inner := _added(change):
            found.append(render(key) + b":{" + b",".join(inner) + b"}")
    return found


def _changed(data: bytes, start: int, end: int, change: Any) -> bytes:
    if isinstance(change, _Leaf):
        assert change.text is not None
        return change.text
    return _edited(data, start, end, change)


def _rebuilt(
    data: bytes, start: int, named: list[tuple[Any, int, int, int]], tree: dict[Any, Any], added: list[bytes]
) -> bytes:
    """The object or array written again from the texts of its parts, where a part came or went."""
    parts = []
    for step, begin, value, stop in named:
        if step not in tree:
            parts.append(data[begin:stop])
        elif not _takes_out(tree[step]):
            parts.append(data[begin:value] + _changed(data, value, stop, tree[step]))
    opening, closing = (b"[", b"]") if data[start : start + 1] == b"[" else (b"{", b"}")
    return opening + b",".join(parts + added) + closing
