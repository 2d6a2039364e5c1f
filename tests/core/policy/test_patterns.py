from __future__ import annotations

import time

import pytest

from proxy.core.policy.patterns import Glob, Pattern


@pytest.mark.parametrize(
    ("glob", "fits", "not_fits"),
    [
        ("search", ["search"], ["search2", "Search", ""]),
        ("a*", ["a", "ab/c", "a\n"], ["b", "ba"]),
        ("*.py", ["a.py", "b/a.py", "a\n.py"], ["a.pyc", "A.PY", "apy"]),
        ("a?c", ["abc", "a\u00e9c", "a/c"], ["ac", "abbc"]),
        ("[!a-c]x", ["dx"], ["ax", "x"]),
        ("[]]x", ["]x"], ["x"]),
        ("[x", ["[x"], ["x"]),
        ("a(b)+$", ["a(b)+$"], ["ab"]),
    ],
)
def test_a_glob_fits_the_whole_text(glob: str, fits: list[str], not_fits: list[str]) -> None:
    """Stars, question marks and sets are all that is special."""
    compiled = Glob.compile(glob)
    assert all(map(compiled.fits, fits))
    assert not any(map(compiled.fits, not_fits))


@pytest.mark.parametrize("source", ["(?=a)", r"(a)\1", "(", "a" * 5000, "x{1000}{1000}"])
def test_a_pattern_that_is_not_linear_is_refused(source: str) -> None:
    """Look-around, back-references and what is too large are refused at load."""
    with pytest.raises(ValueError, match=r"pattern|expression"):
        Pattern.compile(source)


def test_an_empty_glob_is_refused() -> None:
    """An empty glob is a mistake."""
    with pytest.raises(ValueError, match="empty"):
        Glob.compile("")


def test_a_pattern_is_searched_for_anywhere() -> None:
    """A pattern need not be at the beginning, and half a surrogate pair is no error."""
    assert Pattern.compile("rm +-rf").finds("sudo rm  -rf /\ud800")
    assert not Pattern.compile("^rm").finds("sudo rm")


def test_findings_are_replaced_and_all_else_stays() -> None:
    """The new text is taken as it stands."""
    assert Pattern.compile("[0-9]{3}").replaced("\u00e9123 \ud800 456", r"[\1]") == "\u00e9[\\1] \ud800 [\\1]"
    assert Pattern.compile("x").replaced("abc", "y") == "abc"


def test_a_hostile_text_takes_linear_time() -> None:
    """What is exponential elsewhere is not here."""
    started = time.monotonic()
    assert not Pattern.compile("(a+)+$").finds("a" * 100_000 + "b")
    assert time.monotonic() - started < 5
