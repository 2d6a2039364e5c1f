"""Bodies of requests: refused, left to the upstream, or read; the same under every name of the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.protocol.bodies import insists_on_hidden, objects, read_body, user_of
from proxy.errors import RequestError


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        ('{"a":1}'.encode("utf-16-le"), "utf-16-le"),
        (b'{"input":1,"in\\u0070ut":2}', "twice"),
        (b'{"x":NaN,"input":1,"input":2}', "twice"),
        (b'{"a":' + b"[" * 8 + b"]" * 8 + b"}", "deeper than 8"),
        (b'{"x":NaN,"a":' + b"[" * 8 + b"]" * 8 + b"}", "deeper than 8"),
    ],
)
def test_a_body_that_two_readers_read_differently_is_refused(body: bytes, why: str) -> None:
    """The error says what has to be mended."""
    with pytest.raises(RequestError, match=why) as caught:
        read_body(body, 8, history="input")
    assert (caught.value.status, caught.value.code) == (400, "invalid_request_body")


@pytest.mark.parametrize("body", [b"", b"{", b"text", b"[]", b"5", b"null", b'{"a":}', b'{"a":1'])
def test_what_is_no_object_is_the_upstreams_to_judge(body: bytes) -> None:
    """Nothing is read of it."""
    assert read_body(body, 8, history="input") is None


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b'{"a":' + b"[" * 7 + b"]" * 7 + b"}", {"a": [[[[[[[]]]]]]]}),
        (b'{"input":"\\ud83d"}', {"input": "\ud83d"}),
        (b'{"input":"a\nb"} and more', {"input": "a\nb"}),
        (b"{}}{", {}),
        (b'{"input":1e999}', {"input": float("inf")}),
    ],
)
def test_what_some_upstream_takes_is_read(body: bytes, value: Any) -> None:
    """Oddities that a strict reader refuses hide nothing from rules."""
    assert read_body(body, 8, history="input") == value


def test_small_readings() -> None:
    """Values of the wrong type say nothing."""
    assert objects([1, {"a": 1}, None, {}]) == [{"a": 1}, {}]
    assert objects({"a": 1}) == objects("text") == objects(None) == []
    assert user_of({"user": "u", "safety_identifier": "s"}) == "s"
    assert user_of({"user": "u", "safety_identifier": ""}) == "u"
    assert user_of({"user": 7}) == ""
    assert "'delete'" in str(insists_on_hidden("delete"))
    assert insists_on_hidden("delete").code == "tool_hidden"


@pytest.mark.parametrize(
    "member",
    [
        b'"tools":[{"type":"mcp","type":"function","name":"t"}]',
        b'"tools":[{"type":"function","function":{"name":"a","n\\u0061me":"b"}}]',
        b'"tool_choice":{"type":"function","name":"a","name":"b"}',
        b'"input":[{"type":"function_call","call_id":"a","call_id":"b"}]',
        b'"messages":[{"role":"assistant","tool_calls":[{"id":"a"}],"tool_calls":[]}]',
        b'"messages":[{"role":"tool","content":"a","content":"b"}]',
    ],
)
def test_what_a_request_says_twice_below_its_top(member: bytes) -> None:
    """Of what rules go by, in two ways: nobody knows which of them the upstream takes."""
    for body in (b"{" + member + b"}", b'{"a":NaN, ' + member + b"}"):
        with pytest.raises(RequestError) as refused:
            read_body(body, 128, history="input")
        assert refused.value.code == "invalid_request_body"


@pytest.mark.parametrize("body", [b'{"tools":[{"type":"a","type":"a"}]}', b'{"metadata":{"k":1,"k":2},"input": []}'])
def test_what_is_said_twice_and_is_the_same_or_nobodys_business(body: bytes) -> None:
    """It passes."""
    assert read_body(body, 128, history="input") is not None
