"""URLs with arguments in them."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.jsontext import Json, Object, parse_exact
from proxy.tools.urltemplate import ArgumentError, parse_template, render_query, with_query

ITEMS = parse_template("http://127.0.0.1:7001/orders/{order_id}/items")


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("o-7", "o-7"),
        ("a/b", "a%2Fb"),
        ("a?x=1#y", "a%3Fx%3D1%23y"),
        ("../admin", "..%2Fadmin"),
        ("..\\admin", "..%5Cadmin"),
        ("café x", "caf%C3%A9%20x"),
        ("%2e", "%252e"),
        ("%2e%2e", "%252e%252e"),
        ("@evil:80", "%40evil%3A80"),
        ("a\r\nb", "a%0D%0Ab"),
        ("...", "..."),
        (7, "7"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
    ],
)
def test_an_argument_stays_within_its_segment(value: Json, segment: str) -> None:
    """Everything but letters, digits and `-._~` is percent-encoded."""
    assert ITEMS.fill({"order_id": value}) == f"http://127.0.0.1:7001/orders/{segment}/items"


def test_numbers_are_written_as_the_model_spelled_them() -> None:
    """No digit is lost on the way."""
    value = parse_exact('{"order_id": 12345678901234567890123, "x": 1.10}').value
    assert isinstance(value, dict)
    assert ITEMS.fill(value).endswith("/12345678901234567890123/items")
    assert render_query({"x": value["x"]}) == "x=1.10"


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_an_argument_that_would_climb_to_another_path_is_refused(value: str) -> None:
    """The name is told, not the value."""
    with pytest.raises(ArgumentError, match="order_id cannot be a part of a path"):
        ITEMS.fill({"order_id": value})


def test_pieces_of_one_segment_are_judged_together() -> None:
    """Two dots are two dots wherever they come from; beside text an empty argument is harmless."""
    template = parse_template("http://h/a/.{x}/{y}.json")
    assert template.fill({"x": "b", "y": ""}) == "http://h/a/.b/.json"
    for x in ("", "."):
        with pytest.raises(ArgumentError):
            template.fill({"x": x, "y": "b"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "order_id is missing"),
        ({"order_id": None}, "order_id is missing"),
        ({"order_id": ["a"]}, "must be text"),
        ({"order_id": {"a": 1}}, "must be text"),
        ({"order_id": "\ud800"}, "not Unicode"),
    ],
)
def test_an_argument_that_the_url_cannot_take_is_refused(arguments: Object, said: str) -> None:
    """The model is told which one, and why."""
    with pytest.raises(ArgumentError, match=said):
        ITEMS.fill(arguments)


def test_arguments_may_stand_in_the_query() -> None:
    """They are encoded there too; what is fixed stays as it was written."""
    template = parse_template("https://h/s/?v=1&q={q}&a%20b=%2F")
    assert template.fill({"q": "x&y=1"}) == "https://h/s/?v=1&q=x%26y%3D1&a%20b=%2F"
    assert template.parameters == {"q"}


def test_a_url_without_arguments_stays_as_it_is() -> None:
    """Fixed text is the operator's own."""
    for url in ("http://h:1/a/../b//c/?x=%2F", "http://[::1]:80/x", "https://h/"):
        assert parse_template(url).fill({"unused": 1}) == url
    assert parse_template("http://h").fill({}) == "http://h/"
    assert parse_template("http://h?x=1").fill({}) == "http://h/?x=1"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x",
        "h/x",
        "",
        "http://",
        "http:///x",
        "http://{host}/x",
        "http://h{x}/y",
        "http://h:{port}/x",
        "{scheme}://h/x",
        "http://h{x}",
        "http://h/x#y",
        "http://h/x#{y}",
        "http://u:p@h/x",
        "http://h/{",
        "http://h/}",
        "http://h/{}",
        "http://h/{a b}",
        "http://h/{{a}}",
        "http://h/a b",
        "http://h/a\nb",
        "http://h\\@evil/x",
        "http://h:99999/x",
        "http://h:x/",
    ],
)
def test_a_url_whose_host_could_change_or_that_is_none_is_refused(url: str) -> None:
    """Arguments are for path and query."""
    with pytest.raises(ValueError, match="expected"):
        parse_template(url)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_changes_anything_but_its_segment(text: str) -> None:
    """Scheme, host, number of segments and query are fixed, and the server reads the text that was given."""
    try:
        url = urlsplit(ITEMS.fill({"order_id": text}))
    except ArgumentError:
        assert text in ("", ".", "..")
        return
    assert (url.scheme, url.netloc, url.query, url.fragment) == ("http", "127.0.0.1:7001", "", "")
    before, segment, after = url.path.removeprefix("/").split("/")
    assert (before, unquote(segment), after) == ("orders", text, "items")


def test_the_rest_of_the_arguments_becomes_a_query() -> None:
    """Lists repeat the name, objects are JSON, null is left out."""
    query = render_query({"q": "a b&c", "n": [1, "x", None], "o": {"a": [1]}, "z": None, "é": True})
    pairs = [("q", "a b&c"), ("n", "1"), ("n", "x"), ("o", '{"a":[1]}'), ("é", "true")]
    assert parse_qsl(query) == pairs
    assert with_query("http://h/x", "") == "http://h/x"
    assert with_query("http://h/x", "a=1") == "http://h/x?a=1"
    assert with_query("http://h/x?b=2", "a=1") == "http://h/x?b=2&a=1"
