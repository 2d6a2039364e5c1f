from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.jsonvalues import (
    SpelledFloat,
    SpelledInt,
    is_deeper,
    join_surrogates,
    nests_deeper,
    parse,
    parse_exact,
    parse_lenient,
    parse_own,
    render,
    render_text,
)
from tests.core.values import SPELLINGS, texts, values

HALF = "\ud83d"
numbers = st.sampled_from(SPELLINGS)


# ---------------------------------------------------------------- reading and writing


@given(values)
def test_what_is_rendered_is_read_back(value: Any) -> None:
    """Every value comes back from its text, whatever the size of its integers."""
    text = render(value)
    assert json.loads(text) == value
    assert parse_exact(text.decode()).value == value
    assert render_text(value).encode() == text


@given(st.lists(numbers, min_size=1, max_size=6), st.booleans())
def test_numbers_keep_their_spelling(spelled: list[str], wide: bool) -> None:
    """A number that is read and written again has the characters that it came with, whatever stands beside it."""
    text = f'{{"n":[{",".join(spelled)}],"t":"{"é" if wide else "e"}"}}'
    reading = parse_exact(text)
    assert reading.unambiguous
    assert render_text(reading.value) == text


@pytest.mark.parametrize("beside", [2**70, -(2**64), HALF], ids=["big", "low", "half"])
def test_spelled_numbers_stay_beside_what_the_fast_writer_refuses(beside: Any) -> None:
    """An integer beyond 64 bits or half a pair changes the spelling of no number beside it."""
    numbers = parse_exact('[1.10,-0,{"k":1e2}]').value
    text = render([numbers, beside, {"é": True, "f": 0.5, "n": None}])
    assert text.startswith(b'[[1.10,-0,{"k":1e2}],')
    assert json.loads(text)[1] == beside
    assert json.loads(text)[2] == {"é": True, "f": 0.5, "n": None}


def test_deep_values_keep_the_spelling_of_numbers() -> None:
    """What nests deeper than the fast writer goes is written all the same, with its numbers as spelled."""
    text = "[" * 400 + '1.10,"é"' + "]" * 400
    assert render_text(parse_exact(text).value) == text


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", [1, {"a": {3}}], {"é": 2**80, "x": b""}, {(1, 2): 3}])
def test_what_is_no_json_is_not_written(value: Any) -> None:
    """Only JSON values can be rendered."""
    with pytest.raises(TypeError):
        render(value)


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: "a", None: {True: 2**70}, 0.5: "é"}, '{"1":"a","null":{"true":1180591620717411303424},"0.5":"é"}'),
        (OrderedDict(a=(1, [])), '{"a":[1,[]]}'),
        ([Level.LOW, {"level": Level.LOW, 2: "b"}, {}], '[1,{"level":1,"2":"b"},{}]'),
        ([float("nan"), {1: float("inf")}], '[null,{"1":null}]'),
    ],
)
def test_what_a_tool_may_return_is_written(value: Any, text: str) -> None:
    """Keys that are no strings and subclasses of Python's own types are written as Python's own writer does."""
    assert render_text(value) == text


def test_spelled_numbers_are_numbers() -> None:
    """A spelled number compares and counts as what it says."""
    reading = parse_exact("[1.50, -0, 123456789012345678901, 12, 123456789012345678]").value
    assert isinstance(reading, list)
    assert reading == [1.5, 0, 123456789012345678901, 12, 123456789012345678]
    kinds = [SpelledFloat, SpelledInt, SpelledInt, int, int]
    assert [type(n) for n in reading] == kinds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "{",
        '{"a":1,}',
        "{'a':1}",
        '{"a":"raw\nline"}',
        '{"a":"\\x"}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e400",
        "[-1e999]",
        "1" * 5000,
        "[" * 100_000,
        '"\\ud83d"',
        '{"\\udc00":1}',
        f'"{HALF}"',
        "\ufeff{}",
        "[1 2]",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_cannot_be_read_in_one_way_is_refused(text: str) -> None:
    """Text that is not JSON, numbers that no reader can hold and half pairs are errors of value, never others."""
    with pytest.raises(ValueError):
        parse_exact(text)


@pytest.mark.parametrize(
    ("text", "value", "unambiguous"),
    [
        ('{"a":1,"a":2}', {"a": 2}, False),
        ('{"limit":5,"l\\u0069mit":5000}', {"limit": 5000}, False),
        ('[{"x":{"k":1,"k":1}}]', [{"x": {"k": 1}}], False),
        ("{} {}", {}, False),
        ('{"a":1}{"a":1}', {"a": 1}, False),
        ("{}x", {}, False),
        (" \t\r\n{} \n", {}, True),
        ("{}\u00a0", {}, False),
        ("null", None, True),
        ('"\\ud83d\\udc38"', "\U0001f438", True),
        ('"a\\\\ud83d"', "a\\ud83d", True),
        ('{"é":"\\u00e9"}', {"é": "é"}, True),
    ],
)
def test_a_reading_says_whether_it_is_the_only_one(text: str, value: Any, unambiguous: bool) -> None:
    """Keys that come twice in any spelling, and text behind the value, leave a reading that others may not share."""
    reading = parse_exact(text)
    assert reading.value == value
    assert reading.unambiguous is unambiguous


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'\xef\xbb\xbf {"a":1}', {"a": 1}),
        (b'{"a":1} trailing', {"a": 1}),
        (b'{"a":"\\ud83d"}', {"a": HALF}),
        (b'{"a":"raw\nline"}', {"a": "raw\nline"}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b"[-Infinity]", [float("-inf")]),
        (b"[1e400]", [float("inf")]),
        (b"[%s]" % (b"1" * 6000), [float("inf")]),
        (b"[-%s]" % (b"1" * 6000), [float("-inf")]),
        ('{"a":"é"}'.encode("utf-16"), {"a": "é"}),
        ('{"a":"é"}'.encode("utf-16-le"), {"a": "é"}),
        ('{"a":"é"}'.encode("utf-32"), {"a": "é"}),
    ],
)
def test_the_lenient_reader_sees_what_some_reader_sees(data: bytes, value: Any) -> None:
    """Marks, trailing text, NaN, half pairs, broken UTF-8, endless numbers and other encodings hide nothing."""
    assert parse_lenient(data) == value


@pytest.mark.parametrize("data", [b"", b"<html>", b"{", b'{"a":1', b"[" * 100_000], ids=lambda d: repr(d[:8]))
def test_the_lenient_reader_refuses_what_is_no_json(data: bytes) -> None:
    """What holds no value at all is an error of value."""
    with pytest.raises(ValueError):
        parse_lenient(data)


def test_the_strict_reader_is_strict() -> None:
    """The fast reader takes bytes and text, and nothing that is not JSON."""
    assert parse(b'{"a":[1]}') == parse('{"a":[1]}') == {"a": [1]}
    for bad in (b"[NaN]", b"\xef\xbb\xbf{}", b'"\xff"', "{} x"):
        with pytest.raises(ValueError):
            parse(bad)


@given(st.text(st.characters(), max_size=12))
def test_own_texts_are_read_back_with_half_pairs(text: str) -> None:
    """Whatever string was rendered is read back, halves of pairs included."""
    assert parse_own(render({"t": text})) == {"t": text} or any("\ud800" <= c <= "\udfff" for c in text)
    assert parse_own(render({"t": HALF + "x"})) == {"t": HALF + "x"}


@given(texts, st.integers(0, 10))
def test_halves_in_two_fragments_join(text: str, at: int) -> None:
    """A pair that was cut in two is one character again; the rest of the text stays."""
    halves = "\ud83d", "\udc38"
    assert join_surrogates(text[:at] + halves[0] + halves[1] + text[at:]) == text[:at] + "\U0001f438" + text[at:]
    assert join_surrogates(text + halves[0]) == text + halves[0]
    assert join_surrogates(text) == text


# ---------------------------------------------------------------- nesting


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner), default=0) if isinstance(value, dict | list) else 0


@given(values, st.integers(0, 8))
def test_nesting_is_counted_as_readers_count_it(value: Any, limit: int) -> None:
    """Brackets in strings and keys do not count, brackets of objects and arrays do."""
    assert nests_deeper(render(value), limit) is (depth_of(value) > limit)
    assert is_deeper(value, limit) is (depth_of(value) > limit)


@given(st.binary(max_size=40), st.integers(0, 3))
def test_nesting_works_on_any_bytes(data: bytes, limit: int) -> None:
    """No bytes are an error."""
    assert nests_deeper(data, limit) in (True, False)


@pytest.mark.parametrize("data", [b"]]]][[[[", b"}}}}}}[[[[", b'"]" ]]] [[[[', b'[[[["'])
def test_closing_brackets_pay_for_nothing(data: bytes) -> None:
    """Closing brackets in front do not make room for opening ones."""
    assert nests_deeper(data, 3)


def test_an_open_string_hides_what_is_behind_it() -> None:
    """A string that never ends goes to the end of the text."""
    assert not nests_deeper(b'["[[[[[[', 3)
    assert not nests_deeper(b'["\\"[[[[[[\\', 3)
