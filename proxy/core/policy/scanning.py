"""Reading a CEL expression's tokens before the library may: to refuse what could exhaust it, and to see what it reads.

The library has no limit of its own on depth, steps or time, and dies of a deep expression. So the number of
operators and the depth of brackets are bounded here, and no comprehension stands inside another. Values are
not known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

MAX_BYTES = 2048
MAX_DEPTH = 32
MAX_OPERATORS = 420
MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<raw>(?:[bB]?[rR]|[rR][bB])(?:\"\"\".*?\"\"\"|\'\'\'.*?\'\'\'|"[^"\n]*"|\'[^\'\n]*\'))
    |(?P<string>[bB]?(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_STRING = re.compile(r"""("|')([^"'\\]*)\1\Z""")
_NO_OPERATOR = frozenset(",)]}")

Read = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What an expression reads (a variable, then keys below it) and the names that its comprehensions bind."""

    reads: tuple[Read, ...]
    bound: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def scan(source: str) -> Scan:
    """Raises ValueError for what is out of bounds."""
    if len(source.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ValueError(f"the expression is longer than {MAX_BYTES} bytes")
    tokens = _tokens(source)
    bound = _bounded(tokens)
    return Scan(tuple(dict.fromkeys(_reads(tokens))), bound)


def renamed(source: str, function: str, new: str) -> str:
    """The source of an expression with a function under another name."""
    found, at = [], 0
    while match := _TOKEN.match(source, at):
        at = match.end()
        called = match[0] == function and source[at:].lstrip().startswith("(")
        found.append(new if called else match[0])
    return "".join(found) + source[at:]


def literals(source: str, method: str) -> Iterator[str]:
    """The string literals, as they are spelled, that are a method's one argument. Raises ValueError."""
    tokens = _tokens(source)
    for at, token in enumerate(tokens):
        argument = tokens[at + 1] if at + 1 < len(tokens) else token
        if _is_call(tokens, at, method) and _text(tokens, at + 2) == ")" and argument.kind in ("string", "raw"):
            yield argument.text


def _tokens(source: str) -> list[_Token]:
    found, at = [], 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if source[at] == "=" and source[at : at + 2] != "==":
            raise ValueError(f"no CEL expression: '=' at character {at + 1} compares nothing; expected '=='")
        if match is None or match.lastgroup is None:
            raise ValueError(f"no CEL expression: '{source[at]}' at character {at + 1} is unexpected; quote text")
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup, match[0]))
        at = match.end()
    return found


def _bounded(tokens: list[_Token]) -> frozenset[str]:
    """The names that comprehensions bind. Raises ValueError for what could exhaust a stack or take too long."""
    bound: set[str] = set()
    brackets: list[bool] = []  # of each open bracket, whether a comprehension opened it
    operators = 0
    for at, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in "([{":
            opens_macro = token.text == "(" and _is_macro(tokens, at)
            if opens_macro and any(brackets):
                raise ValueError("a comprehension stands inside another; expected none inside")
            if token.text == "{" and at and tokens[at - 1].kind == "name" and tokens[at - 1].text != "in":
                raise ValueError("messages are not known here; expected a map such as {'key': value}")
            brackets.append(opens_macro)
            if opens_macro and at + 1 < len(tokens) and tokens[at + 1].kind == "name":
                bound.add(tokens[at + 1].text)
        elif token.text in ")]}" and brackets:
            brackets.pop()
        operators += token.text not in _NO_OPERATOR
        if len(brackets) > MAX_DEPTH:
            raise ValueError(f"brackets nest deeper than {MAX_DEPTH}")
    if operators > MAX_OPERATORS:
        raise ValueError(f"the expression has more than {MAX_OPERATORS} operators")
    return frozenset(bound)


def _is_macro(tokens: list[_Token], at: int) -> bool:
    return at >= 2 and tokens[at - 1].text in MACROS and tokens[at - 2].text == "."


def _reads(tokens: list[_Token]) -> list[Read]:
    """Each name that stands alone, with the fixed keys that are read below it."""
    return [
        _chain(tokens, at)
        for at, token in enumerate(tokens)
        if token.kind == "name" and not (at and tokens[at - 1].text == ".") and _text(tokens, at + 1) != "("
    ]


def unguarded(source: str, guarded: Collection[Read] = ()) -> tuple[Read, ...]:
    """What is read below `args`, `headers` and `metadata` without anything that asks first whether it is there: neither
    the expression itself (`has(…)`, `'…' in …`) nor what is `guarded` already. Of a path only its first such part."""
    tokens = _tokens(source)
    asked = {*guarded, *_asked(tokens)}
    found: dict[Read, None] = {}
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text not in _OPEN or (at and tokens[at - 1].text == "."):
            continue
        chain = _chain(tokens, at)
        asks = _is_call(tokens, at - 1, "has")
        parts = (chain[:length] for length in range(2, len(chain) + (0 if asks else 1)))
        missing = next((part for part in parts if part not in asked), None)
        if missing is not None:
            found[missing] = None
    return tuple(found)


_OPEN = frozenset({"args", "headers", "metadata"})


def _asked(tokens: list[_Token]) -> Iterator[Read]:
    """What an expression asks for before it may read it."""
    for at, token in enumerate(tokens):
        if token.text == "(" and _is_call(tokens, at, "has") and at + 1 < len(tokens):
            yield _chain(tokens, at + 1)
        elif token.text == "in" and at and (key := _key(tokens[at - 1])) is not None and at + 1 < len(tokens):
            yield (*_chain(tokens, at + 1), key)


def _is_call(tokens: list[_Token], at: int, name: str) -> bool:
    """Whether the bracket at a place opens the arguments of a function."""
    return at >= 1 and tokens[at].text == "(" and tokens[at - 1].text == name


def _chain(tokens: list[_Token], at: int) -> Read:
    steps, at = [tokens[at].text], at + 1
    while True:
        if _text(tokens, at) == "." and at + 1 < len(tokens) and _text(tokens, at + 2) != "(":
            steps.append(tokens[at + 1].text)
            at += 2
        elif _text(tokens, at) == "[" and _text(tokens, at + 2) == "]" and (key := _key(tokens[at + 1])) is not None:
            steps.append(key)
            at += 3
        else:
            return tuple(steps)


def _key(token: _Token) -> str | None:
    """The text of a string literal that spells itself; None for any other token."""
    found = _PLAIN_STRING.match(token.text) if token.kind == "string" else None
    return None if found is None else found[2]


def _text(tokens: list[_Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""
