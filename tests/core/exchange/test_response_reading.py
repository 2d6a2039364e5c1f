"""Reading an event of a response's stream: its part in an item, and calls where none should be."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.exchange.response_reading import (
    Part,
    check_apart,
    hides_call,
    may_be_call,
    number_at,
    part_of,
    read_event,
    text_at,
    type_of,
)
from proxy.core.jsontext import render
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError


@pytest.mark.parametrize(
    ("kind", "part", "call_type"),
    [
        ("response.output_item.added", Part.ADDED, ""),
        ("response.output_item.done", Part.DONE, ""),
        ("response.output_text.delta", Part.OTHER, ""),
        ("response.function_call_arguments.delta", Part.PIECE, "function_call"),
        ("response.function_call_arguments.done", Part.TEXT, "function_call"),
        ("response.custom_tool_call_input.done", Part.TEXT, "custom_tool_call"),
        ("response.shell_call_command.done", Part.PIECE, "shell_call"),
        ("response.apply_patch_call_operation_diff.delta", Part.PIECE, "apply_patch_call"),
        ("response.mcp_approval_request.done", Part.PIECE, "mcp_approval_request"),
        ("response.probe_call.started", Part.PIECE, "probe_call"),
        ("response.shell_call_output_content.delta", Part.OTHER, ""),
        ("response.mcp_call_arguments.delta", Part.OTHER, ""),
        ("response.web_search_call.completed", Part.OTHER, ""),
        ("response.created", Part.OTHER, ""),
        ("", Part.OTHER, ""),
    ],
)
def test_what_an_event_is_to_its_item(kind: str, part: Part, call_type: str) -> None:
    """By its type alone."""
    assert part_of(kind) == (part, call_type)


@pytest.mark.parametrize(
    ("data", "value"),
    [(b'{"a":1}', {"a": 1}), (b"[1]", None), (b"hello", None), (b'{"a":NaN}', "same"), (b'{"type":"x"} y', None)],
)
def test_an_event_is_an_object_or_nothing(data: bytes, value: Any) -> None:
    """Also one that only a lenient reader takes."""
    found = read_event(data)
    assert (found is not None) if value == "same" else found == value


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.function_call_arguments.delta"',
        b'{"item":{"type":"shell_call"',
        b'{"item":{"type":"mcp_approval_request"}} x',
        b'{"type":"response.probe_call.started"',
    ],
)
def test_what_cannot_be_read_and_could_be_of_a_call_is_refused(data: bytes) -> None:
    """With data or without."""
    with pytest.raises(UpstreamError):
        read_event(data)
    with pytest.raises(UpstreamError):
        check_apart(Event(data, None))
    check_apart(Event(b": " + data, None))


def test_an_event_without_a_type_has_its_name() -> None:
    """One that has a type is not asked for its name."""
    raw = b"event: response.completed\r\ndata: {}\r\n\r\n"
    assert type_of(Event(raw, b"{}"), {}) == "response.completed"
    assert type_of(Event(raw, b"{}"), {"type": "error"}) == "error"
    assert type_of(Event(raw, b"{}"), {"type": 7}) == ""
    assert type_of(Event(b"data: {}\n\n", b"{}"), {}) == ""


def test_members_are_what_they_should_be_or_nothing() -> None:
    """A bool is no number."""
    value = {"a": "x", "b": 3, "c": True, "d": None}
    assert [text_at(value, key) for key in "abcde"] == ["x", "", "", "", ""]
    assert [number_at(value, key) for key in "abcde"] == [None, 3, None, None, None]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({"type": "function_call"}, True),
        ({"type": "shell_call"}, False),
        ({"type": "local_shell_call"}, True),
        ({"type": "tool_search_call"}, True),
        ({"type": "tool_search_call", "execution": "server"}, False),
        ({"type": "mcp_call"}, False),
        ({"type": "message"}, False),
        ({"type": 1}, False),
        ("function_call", False),
    ],
)
def test_what_may_be_a_call_before_it_is_whole(item: Any, found: bool) -> None:
    """Its type tells, and who runs it."""
    assert may_be_call(item, {"shell"}) is found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"part": {"type": "function_call"}}, True),
        ({"list": [{"x": {"type": "mcp_approval_request"}}]}, True),
        ({"item": {"type": "message", "content": [{"type": "function_call"}]}}, True),
        ({"item": {"type": "function_call"}}, False),  # that is its place
        ({"response": {"output": [{"type": "function_call"}]}}, False),
        ({"delta": "a function_call"}, False),
        ({"delta": "text"}, False),
        ({"list": [{"type": "web_search_call"}]}, False),
    ],
)
def test_a_call_in_a_place_that_is_none(value: dict[str, Any], found: bool) -> None:
    """However it is spelled."""
    data = render(value)
    assert hides_call(Event(b"", data), value, ()) is found
    spelled = data.replace(b"_call", b"\\u005fcall")
    assert hides_call(Event(b"", spelled), value, ()) is found
