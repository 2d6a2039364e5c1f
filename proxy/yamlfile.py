"""The one door to PyYAML: files with one or more documents, JSON files included, as JSON values with places.

Rules: only what JSON can say is read. Keys that come twice, anchors and aliases, tags, merge keys, dates and
nesting without end are mistakes with a place, since each is a way to a value that the writer did not see.
Line and column of every key and value are kept, so that a mistake found later can be shown where it is. What
YAML 1.1 reads as something else than text (`no`, `1.10`, `12:30:00`) arrives as that; who wanted text says so.
Must not know what the documents mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml

from proxy.core.jsontext import Json, Path, SpelledInt
from proxy.errors import ConfigError, Problem

MAX_BYTES = 4 << 20
MAX_NESTING = 64
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str")}
_JSON_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?[eE][+-]?\d+")
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89abAB]")
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_64_BITS = range(-(1 << 63), 1 << 64)


@dataclass(frozen=True, slots=True)
class Place:
    """Line and column, from 1, of a value and of the key or dash before it."""

    key: tuple[int, int]
    value: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file; `places` has every path in it, the empty one included."""

    value: Json
    file: str
    places: dict[Path, Place] = field(repr=False)

    def problem(self, path: Path, message: str) -> Problem:
        """A mistake at the key of a path, or at the nearest one above it that is there."""
        return Problem(self.file, *self._nearest(path).key, message)

    def value_problem(self, path: Path, message: str) -> Problem:
        """A mistake at the value of a path, or at the nearest one above it that is there."""
        return Problem(self.file, *self._nearest(path).value, message)

    def _nearest(self, path: Path) -> Place:
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def read_documents(path: FilePath | str) -> list[Document]:
    """The documents of a file; empty ones are left out. Raises ConfigError with all problems that can be told."""
    return read_text(_read_text(str(path)), str(path))


def read_text(text: str, file: str) -> list[Document]:
    """The same of text that is no file; `file` is what its problems are told of."""
    text = _as_yaml(text)
    try:
        _check_events(text, file)
        return list(_documents(text, file))
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(error, file, text)]) from error
    except yaml.YAMLError as error:
        raise ConfigError([_problem(error, file, text)]) from error


def _problem(error: yaml.YAMLError, file: str, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode("utf-8", "replace")[: error.position].decode("utf-8", "ignore")  # it counts bytes
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return Problem(file, line, column, f"a character is not read in YAML (U+{error.character:04X}): {error.reason}")
    return Problem(file, 1, 1, f"it cannot be read as YAML: {error}".partition("\n")[0])


# ---------------------------------------------------------------- text


def _read_text(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        _refuse(file, f"the file cannot be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        _refuse(file, f"the file is too large; expected at most {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise ConfigError([Problem(file, line, column, "this is not UTF-8; expected text in UTF-8")]) from None


def _refuse(file: str, message: str) -> NoReturn:
    raise ConfigError([Problem(file, 0, 0, message)])


def _as_yaml(text: str) -> str:
    """JSON spells characters beyond 16 bits as two escapes, which YAML refuses: they become the characters."""
    if not _SURROGATE.search(text):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _ESCAPE.sub(_joined, text)


def _joined(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    return chr(0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00)


def _syntax_problem(error: yaml.MarkedYAMLError, file: str, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    lines = text.splitlines()
    at = lines[line][column : column + 1] if line < len(lines) else ""
    if at == "\t" or (at and "\t" in lines[line][:column] and not lines[line][:column].strip()):
        return Problem(file, line + 1, column + 1, "a tab is no indentation in YAML; expected blanks")
    what = error.problem or error.context or "it cannot be read"
    hint = next((hint for words, hint in _HINTS if words in what), "expected another spelling here")
    return Problem(file, line + 1, column + 1, f"this is not YAML: {what}; {hint}")


_HINTS = (
    ("expected key", "expected the indentation of the line above, or of a line that this one belongs under"),
    ("'-' indicator", "expected the indentation of the list's other entries"),
    ("expected ',' or", "expected ',' or an end; text that has quotes, brackets or ': ' in it goes in quotes"),
    ("mapping values", "expected text with ': ' in it to be in quotes, or a line of its own for the key"),
    ("end of stream", "expected the quote that ends a text"),
    ("document start", "expected one key on each line, none of them further left than the first"),
    ("could not find expected ':'", "expected ': ' behind the key"),
    ("cannot start any token", "expected text that begins with this character to be in quotes"),
    ("alphabetic or numeric character", "expected text that begins with * or & to be in quotes"),
    ("escape", "expected single quotes around text that has backslashes"),
)
"""What the library finds missing, and what to write; text that it found comes last."""


# ---------------------------------------------------------------- structure


def _check_events(text: str, file: str) -> None:
    """Refuse what must not be composed at all: aliases, which multiply, and nesting, which exhausts the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            told = "an alias is not read here; expected the value itself, or text that begins with * in quotes"
            raise ConfigError([_at(event.start_mark, file, told)])
        if isinstance(event, _OPENING):
            depth += 1
            if depth > MAX_NESTING:
                raise ConfigError([_at(event.start_mark, file, f"nested too deep; expected at most {MAX_NESTING}")])
        elif isinstance(event, _CLOSING):
            depth -= 1


def _documents(text: str, file: str) -> Iterator[Document]:
    loader = _LOADER(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            reading = _Reading(loader, file)
            start = _position(node.start_mark)
            value = reading.read(node, ())
            reading.places[()] = Place(start, start)
            if reading.problems:
                raise ConfigError(reading.problems)
            if value is not None:
                yield Document(value, file, reading.places)
    finally:
        loader.dispose()


def _position(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _at(mark: Any, file: str, message: str) -> Problem:
    return Problem(file, *_position(mark), message)


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, node: Any, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


class _Reading:
    """Turns the nodes of one document into values, and keeps places and problems on the way."""

    def __init__(self, loader: Any, file: str) -> None:
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._file = file

    def read(self, node: Any, path: Path) -> Json:
        """The value of a node. One that is refused is noted, and None."""
        try:
            return self._value(node, path)
        except _Refused as refused:
            self._note(refused)
            return None

    def _value(self, node: Any, path: Path) -> Json:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return self._sequence(node, path)
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node)
        raise _Refused(node, _unread(node))

    def _mapping(self, node: Any, path: Path) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key_node, value_node in node.value:
            try:
                key = self._key(key_node)
                if key in found:
                    line = self.places[(*path, key)].key[0]
                    raise _Refused(
                        key_node, f"the key '{key}' is here twice; the first one is on line {line}: leave one"
                    )
            except _Refused as refused:
                self._note(refused)
                continue
            below = (*path, key)
            self.places[below] = Place(_position(key_node.start_mark), _position(value_node.start_mark))
            found[key] = self.read(value_node, below)
        return found

    def _key(self, node: Any) -> str:
        if isinstance(node, yaml.ScalarNode):
            if node.tag == f"{_TAG}str":
                return str(node.value)
            if node.tag == f"{_TAG}merge":
                raise _Refused(node, "a merge key (<<) is not read here; expected the keys themselves")
            if node.tag in _SCALARS:
                kind = node.tag.removeprefix(_TAG)
                raise _Refused(node, f"'{node.value}' is read as {_KINDS[kind]}: put it in quotes to have a key")
        raise _Refused(node, "expected text as a key")

    def _sequence(self, node: Any, path: Path) -> list[Json]:
        found: list[Json] = []
        for index, item in enumerate(node.value):
            start = _position(item.start_mark)
            self.places[(*path, index)] = Place(start, start)
            found.append(self.read(item, (*path, index)))
        return found

    def _scalar(self, node: Any) -> Json:
        plain = not node.style
        if plain and node.tag == f"{_TAG}str" and _JSON_FLOAT.fullmatch(node.value):
            value: Any = float(node.value)  # a number in JSON, text in YAML 1.1
        else:
            try:
                value = self._loader.construct_object(node)
            except (ValueError, KeyError, IndexError, yaml.YAMLError):  # a tag that does not fit, too many digits
                raise _Refused(
                    node, f"this cannot be read as {_KINDS[node.tag.removeprefix(_TAG)]}: put it in quotes"
                ) from None
        if plain and isinstance(value, int | float) and ":" in node.value:
            raise _Refused(node, "this is read as a number to the base of 60: put it in quotes to have text")
        if isinstance(value, float) and not math.isfinite(value):
            raise _Refused(node, "expected a number that JSON can hold")
        if type(value) is int and value not in _64_BITS:
            return SpelledInt(str(value))
        json_value: Json = value  # the tag says that it is one of five kinds
        return json_value

    def _note(self, refused: _Refused) -> None:
        self.problems.append(_at(refused.node.start_mark, self._file, refused.message))


_KINDS = {"null": "nothing (null)", "bool": "a truth value", "int": "a number", "float": "a number", "str": "text"}


def _unread(node: Any) -> str:
    if node.tag == f"{_TAG}timestamp":
        return "this is read as a date: put it in quotes to have text"
    return "a tag is not read here; expected text, a number, true, false, null, a list or a mapping"
