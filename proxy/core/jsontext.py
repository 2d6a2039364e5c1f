"""The one door to JSON: reading, writing, and changing a value inside a text whose other bytes stay.

Reading and writing are in `jsonvalues`; here are the places of values in a text. To change something, find its
bytes and replace those: `edit`. Order of keys, spelling of numbers and unknown fields all stay, since they are
never rendered again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.jsonvalues import (
    BRACKET_OR_STRING,
    Json,
    NestingError,
    Object,
    Reading,
    SpelledFloat,
    SpelledInt,
    as_text,
    encoding,
    is_deeper,
    join_surrogates,
    nests_deeper,
    parse,
    parse_exact,
    parse_first,
    parse_lenient,
    parse_own,
    reads_two_ways,
    render,
    render_text,
)

__all__ = [
    "Changes",
    "Json",
    "Member",
    "NestingError",
    "Object",
    "Path",
    "Reading",
    "SpelledFloat",
    "SpelledInt",
    "array",
    "as_text",
    "edit",
    "element_spans",
    "elements",
    "encoding",
    "has_key_twice",
    "is_deeper",
    "join_surrogates",
    "members",
    "nests_deeper",
    "parse",
    "parse_exact",
    "parse_first",
    "parse_lenient",
    "parse_own",
    "raw",
    "reads_two_ways",
    "render",
    "render_text",
    "span",
]

Path = tuple[str | int, ...]

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
        for found in BRACKET_OR_STRING.finditer(data, at):
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
