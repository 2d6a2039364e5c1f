"""What a person at a terminal sees: colour where there is one, a line that moves on while something takes long.

Colour is for terminals only, and never when NO_COLOR says so. What is shown is not known here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TextIO, TypeAlias

from proxy.errors import Problem


class Tone(StrEnum):
    """What a line is like."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    CHANGED = "33"
    DIM = "2"
    STRONG = "1"


def has_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that is to be coloured."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


def safe(text: str) -> str:
    """The text without what could steer a terminal: it may come from models and clients."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in text)


class Terminal:
    """Prints lines, and a line of progress on standard error where that is a terminal."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._colour = has_colour(sys.stdout, environ)
        self._moves = sys.stderr.isatty() and environ.get("TERM") != "dumb"
        self._progress = ""

    def say(self, text: str = "", tone: Tone = Tone.PLAIN) -> None:
        self._clear()
        text = safe(text)
        print(f"\x1b[{tone}m{text}\x1b[0m" if self._colour and tone and text else text)

    def progress(self, text: str) -> None:
        """Put a line in place of the last one."""
        if self._moves:
            self._clear()
            self._progress = text
            print(text, end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._progress:
            print(f"\r{' ' * len(self._progress)}\r", end="", file=sys.stderr, flush=True)
            self._progress = ""


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def counted(count: int, one: str, more: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def tell(problems: Sequence[Problem], prefix: str = "") -> None:
    """Problems on standard error, one a line."""
    for problem in problems:
        place = str(problem).removesuffix(problem.message)
        line = f"{place}{prefix}{problem.message}".replace("\n", " ")
        print(line, file=sys.stderr)
