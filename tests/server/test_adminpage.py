"""The page of the admin port."""

from __future__ import annotations

from proxy.server.adminpage import render_page


def test_an_empty_page_says_that_it_is_empty() -> None:
    """Nothing loaded and nothing decided is said in words."""
    page = render_page(policies=[], tools=[], recent=[])
    assert page.count("<p>No ") == 3


def test_names_are_escaped() -> None:
    """Names of policies and tools are text."""
    page = render_page(policies=["a&b"], tools=["<t>"], recent=[])
    assert "a&amp;b" in page
    assert "&lt;t&gt;" in page
