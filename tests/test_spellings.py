"""Spellings that can be read and hardly mean what they say."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.spellings import odd_spellings


def rules(*matches: Any) -> dict[str, Any]:
    return {"spec": {"rules": [{"name": "r", "match": match} for match in matches]}}


@pytest.mark.parametrize(
    ("glob", "said"),
    [("{a,b}_x", "braces"), ("[a-", "not closed"), ("x]y[", "not closed"), ("“x”", "quotes"), ("„x", "quotes")],
)
def test_signs_that_no_glob_of_ours_knows_are_told_where_they_stand(glob: str, said: str) -> None:
    """In tools and in arguments, in a list and alone."""
    found = list(odd_spellings(rules({"tools": ["a", glob]}, {"args": {"path": {"notGlob": glob}}})))
    assert [path for path, _ in found] == [
        ("spec", "rules", 0, "match", "tools", 1),
        ("spec", "rules", 1, "match", "args", "path", "notGlob"),
    ]
    assert all(said in message for _, message in found)


@pytest.mark.parametrize("glob", ["*_x", "[a-z]?", "[!a]", "it's", "{id}", "a,b", "x]"])
def test_other_globs_are_well(glob: str) -> None:
    """Braces around one name may be part of a path."""
    assert list(odd_spellings(rules({"tools": [glob]}, {"args": {"path": {"equals": "{a,b}"}}}))) == []


@pytest.mark.parametrize("spec", [{}, {"rules": []}, {"rules": None}, {"mode": "shadow"}])
def test_a_policy_without_rules_is_told(spec: Any) -> None:
    """It does nothing."""
    assert list(odd_spellings({"spec": spec})) == [(("spec",), "there is no rule in it, so that it does nothing")]


@pytest.mark.parametrize(
    "document", [None, [], {}, {"spec": 1}, rules(None, 3, {"tools": 7}), {"spec": {"rules": [1]}}]
)
def test_what_is_no_policy_has_no_spellings(document: Any) -> None:
    """Its mistakes are told elsewhere."""
    assert list(odd_spellings(document)) == []
