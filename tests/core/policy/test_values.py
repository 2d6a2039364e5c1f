from __future__ import annotations

import pytest

from proxy.core.jsontext import Json, SpelledFloat, SpelledInt, parse_exact, render_text
from proxy.core.policy.values import ABSENT, canonical, exact, keyed, look_up, plain, same


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (SpelledFloat("1.50"), 1.5, True),
        ([1, {"a": None}], [1.0, {"a": None}], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_values_are_equal_as_json(left: Json, right: Json, equal: bool) -> None:
    """Numbers are equal by value, and a truth value is no number."""
    assert same(left, right) is same(right, left) is equal


def test_a_path_leads_through_objects_and_lists() -> None:
    """What is not there is absent, and null is there."""
    value: Json = {"a": [{"b": None}], "a.b": 1}
    assert look_up(value, ("a", "0", "b")) is None
    assert [look_up(value, steps) for steps in (("a", "b"), ("a", "1"), ("c",), ("a.b", "x"))] == [ABSENT] * 4


def test_a_key_is_the_same_for_equal_values() -> None:
    """Spelling of numbers and order of keys do not count."""
    assert keyed({"b": SpelledFloat("1e1"), "a": 1}) == keyed({"a": SpelledFloat("1.0"), "b": 10}) == '{"a":1,"b":10}'
    assert keyed(SpelledInt("123456789012345678901")) == keyed(exact(123456789012345678901)) == "123456789012345678901"
    assert keyed([SpelledFloat("1.5")]) == "[1.5]"


def test_values_of_documents_are_written_exactly() -> None:
    """A long integer keeps its digits; what is no JSON is refused."""
    assert (
        render_text(exact({"a": [2**70, 1.5, None, True, "x"]})) == '{"a":[1180591620717411303424,1.5,null,true,"x"]}'
    )
    for wrong in (float("nan"), float("inf"), object(), "\ud800"):
        with pytest.raises(ValueError, match="expected a JSON value"):
            exact(wrong)


def test_plain_numbers_are_pythons_own() -> None:
    """Other libraries get no subclasses."""
    found = plain({"a": [SpelledFloat("1.50"), SpelledInt("-0"), "x"]})
    assert isinstance(found, dict)
    assert isinstance(found["a"], list)
    assert [type(value) for value in found["a"]] == [float, int, str]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"a":1,"b":[true,null]}', '{ "b" : [true, null], "a" : 1.0 }', True),
        ('{"a":100}', '{"a":1e2}', True),
        ('{"a":0.10}', '{"a":1E-1}', True),
        ('{"a":-0.0}', '{"a":0}', True),
        ('{"a":"caf\u00e9"}', '{"a":"café"}', True),
        ('{"a":1}', '{"a":"1"}', False),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":1}', '{"a":1,"b":null}', False),
        ('{"a":0.1}', '{"a":0.10000000000000000001}', False),
        ('{"a":10000000000000000000001}', '{"a":10000000000000000000002}', False),
        ('{"a":1e-99999999999999999999}', '{"a":0}', False),
        ('{"a":"e\u0301"}', '{"a":"é"}', False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"a":-1}', '{"a":1}', False),
        ('{"a":10}', '{"a":1}', False),
    ],
)
def test_a_canonical_text_is_the_same_for_the_same_value_alone(one: str, other: str, equal: bool) -> None:
    """However it is spelled; numbers by their exact value."""
    assert (canonical(parse_exact(one).value) == canonical(parse_exact(other).value)) is equal
