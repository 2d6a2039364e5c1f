"""Durations, sizes, paths, headers and secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError
from pydantic_core import PydanticCustomError

from proxy.core.jsontext import render
from proxy.settings import (
    Duration,
    FilePath,
    HeaderSettings,
    OutputPath,
    Secret,
    Settings,
    Size,
    Surroundings,
    Timeout,
    parse_duration,
    parse_size,
    reader,
)


class Example(Settings):
    duration: Duration = 1.0
    timeout: Timeout = 1.0
    size: Size = 1
    file: FilePath = ""
    output: OutputPath = "-"
    api_key: Secret | None = None
    headers: HeaderSettings = Field(default={})


def load(folder: Path = Path(), /, environ: dict[str, str] | None = None, **settings: Any) -> Example:
    context = Surroundings(folder, environ or {})
    return Example.model_validate_json(render(settings), by_alias=True, by_name=False, context=context)


def refusal(folder: Path = Path(), /, environ: dict[str, str] | None = None, **settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        load(folder, environ, **settings)
    return str([detail["msg"] for detail in caught.value.errors(include_input=False)])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("5s", 5), ("10m", 600), ("24h", 86400), ("1h30m", 5400), ("0s", 0), ("1m5s100ms", 65.1)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    """Units are h, m, s and ms, alone or in a row."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "5", 5, 5.0, True, None, "", "-1s", "1.5s", "5 s", "s", "1d", "9" * 99 + "s"])
def test_anything_else_is_no_duration(text: object) -> None:
    """A number without a unit is refused too, since nobody can see what it counts."""
    with pytest.raises(PydanticCustomError, match="250ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"), [("512Ki", 512 << 10), ("64Mi", 64 << 20), ("1Gi", 1 << 30), ("17", 17), (17, 17)]
)
def test_a_size_is_a_number_and_a_binary_unit(text: object, count: int) -> None:
    """Ki, Mi and Gi count in 1,024s; a number alone counts bytes."""
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["lots", "1K", "1kB", "-1", -1, True, 1.5, None, "", "1 Ki", "9" * 99])
def test_anything_else_is_no_size(text: object) -> None:
    """Decimal units are refused: they are read in two ways."""
    with pytest.raises(PydanticCustomError, match="64Mi"):
        parse_size(text)


def test_what_must_not_be_nothing_is_refused_at_nothing() -> None:
    """A time limit or a bound of zero would let nothing pass; a delay of zero is one."""
    assert "more than nothing" in refusal(timeout="0s")
    assert "more than nothing" in refusal(size=0)
    assert load(duration="0s").duration == 0


def test_relative_paths_count_from_the_folder(tmp_path: Path) -> None:
    """Absolute paths and `-` stay as they are."""
    example = load(tmp_path, file="a/b", output="log")
    assert (example.file, example.output) == (str(tmp_path / "a/b"), str(tmp_path / "log"))
    assert (load(file="a").file, load(tmp_path, file="/x").file) == ("a", "/x")
    assert load(tmp_path, output="-").output == "-"
    assert "path" in refusal(file="")


def test_unknown_keys_and_python_names_are_refused() -> None:
    """Files are written in camelCase only."""
    assert load(apiKey={"env": "K"}, environ={"K": "v"}).api_key is not None
    assert "not permitted" in refusal(api_key={"env": "K"})


# ---------------------------------------------------------------- secrets


def test_a_secret_of_the_environment_is_read_there() -> None:
    """The environment is the one that the configuration was loaded with."""
    secret = load(environ={"KEY": "s3cret"}, apiKey={"env": "KEY"}).api_key
    assert secret is not None
    assert secret.read() == "s3cret"


def test_a_secret_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Also when another file takes its place; the line break at its end is no part of it."""
    file = tmp_path / "key"
    file.write_text("old\n")
    secret = load(tmp_path, apiKey={"file": "key"}).api_key
    assert secret is not None
    assert secret.read() == "old"
    file.write_text("newer\r\n")
    assert secret.read() == "newer"
    (tmp_path / "next").write_text("third")
    os.replace(tmp_path / "next", file)
    assert secret.read() == "third"


@pytest.mark.parametrize("content", [None, b"", b"a\nb", b"\xff", b"x" * 70_000])
def test_a_secret_file_that_cannot_be_used_any_more_keeps_its_last_value(content: bytes | None, tmp_path: Path) -> None:
    """A rotation that is half done must not stop requests."""
    file = tmp_path / "key"
    file.write_text("good")
    secret = load(tmp_path, apiKey={"file": "key"}).api_key
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert secret is not None
    assert secret.read() == "good"
    assert refusal(tmp_path, apiKey={"file": "key"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env": "NONE"}, "NONE is not set"),
        ({"env": "EMPTY"}, "EMPTY is empty"),
        ({"env": "LINES"}, "on one line"),
        ({"file": "none"}, "cannot be read"),
        ({}, "either"),
        ({"env": "KEY", "file": "key"}, "either"),
        ({"evn": "KEY"}, "not permitted"),
    ],
)
def test_a_secret_that_is_missing_is_told(given: dict[str, str], said: str, tmp_path: Path) -> None:
    """What is missing is named; what is there is not shown."""
    told = refusal(tmp_path, {"EMPTY": " ", "LINES": "s3cret\r\nx: y", "KEY": "s3cret"}, apiKey=given)
    assert said in told
    assert "s3cret" not in told


@pytest.mark.parametrize("plain", ["s3cret", 4711, ["s3cret"], True])
def test_a_plain_value_in_place_of_a_secret_is_refused_unseen(plain: object) -> None:
    """Neither the message nor the error's own text shows it."""
    with pytest.raises(ValidationError) as caught:
        load(apiKey=plain)
    shown = f"{caught.value} {caught.value.errors(include_input=False)}"
    assert "{env: NAME}" in shown
    assert "s3cret" not in shown
    assert "4711" not in shown


def test_no_repr_or_dump_has_the_value_of_a_secret(tmp_path: Path) -> None:
    """A model holds where a secret is, never what it is."""
    (tmp_path / "key").write_text("s3cret")
    for given in ({"env": "KEY"}, {"file": "key"}):
        example = load(tmp_path, {"KEY": "s3cret"}, apiKey=given, headers={"x": given})
        assert example.api_key is not None
        assert example.api_key.read() == "s3cret"
        assert "s3cret" not in f"{example!r} {example} {example.model_dump()} {example.model_dump_json()}"


# ---------------------------------------------------------------- headers


def test_a_header_is_text_or_a_secret() -> None:
    """Both are read the same way."""
    headers = load(environ={"K": "v"}, headers={"X-A": "plain", "x-b": {"env": "K"}}).headers
    assert {name: reader(value)() for name, value in headers.items()} == {"X-A": "plain", "x-b": "v"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x y", "v", "names of HTTP headers"),
        ("", "v", "names of HTTP headers"),
        ("Content-Length", "1", "belongs to the connection"),
        ("x", "a\r\nb: c", "one line"),
        ("x", 1, "string"),
        ("x", {"env": "NONE"}, "NONE"),
    ],
)
def test_a_header_that_would_break_the_message_is_refused(name: str, value: object, said: str) -> None:
    """Names are tokens, values are one line, and framing is not for settings."""
    assert said in refusal(headers={name: value})
