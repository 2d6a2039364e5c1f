"""The library as a whole: without a warning, told of in its index, described, and shown in both directions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.authoring.index import KNOWN_GAP, Entry, index, read_library
from proxy.checking import check
from proxy.core.policy.casemodel import CaseModel, ExpectModel

POLICIES = Path(__file__).parent.parent.parent / "policies"
SCHEMAS = POLICIES.parent / "docs" / "schemas"
LIBRARY = read_library(POLICIES, {})
CATEGORIES = {
    *("conduct", "data", "files", "hosted", "mail", "money", "rollout", "scope", "shell", "sql", "web"),
}

every_policy = pytest.mark.parametrize("entry", LIBRARY, ids=lambda entry: entry.policy.metadata.name)


def expectations(case: CaseModel) -> Iterator[ExpectModel]:
    yield from filter(None, (case.expect, *(call.expect for call in case.batch or ())))


def acts(case: CaseModel) -> bool:
    """Whether a case shows a policy at work: a call that is held or changed, a result that is, an order of its own."""
    return any(
        one.given().get("decision", "allowed") != "allowed"
        or one.given().get("outcome", "ok") != "ok"
        or one.shadows
        or one.deferred
        or one.given().get("ends", "pass") != "pass"
        for one in expectations(case)
    )


def test_the_library_is_checked_without_a_warning() -> None:
    """As `sidecall check --strict policies/` says it; all of it together is one set."""
    found = check([str(POLICIES)], {})
    assert (found.errors, found.warnings) == ((), ())
    assert found.policies == len(LIBRARY)


def test_the_library_is_as_wide_as_promised() -> None:
    """At least 28 policies, and each of the categories."""
    assert len(LIBRARY) >= 28
    assert {entry.category for entry in LIBRARY} == CATEGORIES


def test_the_index_is_up_to_date() -> None:
    """policies/README.md is what `make index` makes."""
    assert (POLICIES / "README.md").read_text() == index(LIBRARY)


@every_policy
def test_a_policy_says_what_it_is(entry: Entry) -> None:
    """A title, the category of its folder, and a description of several sentences; a block says why."""
    about = entry.policy.metadata
    assert about.category == entry.category
    assert 0 < len(about.title) <= 80
    assert len(about.description) > 150
    blocks = [rule.block for rule in entry.policy.spec.rules if rule.block is not None]
    assert all("message" in block.model_fields_set for block in blocks)


@every_policy
def test_a_policy_is_shown_in_both_directions(entry: Entry) -> None:
    """A case in which it acts, and one in which it lets a call or a result by; a known gap is one that passes."""
    shown = [case for case in entry.cases if acts(case)]
    passed = [case for case in entry.cases if not acts(case) and not case.name.startswith(KNOWN_GAP)]
    assert shown
    assert passed
    gaps = [case for case in entry.cases if case.name.startswith(KNOWN_GAP) and case.batch is None]
    assert not any(acts(case) for case in gaps)


@every_policy
def test_a_policy_lets_nothing_by_for_others(entry: Entry) -> None:
    """No `allow`: it would end the chain before policies that are listed behind."""
    assert "allow" not in entry.actions


@pytest.mark.parametrize(("name", "schema"), [("policy.yaml", "policy"), ("cases.yaml", "test")])
def test_the_first_line_leads_editors_to_the_schema(name: str, schema: str) -> None:
    """The comment of the YAML language server names a file that is there."""
    for path in POLICIES.rglob(name):
        first = path.read_text().partition("\n")[0]
        mark, _, where = first.partition("$schema=")
        assert mark == "# yaml-language-server: "
        assert Path(os.path.normpath(path.parent / where)) == SCHEMAS / f"{schema}.schema.json"
