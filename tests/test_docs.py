"""What the docs name is there, and what they show works."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from proxy import cli
from proxy.authoring.schemas import KINDS, schema_of
from proxy.authoring.testing import run_tests
from proxy.authoring.testreports import difference_line
from proxy.checking import check
from proxy.core.policy.casemodel import CasesDocument
from proxy.yamlfile import read_documents
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


# ---------------------------------------------------------------- what the pages for authors show

AUTHORS = ("policies", "authoring", "tutorial", "cookbook", "decisions", "limits-of-policies", "tools")
PAGES = {"README": ROOT / "README.md", **{name: ROOT / "docs" / f"{name}.md" for name in AUTHORS}}
FENCE = re.compile(r"^(#{2,3} [^\n]*)$|^```(\w*)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIG = jsonschema_rs.validator_for(schema_of("config"))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it stands for, and the heading that it is under."""

    language: str
    file: str
    text: str
    heading: str


def blocks(page: str) -> Iterator[Block]:
    heading = ""
    for found in FENCE.finditer(PAGES[page].read_text()):
        if found[1]:
            heading = found[1].strip("# ")
        else:
            yield Block(found[2], found[3] or "", found[4], heading)


YAML = [(page, block) for page in PAGES for block in blocks(page) if block.language == "yaml"]
RECIPES = [block for block in blocks("cookbook") if block.language == "yaml"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; the Python object that the pages name can be imported."""
    monkeypatch.chdir(tmp_path)
    (code,) = (block.text for block in blocks("policies") if block.language == "python")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "house_rules.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    for name in ("SIDECALL_POLICIES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def whole(value: Any) -> Any:
    """A part of a policy or of a configuration as a document that can be judged."""
    if isinstance(value, dict) and ("kind" in value or "tools" in value):
        return {"apiVersion": "sidecall.io/v1", "kind": "Config", **value}
    rules = value if isinstance(value, list) else [{"name": "r", "block": {}, **value}]
    return {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy", "metadata": {"name": "p"}, "spec": {"rules": rules}}


@pytest.mark.parametrize(
    ("page", "block"), YAML, ids=[f"{page}-{block.heading}-{i}" for i, (page, block) in enumerate(YAML)]
)
def test_what_is_shown_in_yaml_can_be_used(page: str, block: Block, folder: Path) -> None:
    """A policy compiles, a test document and a configuration are well-formed; a part of one is, in its place."""
    Path("shown.yaml").write_text(block.text)
    documents = [whole(document.value) for document in read_documents("shown.yaml")]
    assert documents or page == "authoring"  # a comment that editors read
    for document in documents:
        assert document["kind"] in KINDS.values()
        if document["kind"] == "Config":
            assert [str(error) for error in CONFIG.iter_errors(document)] == []
        elif document["kind"] == "ToolPolicyTest":
            CasesDocument.model_validate(document)
        else:
            Path("policy.json").write_text(json.dumps(document))
            found = check(["policy.json"], {})
            assert found.errors == ()
            assert found.policies == 1


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.heading)
def test_a_recipe_does_what_its_cases_say(block: Block, folder: Path) -> None:
    """Each rule acts in a case, and lets by in another; the file can be used as it stands."""
    Path("recipe.yaml").write_text(block.text)
    assert check(["recipe.yaml"], {}).errors == ()
    report = run_tests(["recipe.yaml"], {})
    assert {case.name: [difference_line(one) for one in case.outcome.differences] for case in report.failed} == {}
    assert report.cases
    assert report.coverage.unreached == ()


def test_the_cookbook_answers_many_questions() -> None:
    """Each once, under a policy name of its own."""
    questions = re.findall(r"^### (.*)$", PAGES["cookbook"].read_text(), re.MULTILINE)
    assert len(questions) >= 25
    assert all(question.startswith("How do I ") and question.endswith("?") for question in questions)
    assert len(set(questions)) == len(questions)
    names = [re.findall(r"metadata: {name: (.*?)}", block.text) for block in RECIPES]
    assert all(len(set(both)) == 1 for both in names)
    assert len({both[0] for both in names}) == len(names)


@pytest.mark.parametrize("page", ["tutorial", "decisions"])
def test_a_walk_through_a_page_goes_as_it_says(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are written and changed, and commands say what stands there, to the letter."""
    ran = 0
    for block in blocks(page):
        if block.language == "diff":
            lines = block.text.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
            text = Path(block.file).read_text()
            assert text.count(old) == 1
            Path(block.file).write_text(text.replace(old, new))
        elif block.file:
            Path(block.file).write_text(block.text)
        elif block.language == "console":
            command, _, expected = block.text.partition("\n")
            program, *arguments = shlex.split(command.removeprefix("$ "))
            assert program == "sidecall"
            cli.main(arguments)
            told = capsys.readouterr()
            assert told.out + told.err == expected
            ran += 1
    assert ran >= 3


ANCHOR = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_headings(page: str) -> None:
    """Of the page itself, and of other pages."""
    path = PAGES[page]
    for file, anchor in ANCHOR.findall(path.read_text()):
        target = (path.parent / file).read_text() if file else path.read_text()
        headings = re.findall(r"^#+ (.*)$", target, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


COMMAND = re.compile(r"\bsidecall ((?:serve|check|test|explain|replay|schema|demo-upstream) [^`|&>#\n]+)")


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_the_options_that_are_shown(page: str) -> None:
    """In blocks and in running text, as far as they are shown with what they are given."""
    for shown in COMMAND.findall(PAGES[page].read_text()):
        options = cli.build_parser().parse_args(shlex.split(shown))
        assert callable(options.command)
