"""Headers as values."""

from __future__ import annotations

from proxy.server.http import header, replaced, without

HEADERS = (("X-One", "1"), ("x-two", "2"), ("X-ONE", "3"))


def test_headers_are_found_whatever_their_case() -> None:
    """The first value counts; a default stands in."""
    assert (header(HEADERS, "x-one"), header(HEADERS, "x-three", "none")) == ("1", "none")


def test_headers_are_taken_off_and_replaced() -> None:
    """Others keep their place and spelling."""
    assert without(HEADERS, "x-one") == (("x-two", "2"),)
    assert replaced(HEADERS, "x-two", "9") == (("X-One", "1"), ("x-two", "9"), ("X-ONE", "3"))
    assert replaced(HEADERS, "x-new", "9") == (*HEADERS, ("x-new", "9"))
