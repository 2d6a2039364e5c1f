"""Every value has a comment and a place in the schema, and what is made of the comments is up to date."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.kubernetes.reference import Value, documented, readme, schema
from tests.kubernetes.tools import CHART, ROOT

TEXT = (CHART / "values.yaml").read_text()


def test_every_value_has_a_comment() -> None:
    """Of its own, or of the mapping that it is a part of."""
    assert [".".join(value.path) for value in documented(TEXT) if not value.comment] == []


def test_the_readme_is_up_to_date() -> None:
    """`python -m tests.kubernetes.reference` writes it."""
    old = (CHART / "README.md").read_text()
    assert readme(old, TEXT) == old


def test_the_schema_is_up_to_date() -> None:
    """Its descriptions are the comments of the values."""
    old = (CHART / "values.schema.json").read_text()
    assert schema(old, TEXT) == old


def test_the_schema_knows_every_value_and_no_other() -> None:
    """Mappings are closed, save those that are passed on as they are; and every key of theirs has a default."""

    def compare(keys: dict[str, Any], values: dict[str, Any], path: str) -> None:
        assert keys["additionalProperties"] is False, path
        assert values.keys() <= keys["properties"].keys(), path
        for key, below in keys["properties"].items():
            if path == "" and key == "global":  # Helm's own
                continue
            if path.startswith("probes."):  # a probe may have more
                continue
            assert key in values, f"{path}{key} has no default"
            if "properties" in below:
                compare(below, values[key], f"{path}{key}.")

    compare(json.loads((CHART / "values.schema.json").read_text()), yaml.safe_load(TEXT), "")


def test_a_comment_of_several_lines_belongs_to_the_key_below() -> None:
    """Keys of a mapping without comments are told of by its own comment."""
    text = "a:\n  # One\n  # two.\n  b: 1\n  # Three.\n  c:\n    d: [x]\n"
    assert documented(text) == [Value(("a", "b"), "One two.", "1"), Value(("a", "c"), "Three.", '{"d": ["x"]}')]


def test_a_comment_above_a_blank_line_belongs_to_no_key() -> None:
    """An example is no description of what comes behind it."""
    text = "a:\n  # An example:\n  #   b: 2\n\n  # One.\n  b: 1\n"
    assert documented(text) == [Value(("a", "b"), "One.", "1")]


def test_the_chart_installs_this_release() -> None:
    """The version of the program is that of the package."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'__version__ = "{chart["appVersion"]}"' in (ROOT / "proxy" / "__init__.py").read_text()
