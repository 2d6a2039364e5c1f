from __future__ import annotations

from typing import Any

import pytest

from proxy.core.jsontext import Json
from proxy.core.policy.conditions import compile_condition, conditions_hold
from proxy.core.policy.failures import UnjudgeableError

CASES: list[tuple[dict[str, Any], list[Json], list[Json]]] = [
    ({"equals": "rm"}, ["rm"], ["RM", "rm ", 1, None, ["rm"]]),
    ({"equals": 1}, [1, 1.0], ["1", True, 2]),
    ({"in": ["w", "a"]}, ["w", "a"], ["r", "wa", None]),
    ({"notIn": ["r"]}, ["w", 1, None, ["r"]], ["r"]),
    ({"glob": ["*.py", "*.js"]}, ["a.py", "b/a.js"], ["a.pyc", "A.PY", None]),
    ({"notGlob": ["*.py"]}, ["a.txt", None], ["a.py"]),
    ({"regex": "rm +-rf"}, ["sudo rm   -rf /"], ["rm -r", None]),
    ({"gt": 10}, [11, 10.5], [10, 9, None]),
    ({"gte": 10}, [10, 10.0, 11], [9.99]),
    ({"lt": 10}, [9, -1, 9.99], [10]),
    ({"lte": 10}, [10, 9], [10.01]),
    ({"gt": 9007199254740992}, [9007199254740993], [9007199254740992]),
    ({"longerThan": 3}, ["abcd", "\u00e9" * 4, [1, 2, 3, 4]], ["abc", "\u00e9" * 3, [1, 2, 3]]),
    ({"shorterThan": 3}, ["ab", "", [1]], ["abc", [1, 2, 3]]),
    ({"inside": ["/workspace"]}, ["/workspace/a", "a/b"], ["/etc/passwd", "../a", None]),
    (
        {"notInside": ["/workspace", "/var"]},
        ["/etc/passwd", "/workspace/../etc", None],
        ["/workspace/a", "/var/x", "a"],
    ),
    ({"host": ["*.example.org"]}, ["https://a.example.org/x"], ["https://example.com/?a.example.org", "x", None]),
    (
        {"notHost": ["api.example.org"]},
        ["https://api.example.org@example.com/", "x", None],
        ["https://api.example.org/"],
    ),
    ({"host": ["private"]}, ["http://localhost/", "http://2130706433/"], ["http://8.8.8.8/"]),
    ({"type": "string"}, ["", "1"], [1, None, [], {}, True]),
    ({"type": "integer"}, [1, 0, 1.0], [1.5, "1", True]),
    ({"type": "number"}, [1, 1.5], [True, "1"]),
    ({"type": "boolean"}, [True, False], [0, None]),
    ({"type": "array"}, [[]], [{}, "[]"]),
    ({"type": "object"}, [{}], [[], "{}"]),
    ({"type": "null"}, [None], ["", 0, "null"]),
    ({"present": True}, [1, "", None], []),
    ({"present": False}, [], [1, "", None]),
    ({"gt": 1, "lt": 5}, [2], [1, 5]),
]
WRONG: list[tuple[dict[str, Any], Json]] = [
    ({"glob": ["*.py"]}, 1),
    ({"notGlob": ["*.py"]}, 1),
    ({"regex": "rm"}, ["rm", "-rf"]),
    ({"gt": 10}, "11"),
    ({"lte": 10}, True),
    ({"longerThan": 3}, 12345),
    ({"inside": ["/workspace"]}, 1),
    ({"notInside": ["/workspace"]}, ["/workspace"]),
    ({"host": ["private"]}, {"url": "http://localhost"}),
    ({"notHost": ["example.org"]}, 1),
]


def holds(given: dict[str, Any], *value: Json, every: bool = False) -> bool:
    arguments: dict[str, Json] = {"x": value[0]} if value else {}
    return compile_condition("x", given).holds(arguments, for_all_readings=every)


@pytest.mark.parametrize(("given", "yes", "no"), CASES, ids=[str(given) for given, _, _ in CASES])
def test_a_condition_holds_for_what_it_says(given: dict[str, Any], yes: list[Json], no: list[Json]) -> None:
    """A value either meets a condition or does not; both readings agree where there is only one."""
    for every in (False, True):
        assert [value for value in yes if not holds(given, value, every=every)] == []
        assert [value for value in no if holds(given, value, every=every)] == []


@pytest.mark.parametrize("given", [given for given, _, _ in CASES], ids=str)
def test_of_an_absent_value_only_the_negative_conditions_hold(given: dict[str, Any]) -> None:
    """What cannot be seen to be safe is not."""
    negative = bool({"notIn", "notGlob", "notInside", "notHost"} & given.keys()) or given.get("present") is False
    assert holds(given) is negative


@pytest.mark.parametrize(("given", "value"), WRONG, ids=str)
def test_a_value_of_another_type_cannot_be_judged(given: dict[str, Any], value: Json) -> None:
    """A condition says so when it cannot judge a value."""
    with pytest.raises(UnjudgeableError):
        holds(given, value)


def test_one_condition_that_is_false_settles_it() -> None:
    """What cannot be judged does not count beside what is false."""
    conditions = [compile_condition("x", {"gt": 1}), compile_condition("y", {"equals": 1})]
    assert not conditions_hold(conditions, {"x": "a", "y": 2}, for_all_readings=False)
    with pytest.raises(UnjudgeableError):
        conditions_hold(conditions, {"x": "a", "y": 1}, for_all_readings=False)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"inside": ["/workspace"]}, "a\\..\\..\\x"),
        ({"notInside": ["/workspace"]}, "a\\..\\..\\x"),
        ({"host": ["example.com"]}, "https://example.com\\@evil.test/"),
        ({"notHost": ["example.com"]}, "https://example.com\\@evil.test/"),
    ],
)
def test_a_value_with_two_readings_counts_against_the_call(given: dict[str, Any], value: str) -> None:
    """It meets a rule that can hold, and does not meet one that lets calls go ahead."""
    assert holds(given, value)
    assert not holds(given, value, every=True)


@pytest.mark.parametrize("path", ["", "a.", ".a", "a..b"])
def test_a_path_has_no_empty_steps(path: str) -> None:
    """A path that leads nowhere is a mistake."""
    with pytest.raises(ValueError, match="dotted path"):
        compile_condition(path, {"present": True})


def test_a_condition_says_something() -> None:
    """A condition without conditions is a mistake."""
    with pytest.raises(ValueError, match="at least one"):
        compile_condition("x", {})
