"""Opening audit files: plain ones and gzip's, by what they begin with.

A file that can hold no lines of JSON, such as one in UTF-16, is told instead of being read as one without calls.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import cast

from proxy.errors import ConfigError, Problem

STANDARD_INPUT = "-"
_HEAD = 512
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""No text has them; the escape character colours logs."""


class AuditFile:
    """The lines of an audit. `part` is how much of it was read, 0 where nobody knows."""

    def __init__(self, file: BufferedReader, size: int) -> None:
        self._file = file
        self._size = size
        self._lines = _text_of(file)

    def line(self, longest: int) -> bytes:
        """The next line, or a part of it where it is longer; nothing at the end."""
        return self._lines.readline(longest)

    @property
    def part(self) -> float:
        return min(1.0, self._file.tell() / self._size) if self._size else 0.0


@contextmanager
def opened(path: str) -> Iterator[AuditFile]:
    """An audit; `-` is standard input. Raises ConfigError for what cannot be read, at any time before its end."""
    try:
        if path == STANDARD_INPUT:
            yield AuditFile(_buffered(sys.stdin.buffer), 0)
            return
        with open(path, "rb") as file:
            yield AuditFile(file, Path(path).stat().st_size)
    except EOFError:
        raise _unread(path, "it ends within its compressed text: it was cut, or is still written") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _unread(path, f"its compressed text is broken: {error}") from None
    except UnicodeError as error:
        raise _unread(path, str(error)) from None
    except OSError as error:
        raise _unread(path, str(error.strerror)) from None


def _unread(path: str, why: str) -> ConfigError:
    return ConfigError([Problem(path, 0, 0, f"the file cannot be read: {why}")])


def _buffered(file: object) -> BufferedReader:
    """BufferedReader asks for no more than `readinto`, which all of them have."""
    return BufferedReader(cast(RawIOBase, file))


def _text_of(file: BufferedReader) -> BufferedReader:
    """What the lines are read from, at the first of them. Raises UnicodeError for what is no text."""
    head = file.peek(_HEAD)[:_HEAD]
    if head.startswith(_GZIP):
        file = _buffered(gzip.GzipFile(fileobj=file))
        head = file.peek(_HEAD)[:_HEAD]
    if head.startswith(_UTF16_MARKS):
        raise UnicodeError("it is in UTF-16; expected lines of JSON in UTF-8")
    if head.startswith(_UTF8_MARK):
        file.read(len(_UTF8_MARK))
    if _CONTROLS.search(head):
        raise UnicodeError("it is no text; expected lines of JSON, or such a file as gzip makes it")
    return file
