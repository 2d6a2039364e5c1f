"""Listening sockets."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from proxy.config import CertificateFiles
from proxy.server.listeners import listen
from tests.server.certificates import Authority
from tests.server.origin import talk_raw


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


@pytest.mark.parametrize("data", [b"SSH-2.0 hello\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"])
async def test_bytes_that_are_not_http_get_an_error_of_ours(data: bytes) -> None:
    """400 in OpenAI's shape, and the connection ends."""
    listener = await listen(hello, "127.0.0.1", 0)
    got = await talk_raw(listener.port, data)
    await listener.close(0.1)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b" 400 " in head
    assert json.loads(body)["error"]["code"] == "bad_request"


async def test_both_framings_at_once_are_refused() -> None:
    """A request that two readers could cut differently does not pass."""
    listener = await listen(hello, "127.0.0.1", 0)
    both = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    got = await talk_raw(listener.port, both + b"GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n")
    await listener.close(0.1)
    assert got.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert b"hello" not in got


async def test_tls_is_served(tmp_path: Path) -> None:
    """With a certificate the port speaks TLS."""
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    tls = CertificateFiles(cert_file=str(files.cert), key_file=str(files.key))
    listener = await listen(hello, "127.0.0.1", 0, tls=tls)
    context = ssl.create_default_context(cafile=str(authority.file))
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"https://localhost:{listener.port}/", ssl=context) as got,
    ):
        assert await got.text() == "hello"
    await listener.close(0.1)
