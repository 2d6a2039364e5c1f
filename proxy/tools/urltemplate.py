"""URLs with arguments in them: `http://host/orders/{order_id}/items?page={page}`.

Rules: arguments stand in the path and the query only, so that none of them chooses scheme, host or port; they are
percent-encoded with nothing safe; a segment of the path that an argument takes part in is never empty, `.` or
`..`. Must not know HTTP clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from proxy.core.jsontext import Json, Object, render_text

_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_ORIGIN = re.compile(r"(https?://[^/?#{}\s\\]+)(.*)", re.DOTALL)


class ArgumentError(ValueError):
    """An argument that the URL cannot take. The message names the argument, not its value."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str


Piece = str | Parameter


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """`origin` is fixed; `segments` are the parts of the path between slashes; `query` has no question mark."""

    origin: str
    segments: tuple[tuple[Piece, ...], ...]
    query: tuple[Piece, ...]

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the arguments that the URL uses."""
        pieces = [piece for part in (*self.segments, self.query) for piece in part]
        return frozenset(piece.name for piece in pieces if isinstance(piece, Parameter))

    def fill(self, arguments: Object) -> str:
        """The URL for these arguments, percent-encoded. Raises ArgumentError."""
        path = "".join("/" + _segment(pieces, arguments) for pieces in self.segments)
        query = "".join(_filled(piece, arguments) for piece in self.query)
        return self.origin + (path or "/") + (f"?{query}" if query else "")


def parse_template(text: str) -> UrlTemplate:
    """A template from its text. Raises ValueError that says what was expected."""
    found = _ORIGIN.fullmatch(text)
    if found is None or re.search(r"[\s\\\x00-\x1f]", text):
        raise ValueError("expected an http or https URL with arguments such as {id} in its path or query only")
    origin, rest = found[1], found[2]
    try:
        parts = urlsplit(origin)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("expected an http or https URL with a host, such as http://host:7001/orders/{id}")
    if parts.username is not None or "#" in rest:
        raise ValueError("expected a URL without credentials and fragment; a credential belongs under headers")
    if rest.startswith("{"):
        raise ValueError("expected a slash between the host and the first argument")
    path, _, query = rest.partition("?")
    segments = tuple(_pieces(segment) for segment in path.split("/")[1:])
    return UrlTemplate(origin, segments, _pieces(query))


def _pieces(text: str) -> tuple[Piece, ...]:
    parts = _PARAMETER.split(text)
    if any("{" in literal or "}" in literal for literal in parts[::2]):
        raise ValueError("expected each argument as {NAME}: letters, digits, '_' and '-'")
    pieces: list[Piece] = [Parameter(part) if odd % 2 else part for odd, part in enumerate(parts)]
    return tuple(piece for piece in pieces if piece != "")


def _segment(pieces: tuple[Piece, ...], arguments: Object) -> str:
    filled = "".join(_filled(piece, arguments) for piece in pieces)
    names = [piece.name for piece in pieces if isinstance(piece, Parameter)]
    if names and filled in ("", ".", ".."):
        raise ArgumentError(f"the argument {names[0]} cannot be a part of a path")
    return filled


def _filled(piece: Piece, arguments: Object) -> str:
    if isinstance(piece, str):
        return piece
    value = arguments.get(piece.name)
    if value is None:
        raise ArgumentError(f"the argument {piece.name} is missing")
    if isinstance(value, dict | list):
        raise ArgumentError(f"the argument {piece.name} must be text, a number or a boolean")
    return _quoted(piece.name, value)


def _quoted(name: str, value: Json) -> str:
    try:
        return quote(value if isinstance(value, str) else render_text(value), safe="")
    except UnicodeEncodeError:
        raise ArgumentError(f"the argument {name} is not Unicode text") from None


def render_query(arguments: Mapping[str, Json]) -> str:
    """Arguments as a query: a list as its name several times, an object as JSON; null is left out."""
    pairs = []
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                pairs.append(f"{_quoted(name, name)}={_quoted(name, one)}")
    return "&".join(pairs)


def with_query(url: str, query: str) -> str:
    """A URL with more of a query."""
    if not query:
        return url
    return f"{url}{'&' if '?' in url else '?'}{query}"
