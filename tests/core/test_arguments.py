from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.arguments import Arguments, Wrapping, read_arguments, render_arguments
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import parse_exact, render_text
from tests.core.values import objects, texts


def call(text: str, *, kind: Kind = Kind.FUNCTION, unwrapped: bool = False) -> ToolCall:
    return ToolCall(CallId("c"), "t", text, kind, unwrapped)


def read(text: str, **more: Any) -> Arguments:
    return read_arguments(call(text, **more))


@given(objects, st.sampled_from([Wrapping.TEXT, Wrapping.OBJECT, Wrapping.TWICE]))
def test_an_object_is_read_in_any_wrapping_and_written_in_the_same(value: dict[str, Any], wrapping: Wrapping) -> None:
    """What rules judge is the object, and changed arguments go on in the shape that they came in."""
    text = render_arguments(value, wrapping)
    found = read(text, unwrapped=wrapping is Wrapping.OBJECT)
    assert found == Arguments(value, wrapping)
    assert found.value is not None
    assert render_arguments(found.value, found.wrapping) == text


@given(texts)
def test_free_text_is_the_input_of_a_custom_tool(text: str) -> None:
    """A custom tool's text is never taken for JSON, and comes out as it went in."""
    found = read(text, kind=Kind.CUSTOM)
    assert found == Arguments({"input": text}, Wrapping.INPUT)
    assert render_arguments({"input": text}, Wrapping.INPUT) == text


@pytest.mark.parametrize(
    ("value", "text"), [({"input": 5}, '{"input":5}'), ({}, "{}"), ({"input": "x", "more": 1}, "x")]
)
def test_what_a_rule_makes_of_free_text(value: dict[str, Any], text: str) -> None:
    """Changed input is text where it is text, and JSON where a rule made something else of it."""
    assert render_arguments(value, Wrapping.INPUT) == text


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
@pytest.mark.parametrize("unwrapped", [False, True])
def test_no_arguments_are_an_empty_object(text: str, unwrapped: bool) -> None:
    """A call without parameters has an empty object, in its own wrapping."""
    wrapping = Wrapping.OBJECT if unwrapped else Wrapping.TEXT
    assert read(text, unwrapped=unwrapped) == Arguments({}, wrapping)


@pytest.mark.parametrize("kind", [Kind.FUNCTION, Kind.LEGACY])
@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ('{"a":1,"a":2}', {"a": 2}, '{"a":2}'),
        ('{"limit":5,"l\\u0069mit":5000}', {"limit": 5000}, '{"limit":5000}'),
        ('{"n":1.10} x', {"n": 1.1}, '{"n":1.10}'),
        ('{"a":1}{"a":1}', {"a": 1}, '{"a":1}'),
        ('"{\\"a\\":1,\\"a\\":2}"', {"a": 2}, '"{\\"a\\":2}"'),
        ('"{}" x', {}, '"{}"'),
        ('{"a": 1}', {"a": 1}, None),
        (' {"a":\n1} ', {"a": 1}, None),
        ('"{\\"limit\\":50}"', {"limit": 50}, None),
        ('{"a":9007199254740993}', {"a": 9007199254740993}, None),
    ],
)
def test_text_that_can_be_read_in_two_ways_has_a_canonical_one(
    text: str, value: dict[str, Any], canonical: str | None, kind: Kind
) -> None:
    """Where another reader may see something else, the text that the rules saw is known; elsewhere none is needed."""
    found = read(text, kind=kind)
    assert (found.value, found.canonical, found.problem) == (value, canonical, "")
    if canonical is not None:
        assert read(canonical) == Arguments(value, found.wrapping)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("null", "it is no JSON object"),
        ("[1]", "it is no JSON object"),
        ("5", "it is no JSON object"),
        ('"text"', ""),
        ('"[1]"', "it is no JSON object"),
        ('"\\"{}\\""', "it is no JSON object"),
        ("{", ""),
        ("{'q':'x',}", ""),
        ('{"q": NaN}', "NaN is not JSON"),
        ('{"q": 1e400}', "1e400 is no number that every reader can hold"),
        ('{"q":"\\ud83d"}', "it has half a surrogate pair"),
        ('{"q":"\ud83d"}', "it has half a surrogate pair"),
        ('{"q":"\ud83dx"', ""),
        ('"{\\"q\\":\\"\\\\ud83d\\"}"', "it has half a surrogate pair"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested deeper than 128"),
        ('"' + "[" * 129 + "]" * 129 + '"', ""),
        ("[" * 100_000, "nested deeper than 128"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_object_has_a_problem(text: str, problem: str) -> None:
    """Rules that read arguments are told that there are none, and why; nothing is raised and nothing guessed."""
    found = read(text)
    assert (found.value, found.canonical) == (None, None)
    assert found.problem
    assert problem in found.problem


def test_nesting_within_a_text_in_a_text_is_counted() -> None:
    """A second encoding is no way around the limit of nesting."""
    inner = '{"a":' * 5 + "1" + "}" * 5
    assert read_arguments(call(inner), 4).value is None
    assert read_arguments(call(inner), 5).value is not None
    assert read_arguments(call(render_text(inner)), 4).value is None
    assert read_arguments(call(render_text(inner)), 5).value is not None


def test_an_unwrapped_string_is_no_object() -> None:
    """Only text is opened a second time: what came as a value is that value."""
    assert read('"{}"', unwrapped=True).value is None


@given(st.text(max_size=30) | st.text(st.characters(), max_size=20), st.sampled_from(Kind), st.booleans())
def test_reading_never_raises(text: str, kind: Kind, unwrapped: bool) -> None:
    """Whatever a model writes is an object or has a problem."""
    found = read(text, kind=kind, unwrapped=unwrapped)
    assert (found.value is None) is bool(found.problem)


@given(objects)
def test_numbers_that_no_rule_touched_keep_their_spelling(value: dict[str, Any]) -> None:
    """What is rendered again has the numbers that came."""
    text = '{"n":[1.10,9007199254740993,1e2,-0],"o":' + render_text(value) + "}"
    found = read(text)
    assert found.value is not None
    assert render_arguments(found.value, Wrapping.TEXT) == render_text(parse_exact(text).value)
    assert render_arguments(found.value, Wrapping.TEXT).startswith('{"n":[1.10,9007199254740993,1e2,-0],')
