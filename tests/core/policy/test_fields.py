from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.core.policy.fields import GlobTexts, JsonField, Name, Number, SchemaField, UrlText


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (GlobTexts, "a*", ["a*"]),
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
    + [(UrlText, url) for url in ("", "opa/v1", "ftp://a/b", "http://", "http://a:0/", "http://u:p@a/", "http://a/#f")]
    + [(UrlText, url) for url in ("http://a/ b", "http://a\\b", "http://a/\n", "http://ä/", "http://a:x/", "http://[/")]
    + [(Name, name) for name in ("", " a", "a\n", "a/b", "x" * 101, "\u202e")],
)
def test_what_is_refused(kind: Any, value: Any) -> None:
    """A field says no at load."""
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)
