from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.policy.names import NamedTool, NameGlobs, fold, is_parallel_wrapper

SPELLINGS = ["delete_order", "Delete_Order", "delete-order", "delete.order", "delete order", "deleteOrder"]
SPELLINGS += [
    "DeleteOrder",
    "delete--order",
    "DELETE_ORDER",
    "DeLeTe_order",
    "functions.delete_order",
    " delete_order\n",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_folded_glob_takes_a_name_however_it_is_spelled(name: str) -> None:
    """Camel case, separators, case and prefixes make no difference."""
    for glob in ("delete_*", "delete-order", "deleteOrder", "*Order", "delete?order", "[cd]elete_order"):
        assert NameGlobs.compile([glob]).fits(NamedTool.of(name)), glob


def test_an_exact_glob_takes_one_spelling() -> None:
    """A glob that is compared exactly takes a name only as it is run."""
    globs = NameGlobs.compile(["search_all"])
    assert globs.fits_exactly(NamedTool.of("functions.search_all"))
    assert not any(globs.fits_exactly(NamedTool.of(name)) for name in ("Search_all", "search-all", "search_all2", ""))


def test_half_a_surrogate_pair_is_a_character() -> None:
    """A name that is no proper text slips past no star."""
    assert NameGlobs.compile(["*_order"]).fits(NamedTool.of("delete\ud800_order"))
    assert NameGlobs.compile(["delete?order"]).fits(NamedTool.of("delete\udfff_order"[:7] + "_order"[1:]))


def test_an_empty_name_fits_every_folded_glob_and_no_exact_one() -> None:
    """A call without a name meets every rule that can hold it, and none that lets it go."""
    globs = NameGlobs.compile(["delete_*"])
    assert globs.fits(NamedTool.of("<|x|>"))
    assert not globs.fits_exactly(NamedTool.of(""))


def test_a_namespaced_tool_has_two_names() -> None:
    """The name alone and the name behind its namespace both fit."""
    tool = NamedTool.of("read", "files")
    assert all(NameGlobs.compile([glob]).fits(tool) for glob in ("read", "files.*", "files_read"))
    assert NameGlobs.compile(["files.read"]).fits_exactly(tool)


def test_a_namespaced_tool_is_declared_behind_its_namespace() -> None:
    """Alone it would be another tool."""
    tool = NamedTool.of("functions.read", "files")
    assert tool.declared_as({"read", "functions.read"}) is None
    assert tool.declared_as({"read", "files.read"}) == "files.read"
    assert NamedTool.of("functions.read").declared_as({"read"}) == "read"
    assert NamedTool.of("functions.read").declared_as({"read", "functions.read"}) == "functions.read"
    assert NamedTool.of("files.read").declared_as({"files.read"}) == "files.read"


@pytest.mark.parametrize(
    ("glob", "all_of_them"),
    [
        ("*", True),
        ("docs.*", True),
        ("doc*", True),
        ("d?cs.*", True),
        ("[cd]ocs*", True),
        ("docs.s*", False),
        ("docs.", False),
        ("docs_*", False),
        ("Docs.*", False),
        ("doc?", False),
        ("*docs.[*", False),
        ("mail.*", False),
    ],
)
def test_globs_that_take_all_behind_a_namespace(glob: str, all_of_them: bool) -> None:
    """Only what is sure to, as it is written."""
    globs = NameGlobs.compile(["other", glob])
    assert globs.take_all_behind("docs") is all_of_them
    if all_of_them:
        assert globs.fits_exactly(NamedTool.of("any/thing\n", "docs"))


def test_capitals_in_a_row_are_one_word() -> None:
    """An acronym is not taken apart."""
    assert (fold("HTTPServer"), fold("getURL2All")) == ("http_server", "get_url2_all")


@pytest.mark.parametrize(
    "name", ["multi_tool_use.parallel", "functions.multi_tool_use.parallel", "MultiToolUse.Parallel"]
)
def test_the_wrapper_is_known_in_any_spelling(name: str) -> None:
    """The wrapper of parallel calls cannot hide behind its spelling."""
    assert is_parallel_wrapper(name)


@given(st.text(max_size=20))
def test_folding_is_the_same_the_second_time(name: str) -> None:
    """A folded name folds to itself once case has settled."""
    once = fold(fold(name))
    assert fold(once) == once
