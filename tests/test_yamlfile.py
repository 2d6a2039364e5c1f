"""The one door to YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jsontext import Json, SpelledInt
from proxy.errors import ConfigError
from proxy.yamlfile import MAX_BYTES, Document, read_documents, read_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def read(file: Path, text: str | bytes) -> list[Document]:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_documents(file)


def complaints(file: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(file, text)
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


def test_every_document_of_a_file_is_read_and_empty_ones_are_left_out(file: Path) -> None:
    """Documents come in order; an empty one is none."""
    assert [d.value for d in read(file, "a: 1\n---\n---\n# nothing\n---\n- b\n...\n")] == [{"a": 1}, ["b"]]
    assert read(file, "") == []


def test_values_are_those_of_json(file: Path) -> None:
    """Text, numbers, truth values, null, lists and mappings are read as such."""
    (document,) = read(file, "a: [x, 'no', 1, 1.5, true, null, 1e5, {b: ~}]\nc: |\n  two\n  lines\n")
    assert document.value == {"a": ["x", "no", 1, 1.5, True, None, 1e5, {"b": None}], "c": "two\nlines\n"}


def test_a_problem_is_shown_at_the_key_the_value_or_the_nearest_place(file: Path) -> None:
    """Keys, values and list items have a place each; a path that is not there has that of its parent."""
    (document,) = read(file, "a:\n  - b: {c: d}\n")
    places = [
        document.problem(("a", 0, "b", "c"), ""),
        document.value_problem(("a", 0, "b", "c"), ""),
        document.problem(("a", 0), ""),
        document.problem(("a", 0, "x", "y"), ""),
        document.problem((), ""),
        document.value_problem(("a",), ""),
    ]
    assert [(p.line, p.column) for p in places] == [(2, 9), (2, 12), (2, 5), (2, 5), (1, 1), (2, 3)]
    assert {p.file for p in places} == {str(file)}


def test_what_yaml_reads_as_something_else_than_text_arrives_as_that(file: Path) -> None:
    """YAML 1.1's surprises are no text, so that who wanted text can say so."""
    (document,) = read(file, "[no, 1.10, 010]")
    assert document.value == [False, 1.1, 8]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "line 1"),
        ("{x: {a: 1, a: 2}}", "1:12", "twice"),
        ("a: &x 1\nb: *x\n", "2:4", "alias"),
        ("a: &x [*x]\n", "1:8", "alias"),
        ("<<: {a: 1}\n", "1:1", "merge"),
        ("on: 1\n", "1:1", "quotes"),
        ("7: 1\n", "1:1", "quotes"),
        ("? [x]\n: 1\n", "1:3", "text as a key"),
        ("a: 2026-01-01\n", "1:4", "date"),
        ("a: .inf\n", "1:4", "JSON"),
        ("a: 1.0e+999\n", "1:4", "JSON"),
        ("a: !!int x\n", "1:4", "quotes"),
        ("a: " + "9" * 6000, "1:4", "quotes"),
        ("a: !x 1\n", "1:4", "tag"),
        ("a: !!python/object:os.system {}\n", "1:4", "tag"),
        ("a: !!set {x}\n", "1:4", "tag"),
        ("a:\n\tb: 1\n", "2:1", "tab"),
        ("a:\n  b: 1\n\tc: 1\n", "3:1", "tab"),
        ("a: [1\nb: 2", "2:2", "not YAML"),
        ("a: b: c", "1:5", "not YAML"),
        ("a: \x07", "1:4", "YAML"),
        (b"a: 1\nb: \xff", "2:4", "UTF-8"),
        ("[" * 500 + "]" * 500, "1:65", "nested"),
        ("[" * 200_000, "1:", "nest"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_refused_where_it_is(
    text: str | bytes, place: str, said: str, file: Path
) -> None:
    """A mistake has a line and a column, and says what it is."""
    (told,) = complaints(file, text)
    assert told.startswith(place)
    assert said in told


def test_all_mistakes_of_a_document_are_told(file: Path) -> None:
    """One reading tells every key and value that is refused."""
    assert [told.partition(" ")[0] for told in complaints(file, "a: 1\na: 2\nb: 2026-01-01\non: 3\n")] == [
        "2:1:",
        "3:4:",
        "4:1:",
    ]


def test_a_value_that_is_refused_is_not_shown(file: Path) -> None:
    """A value may be a secret in the wrong place."""
    assert "2031-04-05" not in "".join(complaints(file, "key: 2031-04-05\n"))


def test_a_file_that_is_missing_or_too_large_is_told_by_name(file: Path) -> None:
    """A file that is not read at all has no line."""
    with pytest.raises(ConfigError, match=r"x\.yaml: .*cannot be read"):
        read_documents(file)
    with pytest.raises(ConfigError, match=r"x\.yaml: .*too large"):
        read(file, b"#" * (MAX_BYTES + 1))


def test_json_is_read_with_every_escape_and_number(file: Path) -> None:
    """Escaped pairs, escaped backslashes, tabs between tokens and numbers beyond 64 bits are JSON."""
    text = '{"a":\t["\\ud83d\\ude00 \\\\ud83d\\\\ude00 \\/", 1E5, 123456789012345678901234567890]}'
    (document,) = read(file, text)
    assert document.value == json.loads(text)
    assert isinstance(document.value, dict)
    assert isinstance(document.value["a"], list)
    assert isinstance(document.value["a"][2], SpelledInt)


def test_an_escape_in_yaml_that_is_no_json_stays_text(file: Path) -> None:
    """Only JSON spells characters as pairs; in plain text a backslash is a backslash."""
    (document,) = read(file, "a: \\ud83d\\ude00\n")
    assert document.value == {"a": "\\ud83d\\ude00"}


printable_characters = st.characters(
    exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029"
)
printable = st.text(printable_characters)
keys = st.text(printable_characters, max_size=60)  # YAML reads keys of up to 1,024 characters, escapes counted
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | printable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(value=st.dictionaries(keys, values, min_size=1, max_size=4), ascii_only=st.booleans())
@settings(max_examples=60, deadline=None)
def test_json_means_what_it_means_to_json(
    value: dict[str, Json], ascii_only: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A JSON file is read to the value that a JSON reader sees."""
    file = tmp_path_factory.getbasetemp() / "any.json"
    (document,) = read(file, json.dumps(value, ensure_ascii=ascii_only, indent=1))
    assert document.value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools: [*_x]\n", "f:1:9: an alias is not read here; expected the value itself, or text that begins with *"),
        ("tools: *\n", "character; expected text that begins with * or & to be in quotes"),
        ("in: [a, 12:30:45]\n", "f:1:9: this is read as a number to the base of 60: put it in quotes"),
        ("at: 1:30.5\n", "f:1:5: this is read as a number to the base of 60"),
        ("ä: ö\nb: ü\x01\n", "f:2:5: a character is not read in YAML (U+0001): control characters"),
    ],
)
def test_what_yaml_takes_for_something_else_is_told_where_it_stands(text: str, said: str) -> None:
    """With what to write."""
    with pytest.raises(ConfigError) as raised:
        read_text(text, "f")
    assert said in str(raised.value)


def test_times_in_quotes_are_text() -> None:
    """And a colon alone makes no number."""
    assert read_text("a: ['12:30:45', 12:99, '1:30.5']\n", "f")[0].value == {"a": ["12:30:45", "12:99", "1:30.5"]}
