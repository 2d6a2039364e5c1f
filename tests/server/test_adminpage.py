"""The page of the admin port."""

from __future__ import annotations

from dataclasses import replace

from proxy.server.adminpage import render_page
from tests.core.batch.test_approval import PENDING


def test_an_empty_page_says_that_it_is_empty() -> None:
    """Nothing loaded and nothing decided is said in words."""
    page = render_page(policies=[], tools=[], recent=[])
    assert page.count("<p>No ") == 3
    assert "<p>Nothing waits for a person.</p>" in page


def test_names_are_escaped() -> None:
    """Names of policies and tools are text."""
    page = render_page(policies=["a&b"], tools=["<t>"], recent=[])
    assert "a&amp;b" in page
    assert "&lt;t&gt;" in page


def test_what_waits_has_its_buttons() -> None:
    """Text of models is escaped, also in what the form names."""
    page = render_page(policies=[], tools=[], recent=[], pending=[replace(PENDING, id='a"b', arguments='{"a":"<b>"}')])
    assert 'action="/admin/approvals/a&quot;b"' in page
    assert "{&quot;a&quot;:&quot;&lt;b&gt;&quot;}" in page
    assert page.count("<button") == 2
