from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.core.policy.fields import ConditionText, GlobTexts, JsonField, Name, Number, RegexText, SchemaField, UrlText


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (GlobTexts, "a*", ["a*"]),
        (ConditionText, "1 < 2", "1 < 2"),
        (ConditionText, "args.a + 1", "args.a + 1"),
        (Number, 2**60 + 1, 2**60 + 1),
        (Name, "A b", "A b"),
        (UrlText, "http://[::1]:8181/v1/data/a?x=%20", "http://[::1]:8181/v1/data/a?x=%20"),
    ],
)
def test_what_is_taken(kind: Any, value: Any, read: Any) -> None:
    """One glob becomes a list, and long integers keep their digits."""
    assert TypeAdapter(kind).validate_python(value) == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [(GlobTexts, 1), (Number, True), (Number, float("nan")), (JsonField, {"a": {1}}), (SchemaField, 1)]
    + [(ConditionText, text) for text in ("1 + 1", "'yes'", "1.5", "[true]", "1 / 0", "args.a = 1", "")]
    + [(RegexText, ""), (RegexText, "(")]
    + [(UrlText, url) for url in ("", "opa/v1", "ftp://a/b", "http://", "http://a:0/", "http://u:p@a/", "http://a/#f")]
    + [(UrlText, url) for url in ("http://a/ b", "http://a\\b", "http://a/\n", "http://ä/", "http://a:x/", "http://[/")]
    + [(Name, name) for name in ("", " a", "a\n", "a/b", "x" * 101, "\u202e")],
)
def test_what_is_refused(kind: Any, value: Any) -> None:
    """A field says no at load."""
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_a_condition_that_is_none_says_what_it_is() -> None:
    """It would fail for every call."""
    with pytest.raises(ValidationError, match="no condition for any call: expected true or false, got a int"):
        TypeAdapter(ConditionText).validate_python("1 + 1")
    with pytest.raises(ValidationError, match="'=' at character 8 compares nothing; expected '=='"):
        TypeAdapter(ConditionText).validate_python("args.a = 1")
