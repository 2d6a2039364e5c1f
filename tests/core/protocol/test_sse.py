from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.protocol.sse import Event, EventSplitter, render

BOM = b"\xef\xbb\xbf"
ENDS = [b"\n", b"\r", b"\r\n"]

STREAM = (
    BOM + b'data: {"a":"\xf0\x9f\x90\xb8"}\n\n'
    b": OPEN\n\n"
    b'data:{"b":1}\r\n\r\n'
    b"event: x\rid: 7\rdata: 1\r\r"
    b'data: {"c":\r\ndata: "u\xe2\x80\xa8\xc2\x85v"}\r\n\n'
    b"event: keepalive\n\n"
    b"data: : keepalive\n\n"
    b"data: [DONE]\n\n"
    b'data: {"last":1}'
)
DATA = [
    b'{"a":"\xf0\x9f\x90\xb8"}',
    None,
    b'{"b":1}',
    b"1",
    b'{"c":\n"u\xe2\x80\xa8\xc2\x85v"}',
    None,
    b": keepalive",
    b"[DONE]",
    b'{"last":1}',
]


def split(*chunks: bytes) -> list[Event]:
    """The events of a stream that came in these chunks, with what came behind the last blank line."""
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    rest = splitter.finish()
    assert splitter.pending == 0
    return [*events, rest] if rest is not None else events


def data_of(events: list[Event]) -> list[bytes | None]:
    """Data of the events, without the odd line end that came behind its event."""
    return [e.data for e in events if e.raw.strip(b"\r\n")]


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_a_stream_may_be_cut_anywhere(at: int) -> None:
    """Wherever reads cut a stream, also inside a character, a mark or a line end, its events are the same."""
    events = split(STREAM[:at], STREAM[at:])
    assert data_of(events) == DATA
    assert b"".join(e.raw for e in events) == STREAM


def test_a_stream_may_come_byte_by_byte() -> None:
    """The smallest reads give the events of the largest."""
    events = split(*(STREAM[i : i + 1] for i in range(len(STREAM))))
    assert data_of(events) == data_of(split(STREAM)) == DATA
    assert b"".join(e.raw for e in events) == STREAM


line = st.sampled_from([b"data: x", b"data:y", b"data", b": c", b"event: e", b"id: 1", b"data: \xc2\x85", b"data:  z"])
events_made = st.lists(st.tuples(st.lists(st.tuples(line, st.sampled_from(ENDS)), min_size=1), st.sampled_from(ENDS)))


@given(events_made, st.lists(st.integers(0, 400), max_size=6))
def test_any_line_ends_and_any_reads(made: list[tuple[list[tuple[bytes, bytes]], bytes]], cuts: list[int]) -> None:
    """With every mixture of line ends, the events and their bytes do not depend on how the stream was read."""
    parts, expected = [], []
    for lines, blank in made:
        # A CR before an LF is one line end: what was meant as a blank line would be none.
        if lines[-1][1] == b"\r" and blank == b"\n":
            blank = b"\r"
        parts.append(b"".join(text + end for text, end in lines) + blank)
        found = [text[5:].removeprefix(b" ") for text, _ in lines if text.startswith(b"data:")]
        expected.append(b"\n".join(found) if found else None)
    stream = b"".join(parts)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    events = split(*(stream[a:b] for a, b in itertools.pairwise(places)))
    assert data_of(events) == expected
    assert b"".join(e.raw for e in events) == stream


def test_no_event_waits_for_a_byte_that_may_never_come() -> None:
    """A blank line that ends in a CR ends its event at once; the LF behind it belongs to what follows."""
    splitter = EventSplitter()
    assert [e.data for e in splitter.feed(b"data: 1\r\n\r")] == [b"1"]
    assert splitter.pending == 0
    assert splitter.feed(b"\n") == []
    assert [e.data for e in splitter.feed(b"data: 2\r\n\r\n")] == [b"2"]
    assert splitter.feed(b"\ndata: 3") == []
    assert splitter.pending == 8


def test_what_was_not_ended_is_read_all_the_same() -> None:
    """The last event may lack its blank line; nothing at all is no event."""
    assert split(b"") == []
    assert split(b"data: 1\n\n") == [Event(b"data: 1\n\n", b"1")]
    for rest in (b"data: 1", b"data: 1\n", b"data: 1\r"):
        assert split(rest) == [Event(rest, b"1")]
    assert split(b": bye") == [Event(b": bye", None)]
    assert split(b"\n") == [Event(b"\n", None)]


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data: \n\n", b""),
        (b"data:\n\n", b""),
        (b"data\n\n", None),
        (b"datax: 1\n\n", None),
        (b" data: 1\n\n", None),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (BOM + b"data: x\n\n", b"x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"data: a\rdata: b\r\r", b"a\nb"),
    ],
)
def test_data_of_an_event(raw: bytes, data: bytes | None) -> None:
    """At most one blank behind the colon goes, lines are joined, other fields are no data."""
    assert [e.data for e in split(raw)] == [data]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: old\n\n", b"data: new\n\n"),
        (b"data:old\n\n", b"data: new\n\n"),
        (b"data: old\r\n\r\n", b"data: new\n\n"),
        (b"event: e\ndata: old\nid: 3\n\n", b"event: e\ndata: new\nid: 3\n\n"),
        (b": c\r\ndata: old\r\ndata: more\r\n\r\n", b": c\ndata: new\n\n"),
        (b"data: old\ndata\nretry: 1\n\n", b"data: new\nretry: 1\n\n"),
        (BOM + b"event: e\ndata: old\n\n", b"event: e\ndata: new\n\n"),
        (b"data: old", b"data: new\n\n"),
        (b"\ndata: old\n\n", b"data: new\n\n"),
    ],
)
def test_an_event_with_other_data_keeps_its_other_lines(raw: bytes, expected: bytes) -> None:
    """Only the data changes; a changed event is always one that readers of any kind can read."""
    (event,) = split(raw)
    assert event.with_data(b"new") == expected
    assert [e.data for e in split(expected)] == [b"new"]


@given(st.binary(max_size=20).filter(lambda data: b"\r" not in data))
def test_data_that_was_written_is_read_back(data: bytes) -> None:
    """Line ends between tokens become lines of data and come back."""
    assert [e.data for e in split(render(data))] == [data]
    assert render(data).endswith(b"\n\n")
    (event,) = split(b"event: e\ndata: 1\n\n")
    assert [e.data for e in split(event.with_data(data))] == [data]


def test_a_long_event_is_not_searched_again_and_again() -> None:
    """An event of many reads costs one search of its bytes, and counts as pending until it ends."""
    splitter = EventSplitter()
    piece = b"x" * 4096
    assert splitter.feed(b"data: ") == []
    for number in range(256):
        assert splitter.feed(piece) == []
        assert splitter.pending == 6 + (number + 1) * len(piece)
    (event,) = splitter.feed(b"\n\n")
    assert event.data == piece * 256
