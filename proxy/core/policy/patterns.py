"""The one door to RE2: regular expressions and globs of policies, in linear time whatever the text.

It knows text only, not what the text is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import re2

_MAX_MEMORY = 8 << 20
_MAX_PATTERN = 4096

Span = tuple[int, int]
"""Where a finding begins and ends, in bytes."""


def _compiled(pattern: str, *, literal_newline: bool) -> Any:
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {_MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    options.dot_nl = literal_newline
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        lacks = " (RE2 has no look-around and no references back)" if "perl" in text or "escape" in text else ""
        told = f"no regular expression that RE2 can read: {text}{lacks}; expected one such as '^[a-z]+$'"
        raise ValueError(told) from None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that is searched for anywhere unless it is anchored."""

    source: str
    _program: Any

    @classmethod
    def compile(cls, source: str) -> Pattern:
        """Raises ValueError that says what is wrong."""
        return cls(source, _compiled(source, literal_newline=False))

    def finds(self, text: str) -> bool:
        return self._program.search(_bytes(text)) is not None

    def replaced(self, text: str, new: str, among: Callable[[bytes, Span], Iterator[Span]] | None = None) -> str:
        """The text with every finding replaced; `new` is taken as it stands. `among` says which parts of a finding are
        meant, where that is not the whole."""
        data, into = _bytes(text), _bytes(new)
        parts, at = [], 0
        for found in self._program.finditer(data):
            for start, end in [found.span()] if among is None else among(data, found.span()):
                parts += [data[at:start], into]
                at = end
        return text if not parts else b"".join([*parts, data[at:]]).decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Glob:
    """`*` is any text (also `/`), `?` one character, `[abc]` and `[!abc]` one of some; everything else is itself.

    Most globs are a name, or a beginning with a star behind it; those need no program.
    """

    source: str
    _exact: str | None
    _prefix: str | None
    _program: Any

    @classmethod
    def compile(cls, source: str) -> Glob:
        """Raises ValueError that says what is wrong."""
        if not source:
            raise ValueError("expected a glob, got an empty text")
        if not any(mark in source for mark in "*?["):
            return cls(source, source, None, None)
        if source[-1] == "*" and not any(mark in source[:-1] for mark in "*?["):
            return cls(source, None, source[:-1], None)
        return cls(source, None, None, _compiled(f"\\A(?:{_translated(source)})\\z", literal_newline=True))

    def fits(self, text: str) -> bool:
        if self._exact is not None:
            return text == self._exact
        if self._prefix is not None:
            return text.startswith(self._prefix)
        return self._program.search(_bytes(text)) is not None


def _translated(glob: str) -> str:
    out, at = [], 0
    while at < len(glob):
        mark = glob[at]
        end = glob.find("]", at + 2 + (glob[at + 1 : at + 2] == "!")) if mark == "[" else -1
        if mark == "*":
            out.append(".*")
        elif mark == "?":
            out.append(".")
        elif end > 0:
            inside = glob[at + 1 : end]
            negated = inside.startswith("!")
            body = inside[negated:].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("]", "\\]")
            out.append(f"[{'^' * negated}{body}]")
            at = end
        else:
            out.append(re2.escape(mark))
        at += 1
    return "".join(out)
