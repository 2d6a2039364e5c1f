"""The reference of all keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from proxy.authoring.reference import reference
from proxy.authoring.schemas import MODELS, schema_of

ROOT = Path(__file__).parent.parent.parent
PAGE = reference()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def anchors(page: str) -> list[str]:
    """As GitHub makes them of headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = sum(one == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", one) is not None for one in found)
        found.append(f"{slug}-{count}" if count else slug)
    return found


def test_the_page_is_that_of_the_models() -> None:
    """`make reference` renews it."""
    assert (ROOT / "docs" / "reference.md").read_text() == PAGE


@pytest.mark.parametrize("name", MODELS)
def test_every_key_has_a_row_with_words(name: str) -> None:
    """Of every mapping of every kind of document."""
    schema = schema_of(name)
    models: list[dict[str, Any]] = [schema, *schema["definitions"].values()]
    keys = {key for model in models if model.get("title") != "Secret" for key in model.get("properties", {})}
    assert keys <= {row.split("`")[1] for row in ROWS}


def test_rows_are_complete() -> None:
    """No key is without a type and words, and no cell breaks its table."""
    for row in ROWS:
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert len(cells) in (3, 4)
        assert all(cell.strip() for cell in (cells[0], cells[1], cells[-1])), row


def test_links_lead_to_sections() -> None:
    """Each to one that is there; no two sections have one anchor."""
    there = anchors(PAGE)
    assert len(set(there)) == len(there)
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= set(there)


@pytest.mark.parametrize(
    "row",
    [
        "| `per` | duration | needed | The window. |",
        "| `ttl` | duration | `1h` | How long a decision may take, and how long an approval counts from then on. |",
        "| `maxBytes` | size | needed | How many bytes of the result stay. |",
        "| `kind` | `ToolPolicy` | needed | What this document is. |",
        "| `token` | secret |  | The bearer token of the admin page and its API. |",
        "| `headers` | names to text | Globs of request headers by name. |",
        "| `port` | whole number from 0 to 65535 | `15490` "
        "| The port of health, metrics and the admin page; 0: any free one. |",
    ],
)
def test_types_and_defaults_are_words(row: str) -> None:
    """As a file would spell them."""
    assert row in ROWS


def test_a_mapping_that_stands_at_several_places_is_told_once() -> None:
    """Under the shortest path, with the others named."""
    assert "### spec.match\n" in PAGE
    assert "Also `spec.rules[].match`." in PAGE
    assert "### spec.rules[].match\n" not in PAGE
