"""A response as an answer: its items in order, its calls among them, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.protocol.response_answer import UnreadableError, read_output, read_response

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "search", "arguments": "{}"}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "call_2", "action": {"commands": ["ls"]}}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def response(*items: Any) -> bytes:
    return b'{"id":"resp_1", "output": [' + b" , ".join(map(text, items)) + b"]}"


def test_items_keep_their_order_and_their_bytes() -> None:
    """A number stands for each call; everything else is the bytes that it came as."""
    body = response(MESSAGE, CALL, "odd", SHELL, MESSAGE)
    output = read_output(body, json.loads(body))
    assert output.layout == (text(MESSAGE), 0, text("odd"), 1, text(MESSAGE))
    assert [(call.name, raw) for call, raw in output.calls] == [("search", text(CALL)), ("shell", text(SHELL))]


def test_a_call_that_the_upstream_runs_is_an_item_like_others() -> None:
    """Of a hosted tool nothing waits for an answer."""
    body = response(SHELL)
    assert read_output(body, json.loads(body), hosted={"shell"}).layout == (text(SHELL),)


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b'"x"', text({"output": "x"}), text({"error": {"message": "x"}, "output": None})]
)
def test_what_is_no_response(body: bytes) -> None:
    """It passes as it came: nothing in it could be taken for a call."""
    assert read_response(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + response(CALL),
        response(CALL) + b" and more",
        text({"output": {"first": CALL}}),
        text({"response": {"output": [CALL]}}),
        text([CALL]),
        text({"choices": [{"message": {"tool_calls": [{"id": "a"}]}}]}),
        text({"output": [], "choices": [{"message": {"tool_calls": [{"id": "a"}]}}]}),
        text({"output": [], "response": {"output": [CALL]}}),
        b"{}" + response(CALL),
        response(CALL)[:-1] + b",}",
        b'{"type":"response.output_item.done","item":{"type":"mcp_approval_request"}}\n{}\n',
        text([MESSAGE]) + b"\n" + text({"item": SHELL}),
    ],
)
def test_what_hides_a_call(body: bytes) -> None:
    """An answer that one reader could find a call in, and another not, is refused."""
    with pytest.raises(UnreadableError):
        read_response(body)


def test_odd_numbers_are_read() -> None:
    """Some servers write what strict JSON has not; the items are there all the same."""
    body = b'{"output":[' + text(CALL) + b'],"usage":{"x":NaN}}'
    value = read_response(body)
    assert value is not None
    assert read_output(body, value).calls[0][1] == text(CALL)
