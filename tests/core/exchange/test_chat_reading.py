"""Reading an event of a stream: as an object, as something that passes, or as something that may not."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.exchange.chat_reading import (
    apart,
    choices_of,
    delta_of,
    has_call,
    has_message,
    read_event,
    without_calls,
)
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError

CALL = {"tool_calls": [{"index": 0}]}


@pytest.mark.parametrize("data", [b": keepalive", b"", b"[]", b"3", b'{"a":1} {}', b'{"a":', b"tool_calls"])
def test_what_is_no_event_of_a_stream_is_none(data: bytes) -> None:
    """It passes as it came, since no call could be in it."""
    assert read_event(data) is None


@pytest.mark.parametrize("data", [b'{"a":NaN,"b":"\\ud83d"}', b' {"a":1}\n'])
def test_what_servers_write_beyond_json_is_read(data: bytes) -> None:
    """NaN and half a surrogate pair are in use; every reader that takes them sees the same calls."""
    assert isinstance(read_event(data), dict)


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[{"delta":{"tool_calls":[{}]}}]} x',
        b'\xef\xbb\xbf{"choices":[{"delta":{"function_call":{"name":"a"}}}]}',
        b'{"tool_calls":',
        b'{"function_call":{},}',
        b'{}{"item":{"type":"new_call"}}',
        b'[{"choices":[{"delta":{"tool_calls":[{}]}}]}]',
        b"[" * 100_000,
    ],
)
def test_what_could_hide_a_call_is_refused(data: bytes) -> None:
    """Two readers could see two things, so nobody gets it."""
    with pytest.raises(UpstreamError):
        read_event(data)


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({}, False),
        ({"delta": None}, False),
        ({"delta": {"tool_calls": [], "function_call": None}}, False),
        ({"delta": CALL}, True),
        ({"delta": {"function_call": {}}}, False),
        ({"delta": {"function_call": {"name": "a"}}}, True),
        ({"message": CALL}, True),
        ({"message": {"content": "a"}}, False),
    ],
)
def test_where_a_call_stands(choice: dict[str, Any], found: bool) -> None:
    """In the delta, or in a message that is said again whole."""
    assert has_call(choice) is found
    assert has_message(choice) is (found and "message" in choice)


def test_calls_that_are_no_list_are_refused() -> None:
    """Nobody knows what a client makes of them."""
    with pytest.raises(UpstreamError):
        delta_of({"delta": {"tool_calls": {"0": {}}}})


def test_choices_that_are_none_are_left_out() -> None:
    """Whatever else stands in the list is no choice."""
    assert choices_of({"choices": [None, {"index": 1}, 3]}) == [{"index": 1}]


def test_an_event_for_several_choices_is_one_for_each() -> None:
    """Each part keeps the rest of the event; what was used is said once."""
    data = b'{"id":"a","choices":[{"index":0},{"index":1}],"usage":{"a":1}}'
    parts = [b'{"id":"a","choices":[{"index":0}],"usage":{"a":1}}', b'{"id":"a","choices":[{"index":1}]}']
    event = Event(b"id: 7\ndata: " + data + b"\n\n", data)
    assert [part.data for part in apart(event)] == parts
    assert [part.raw for part in apart(event)] == [b"id: 7\ndata: " + part + b"\n\n" for part in parts]


def test_an_event_keeps_its_bytes_where_no_call_is_in_it() -> None:
    """Only choices with a call are taken out."""
    data = b'{"error":{"message":"m"},"choices":[{"delta":{"content":"a"}}]}'
    event = Event(b"data: " + data + b"\n\n", data)
    value = read_event(data)
    assert value is not None
    assert without_calls(event, value) == event.raw
