from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from proxy.core.policy.problems import DocumentProblem, PolicyProblems, misplaced, problems_of, suggestion


def _even(number: int) -> int:
    if number % 2:
        raise misplaced("expected an even number", "deeper")
    return number


class Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    port: int = 0


class Outer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    listen: Inner = Inner()
    many: list[Inner] = []
    either: int | list[int] = 0
    even: Annotated[int, AfterValidator(_even)] = 0
    long_name: str = Field(default="", alias="longName", max_length=3)


def told(source: object) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(source)
    return [(p.path, p.message) for p in problems_of(raised.value, source, model=Outer, document=0)]


def test_paths_are_those_of_the_source() -> None:
    """Branches of unions are left out, and a validator may lead on to a key below."""
    assert told({"either": ["x"]})[0][0] == ("either",) or told({"either": ["x"]})[-1][0] == ("either", 0)
    assert told({"even": 3}) == [(("even", "deeper"), "expected an even number")]
    assert told({"many": [{"port": "x"}]})[0] == (("many", 0, "port"), "expected a whole number, got 'x'")


def test_an_unknown_key_is_told_with_those_that_are_known() -> None:
    """The keys of the very place are named, and a close one is suggested."""
    assert told({"listen": {"prot": 1}}) == [
        (("listen", "prot"), "unknown key 'prot' (did you mean 'port'?): expected one of port")
    ]
    assert "expected one of either, even, listen, longName, many" in told({"zzz": 1})[0][1]
    assert "'longName'" in told({"longname": "x"})[0][1]


def test_other_messages_pass_through() -> None:
    """What has no words of its own keeps the library's."""
    assert told({"longName": "abcdef"}) == [(("longName",), "String should have at most 3 characters")]


def test_values_of_other_types_are_shown() -> None:
    """Whatever YAML made of a value can be shown."""
    assert told({"listen": {"port": b"x"}})[0][1] == "expected a whole number, got the bytes b'x'"
    assert told({"listen": {"port": None}})[0][1] == "expected a whole number, got nothing (null)"
    assert told({"longName": 12.5})[0][1] == "expected text, got the number 12.5: put it in quotes"


def test_a_suggestion_is_close() -> None:
    """Nothing is suggested for a word like no other."""
    assert suggestion("Whn", ["when", "name"]) == " (did you mean 'when'?)"
    assert suggestion("qqq", ["when", "name"]) == ""


def test_problems_are_raised_together() -> None:
    """The exception holds every problem, and says them all."""
    error = PolicyProblems([DocumentProblem(0, ("a", 1), "x"), DocumentProblem(2, (), "y")])
    assert str(error) == "0: a.1: x\n2: : y"
