"""Bodies of requests on the admin port."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from proxy.errors import RequestError
from proxy.server.adminbody import form_fields, is_form, read_body


@pytest.fixture
async def stream() -> StreamReader:
    loop = asyncio.get_running_loop()
    return StreamReader(BaseProtocol(loop), 1 << 16, loop=loop)


async def test_a_body_is_read_whole(stream: StreamReader) -> None:
    """In as many pieces as it comes in."""
    stream.feed_data(b"ab")
    stream.feed_data(b"cd")
    stream.feed_eof()
    assert await read_body(make_mocked_request("POST", "/", payload=stream)) == b"abcd"


async def test_a_body_is_bounded(stream: StreamReader) -> None:
    """Whether its length is told or not."""
    told = make_mocked_request("POST", "/", headers={"content-length": "5"}, payload=stream)
    with pytest.raises(RequestError, match="too long"):
        await read_body(told, most=4)
    stream.feed_data(b"abcde")
    with pytest.raises(RequestError) as raised:
        await read_body(make_mocked_request("POST", "/", payload=stream), most=4)
    assert raised.value.status == 413


def test_a_form_is_its_last_fields() -> None:
    """Empty ones are there; bytes that are no text do no harm."""
    assert form_fields(b"a=1&a=2&b=&c=%2B+x&d=%ff&e") == {"a": "2", "b": "", "c": "+ x", "d": "\ufffd", "e": ""}
    assert form_fields(b"\xff") == {"\ufffd": ""}


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("application/x-www-form-urlencoded; charset=utf-8", b"", True),
        ("application/x-www-form-urlencoded", b' \n{"a": 1}', False),
        ("application/x-www-form-urlencoded", b"[1]", False),
        ("application/x-www-form-urlencoded", b'"a"', False),
        ("application/json", b"a=1", False),
    ],
)
def test_json_is_no_form_whatever_its_type_says(content_type: str, body: bytes, expected: bool) -> None:
    """A form of the page begins with the name of a field."""
    assert is_form(make_mocked_request("POST", "/", headers={"content-type": content_type}), body) is expected
