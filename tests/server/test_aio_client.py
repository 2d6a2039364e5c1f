"""The client's side of a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from proxy.server.aio_client import decoded, end_to_end
from proxy.server.services import ExchangeIn
from tests.server.origin import answer, origin, talk_raw
from tests.server.proxied import Passing, proxied


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def test_headers_are_text_as_they_stood() -> None:
    """Spelling, order and repetitions stay; what is not UTF-8 is Latin-1."""
    raw = ((b"X-One", b"1"), (b"x-one", "caf\u00e9".encode()), (b"X-Two", b"caf\xe9"))
    assert decoded(raw) == (("X-One", "1"), ("x-one", "caf\u00e9"), ("X-Two", "caf\u00e9"))


def test_headers_of_the_hop_are_taken_off() -> None:
    """The fixed ones go, and those that Connection names."""
    headers = (("Connection", "Close, X-Mine"), ("x-mine", "1"), ("TE", "trailers"), ("X-Kept", "1"))
    assert end_to_end(headers) == (("X-Kept", "1"),)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_bound_is_a_413(chunked: bool, client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """A governed body is bounded, whether its length is told or not, and nothing goes up."""

    async def pieces() -> AsyncIterator[bytes]:
        for _number in range(10):
            yield bytes(1000)

    listen = {"maxBodyBytes": 5000}
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, policy=tmp_path / "p.yaml", listen=listen) as here,
        client.post(f"{here.url}/v1/chat/completions", data=pieces() if chunked else bytes(10_000)) as got,
    ):
        assert (got.status, (await got.json())["error"]["code"]) == (413, "body_too_large")
    assert there.requests == []


async def test_bodies_of_all_requests_share_a_bound(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Beyond limits.bufferedBytes the client is told to come again, and what was taken goes back."""
    limits = {"bufferedBytes": 5000}
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, policy=tmp_path / "p.yaml", limits=limits) as here,
    ):
        url = f"{here.url}/v1/chat/completions"
        for size, status in ((4000, 200), (6000, 503), (4000, 200)):
            got = await client.post(url, data=bytes(size))
            assert (got.status, await got.read() != b"") == (status, True)
        assert here.running.services.budget.held == 0


class Short(Passing):
    """Sends fewer bytes than it promised."""

    async def serve(self, exchange: ExchangeIn) -> None:
        await exchange.client.start(200, (("content-length", "10"),))
        await exchange.client.write(b"abc")
        await exchange.client.finish()


async def test_fewer_bytes_than_promised_break_the_connection(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Nobody must take a short body for the whole."""
    async with (
        origin(answer(b"ok")) as there,
        proxied(there.url, policy=tmp_path / "p.yaml", governor=Short) as here,
    ):
        got = await client.post(f"{here.url}/v1/chat/completions", data=b"{}")
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()


async def test_a_connection_is_used_again() -> None:
    """Requests that follow each other on one connection are all answered, HTTP/1.0 ones when they ask for it."""
    one = b"GET /v1/x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    last = b"GET /v1/y HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        got = await talk_raw(here.port, one + last)
    assert got.count(b"200 OK") == 2
    assert b"connection: keep-alive" in got


async def test_a_body_that_breaks_off_leaves_one_line_in_the_log() -> None:
    """A client that goes away while it sends is told apart from an upstream that fails."""
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n"
        got = await talk_raw(here.port, head)
        assert b" 400 " in got.partition(b"\r\n")[0]
        assert here.value("upstream_errors_total", kind="reset") == 0
