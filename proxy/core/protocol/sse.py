"""Server-sent events: bytes to events and back.

A network chunk is never taken for an event: bytes are kept until the blank line that ends an event is there.
Line ends may be CR, LF or CRLF, mixed; an event's own bytes are kept, so that it can go on as it came. This
module knows nothing of what is inside an event's data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its bytes with the blank line that ends it, and its data (None: it has none, as a comment)."""

    raw: bytes
    data: bytes | None

    def with_data(self, data: bytes) -> bytes:
        """This event's bytes with other data; its other lines (`event:`, `id:`, comments) stay."""
        if _is_plain(self.raw):
            return render(data)
        lines, placed = [], False
        for line in _LINE_END.split(self.raw.removeprefix(_BOM)):
            if not line.startswith(b"data:") and line != b"data":
                lines.append(line)
            elif not placed:
                lines += _data_lines(data)
                placed = True
        return b"\n".join(line for line in lines if line) + b"\n\n"


def render(data: bytes, name: str = "") -> bytes:
    """An event of our own."""
    lines = [b"event: " + name.encode()] if name else []
    return b"\n".join([*lines, *_data_lines(data)]) + b"\n\n"


def _data_lines(data: bytes) -> list[bytes]:
    """Data as lines; JSON that came over several lines still has its line ends between tokens."""
    return [b"data: " + line for line in _LINE_END.split(data)]


def _is_plain(raw: bytes) -> bool:
    """Whether an event is what nearly all are: one line of data and a blank line, ended by LF."""
    return raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and raw.endswith(b"\n") and b"\r" not in raw


def _data(raw: bytes) -> bytes | None:
    if _is_plain(raw):
        return raw[6:-2]
    found = [line[5:].removeprefix(b" ") for line in _LINE_END.split(raw.removeprefix(_BOM)) if line[:5] == b"data:"]
    return b"\n".join(found) if found else None


def _plain_end(data: bytes, start: int) -> int:
    """Where the next event ends in bytes without a CR; -1: not yet."""
    found = data.find(b"\n\n", start)
    return found + 2 if found >= 0 else -1


def _any_end(data: bytes, start: int) -> int:
    found = _END.search(data, start)
    return found.end() if found else -1


class EventSplitter:
    """Cuts a stream into events. `pending` is how many bytes wait for the end of their event."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete now.

        A blank line that ends in a CR ends its event at once; an LF that follows in the next chunk comes as an
        event of its own without data, so that no event waits for a byte that may never come.
        """
        searched = max(0, len(self._rest) - 3)
        buffer = self._rest + data if self._rest else data
        events, at = [], 0
        find_end = _plain_end if b"\r" not in buffer else _any_end
        while (end := find_end(buffer, max(at, searched))) >= 0:
            raw = buffer[at:end]
            events.append(Event(raw, _data(raw)))
            at = searched = end
        self._rest = buffer[at:]
        return events

    def finish(self) -> Event | None:
        """What came behind the last blank line: an event that was not ended, read as one all the same."""
        raw, self._rest = self._rest, b""
        return Event(raw, _data(raw + b"\n\n")) if raw else None
