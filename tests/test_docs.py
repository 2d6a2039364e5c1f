"""What the docs name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.e2e.test_surfaces import SURFACES

ROOT = Path(__file__).parent.parent
SURFACES_PAGE = (ROOT / "docs" / "surfaces.md").read_text()
NAMED = re.findall(r'\]\(\.\./(tests/[\w/]+\.py) "(\w+)(?:\[([\w-]+)\])?"\)', SURFACES_PAGE)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)")


def test_the_table_of_surfaces_names_tests() -> None:
    """Every cell but a dash, and every surface of the tests has a column."""
    rows = [line for line in SURFACES_PAGE.splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
    assert len(NAMED) == sum(cell.startswith("[yes]") for cell in cells)
    assert {surface for _, _, surface in NAMED if surface} == set(SURFACES)


@pytest.mark.parametrize(("file", "name", "surface"), sorted(set(NAMED)))
def test_a_test_that_the_table_names_exists(file: str, name: str, surface: str) -> None:
    """By its own name, for the surface that it is named for."""
    tree = ast.parse((ROOT / file).read_text())
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = next((n for n in functions if n.name == name), None)
    assert found is not None, f"{file} has no {name}"
    if surface:
        assert any(isinstance(d, ast.Name) and d.id == "on_all" for d in found.decorator_list)


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Files that a page links to are there."""
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing
