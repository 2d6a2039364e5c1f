from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.jsontext import (
    Changes,
    Path,
    array,
    edit,
    elements,
    has_key_twice,
    members,
    parse_lenient,
    raw,
    render,
    span,
)
from tests.core.values import SPELLINGS, texts, values

# ---------------------------------------------------------------- places


class Spelled:
    """A random JSON text of a value, and where each of its values stands."""

    def __init__(self, value: Any, seed: int) -> None:
        self._random = random.Random(seed)
        self.places: dict[Path, tuple[int, int]] = {}
        self._out = ""
        self._space()
        self._write(value, ())
        self._space()
        self.data = self._out.encode("ascii")

    def _space(self) -> None:
        self._out += "".join(self._random.choices(" \t\r\n", k=self._random.choice([0, 0, 1, 3])))

    def _string(self, text: str) -> None:
        units = text.encode("utf-16-be")
        codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
        plain = [chr(c) if 31 < c < 127 and chr(c) not in '"\\' else f"\\u{c:04X}" for c in codes]
        self._out += (
            '"' + "".join(self._random.choice([p, f"\\u{c:04x}"]) for p, c in zip(plain, codes, strict=True)) + '"'
        )

    def _write(self, value: Any, path: Path) -> None:
        start = len(self._out)
        if isinstance(value, dict):
            self._list("{", "}", [((*path, k), v, k) for k, v in value.items()])
        elif isinstance(value, list):
            self._list("[", "]", [((*path, i), v, None) for i, v in enumerate(value)])
        elif isinstance(value, str):
            self._string(value)
        elif value is None or isinstance(value, bool):
            self._out += json.dumps(value)
        else:
            self._out += self._random.choice(SPELLINGS)
        self.places[path] = start, len(self._out)

    def _list(self, opening: str, closing: str, parts: list[tuple[Path, Any, str | None]]) -> None:
        self._out += opening
        self._space()
        for number, (path, value, key) in enumerate(parts):
            if number:
                self._out += ","
                self._space()
            if key is not None:
                self._string(key)
                self._space()
                self._out += ":"
                self._space()
            self._write(value, path)
            self._space()
        self._out += closing


spelled = st.builds(Spelled, values, st.integers(0, 2**32))
containers = st.dictionaries(texts, values, min_size=1, max_size=4) | st.lists(values, min_size=1, max_size=4)
spelled_containers = st.builds(Spelled, containers, st.integers(0, 2**32))


@given(spelled)
def test_every_value_is_found_at_its_place(text: Spelled) -> None:
    """A path leads to the bytes of its value, whatever the white space and the spelling of keys."""
    for path, place in text.places.items():
        assert span(text.data, path) == place
        assert raw(text.data, path) == text.data[place[0] : place[1]]
    tops = [text.data[a:b] for path, (a, b) in text.places.items() if len(path) == 1]
    if text.data.strip()[:1] == b"[":
        assert elements(text.data) == tops
    elif text.data.strip()[:1] == b"{":
        assert [text.data[m.value : m.end] for m in members(text.data)] == tops
        assert not has_key_twice(text.data, parse_lenient(text.data))


@pytest.mark.parametrize(
    "path", [("x",), ("a", "x"), ("a", 0), ("l", 2), ("l", "x"), ("l", 0, "x"), (0,), ("a", "b", 1)]
)
def test_a_path_to_nothing_finds_nothing(path: Path) -> None:
    """A path through a missing member, or through a value of another kind, has no place."""
    data = b'{"a": {"b": 1}, "l": [1, 2]}'
    assert span(data, path) is None
    assert raw(data, path) is None
    assert elements(data, path) == []


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    """The place of a value is the one that readers take."""
    data = b'{"a":1,"b":0,"\\u0061":[2]}'
    assert raw(data, ("a",)) == b"[2]"
    assert has_key_twice(data, {"a": [2], "b": 0})
    assert has_key_twice(b'{"a":1,"a":2}', {"a": 2})
    assert not has_key_twice(b'{"a":{"b":1,"b":2}}', {"a": {"b": 2}})
    assert not has_key_twice(b'{"a":{"a":1}}', {"a": {"a": 1}})


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"{", b'{"a"', b'{"a":', b'{"a":[1', b'{"a":"x', b'{"a":1', b"{:1}", b"1"]
)
def test_what_is_no_object_has_no_members(data: bytes) -> None:
    """A text that is cut or no object is an error of value and ends."""
    with pytest.raises(ValueError):
        members(data)


@pytest.mark.parametrize("data", [b"[", b"[1,", b"[1", b'["', b"[{]"])
def test_what_is_cut_has_no_elements(data: bytes) -> None:
    """An array that does not end is an error of value."""
    with pytest.raises(ValueError):
        raw(data)
    with pytest.raises(ValueError):
        edit(data, {(0,): b"2"})


@given(st.binary(max_size=30).map(lambda rest: b"{" + rest), st.sampled_from([("a",), (0,), ()]))
def test_places_in_garbage_are_errors_of_value(data: bytes, path: Path) -> None:
    """Whatever bytes come, looking ends, with a place, with none, or with an error of value."""
    try:
        span(data, path)
        members(data)
        has_key_twice(data, {})
    except ValueError:
        pass


def test_odd_keys_are_keys() -> None:
    """A key with half a pair, broken UTF-8 or a raw line end is read as the lenient reader reads it."""
    data = b'{"\\ud83d": 1, "\xff": 2, "a\nb": 3, "c\\u0064\ne": 4, "k": 5}'
    assert {m.key for m in members(data)} == parse_lenient(data).keys()
    assert raw(data, ("k",)) == b"5"
    assert edit(data, {("k",): b"6"}) == data.replace(b"5", b"6")


# ---------------------------------------------------------------- changes


@given(spelled, st.data())
def test_a_change_changes_only_what_it_names(text: Spelled, data: st.DataObject) -> None:
    """Every byte outside the changed values stays, and the changed values are what was given."""
    paths = [p for p in text.places if p]
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True, max_size=4)) if paths else []
    chosen = [p for p in chosen if not any(p != q and p[: len(q)] == q for q in chosen)]
    changes: Changes = {p: b'"new %d"' % n for n, p in enumerate(chosen)}
    expected, at = b"", 0
    for path in sorted(chosen, key=lambda p: text.places[p]):
        start, end = text.places[path]
        expected += text.data[at:start] + (changes[path] or b"")
        at = end
    assert edit(text.data, changes) == expected + text.data[at:]


def without(value: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {k: without(v, rest) if k == step else v for k, v in value.items() if rest or k != step}
    return [without(v, rest) if i == step else v for i, v in enumerate(value) if rest or i != step]


@given(spelled_containers, st.data())
def test_what_is_taken_out_is_gone_and_the_rest_keeps_its_bytes(text: Spelled, data: st.DataObject) -> None:
    """A member or element can go from any place, and its neighbours stay as they were spelled."""
    path = data.draw(st.sampled_from([p for p in text.places if p]))
    edited = edit(text.data, {path: None})
    assert json.loads(edited) == without(json.loads(text.data), path)
    for other, (start, end) in text.places.items():
        if len(other) == len(path) and other[:-1] == path[:-1] and other != path:
            assert text.data[start:end] in edited


@given(st.dictionaries(texts, values, max_size=4), st.integers(0, 2**32), texts, texts, values)
def test_what_is_not_there_is_added(value: Any, seed: int, key: str, inner: str, new: Any) -> None:
    """A key that is missing is added, with the objects on the way to it; what was there keeps its bytes."""
    value.pop(key, None)
    text = Spelled(value, seed)
    edited = edit(text.data, {(key, inner): render(new), (key, inner + "x"): b"1"})
    assert json.loads(edited) == {**json.loads(text.data), key: {inner: new, inner + "x": 1}}
    for path, (start, end) in text.places.items():
        assert len(path) != 1 or text.data[start:end] in edited


@pytest.mark.parametrize(
    ("data", "changes", "expected"),
    [
        (b'{"a":1}', {}, b'{"a":1}'),
        (b'{ "a" : 1 , "b" : 2 }', {("b",): b"3"}, b'{ "a" : 1 , "b" : 3 }'),
        (b'{"a":1,"b":2,"c":3}', {("a",): None}, b'{"b":2,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', {("b",): None}, b'{"a":1,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', {("c",): None}, b'{"a":1,"b":2}'),
        (b' { "a" : 1 , "b" : 2 } \n', {("a",): None, ("b",): None}, b" {} \n"),
        (b"[ 1 , 2 ]", {(0,): None, (1,): None}, b"[]"),
        (b"[1,[2,3],4]", {(1, 0): None, (2,): b"5"}, b"[1,[3],5]"),
        (b'{"a":1, "b" : 2}', {("a",): None, ("b",): b"3"}, b'{"b" : 3}'),
        (b"{}", {("a",): b"1"}, b'{"a":1}'),
        (b"{ }", {("a", "b", "c"): b"1"}, b'{"a":{"b":{"c":1}}}'),
        (b'{"a":{}}', {("a", "b"): b"1"}, b'{"a":{"b":1}}'),
        (b'{"a":{"b":1}}', {("a", "b"): None}, b'{"a":{}}'),
        (b'{"a":1,"a":2}', {("a",): b"3"}, b'{"a":3,"a":3}'),
        (b'{"a":1,"b":0,"a":2}', {("a",): None}, b'{"b":0}'),
        (b'{"a":1}', {("b",): b"2", ("a",): None}, b'{"b":2}'),
        (b'{"a":1}', {("q\n",): b"2"}, b'{"a":1,"q\\n":2}'),
        (b'{"a":[{"x":1.10},{"x":2}]}', {("a", 1, "x"): b"3"}, b'{"a":[{"x":1.10},{"x":3}]}'),
        (b'{"a":"\xff","b":NaN}', {("b",): b"null"}, b'{"a":"\xff","b":null}'),
        (b'{"a":1} trailing', {("a",): b"2"}, b'{"a":2} trailing'),
    ],
)
def test_changes_at_every_place(data: bytes, changes: Changes, expected: bytes) -> None:
    """First, middle, last and only parts are changed, added and taken out."""
    assert edit(data, changes) == expected


@pytest.mark.parametrize("path", [("b",), ("b", "c"), ("b", "c", "d"), ("a", "x"), ("a", "x", "y")])
def test_taking_out_what_is_not_there_changes_nothing(path: Path) -> None:
    """No empty object appears on the way to a member that is missing, and no white space goes."""
    data = b'{ "a" : { "k" : 1 } }'
    assert edit(data, {path: None}) == data
    assert edit(data, {path: None, ("a", "k"): b"2"}) == data.replace(b"1", b"2")


@pytest.mark.parametrize("path", [(2,), (0, "x"), ("x",), (1, 0), (1, "a", 5), (1, "n", 0), (1, "n", 0, "z"), (1, 7)])
def test_a_change_that_has_no_place_is_refused(path: Path) -> None:
    """A list is not made longer, a scalar is no container, and an object has no numbered parts."""
    with pytest.raises((KeyError, ValueError)):
        edit(b'[0, {"a": [1]}]', {path: b"9"})


def test_texts_make_an_array() -> None:
    """Texts that are JSON already stand in an array as they are."""
    assert array([]) == b"[]"
    assert array([b"1.10", b'{"a" : 1}']) == b'[1.10,{"a" : 1}]'
