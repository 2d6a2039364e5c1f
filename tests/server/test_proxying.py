"""Pass-through: bytes both ways, in constant memory, whatever the method and the framing."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from proxy.server.proxying import LedgerGlance, trace_id
from proxy.stores.base import Write
from proxy.stores.memory import MemoryStore
from tests.server.origin import Seen, Talk, answer, origin, talk_raw
from tests.server.proxied import proxied

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


def streamed(*pieces: bytes, end: bool = True, kind: str = "text/event-stream") -> Talk:
    """Send pieces chunked; without `end`, break off."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if end:
            writer.write(b"0\r\n\r\n")
        else:
            await writer.drain()
            writer.close()

    return talk


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
async def test_any_method_and_body_pass(method: str, client: aiohttp.ClientSession) -> None:
    """Method, path, query, body and status pass as they are."""
    sent = None if method in ("GET", "OPTIONS") else b"\x00\xffnot json"
    talk = answer(b"\xff\x00", "X-Odd: 1.10", status="207 Multi-Status")
    async with (
        origin(talk) as there,
        proxied(there.url) as here,
        client.request(method, f"{here.url}/v1/files/f?x=1", data=sent) as got,
    ):
        assert (got.status, await got.read(), got.headers["X-Odd"]) == (207, b"\xff\x00", "1.10")
    assert there.requests[0].line == f"{method} /v1/files/f?x=1 HTTP/1.1"
    assert there.requests[0].body == (sent or b"")


async def test_an_answer_has_no_header_that_the_upstream_did_not_send() -> None:
    """Nothing is added to an answer that passes, and its order and spelling stay."""
    talk = answer(b"{}", "X-b: 1", "X-A: 2", "Set-Cookie: a=1", "Set-Cookie: b=2", "Content-Length: 2")
    async with origin(talk) as there, proxied(there.url) as here:
        got = await talk_raw(here.port, b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert got == (
        b"HTTP/1.1 200 OK\r\nX-b: 1\r\nX-A: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n"
        b"connection: close\r\n\r\n{}"
    )


async def test_a_head_answer_keeps_its_length_and_has_no_body(client: aiohttp.ClientSession) -> None:
    """HEAD passes with the length that a GET would have, and the connection can be used again."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n")

    async with origin(talk) as there, proxied(there.url) as here:
        head = b"HEAD /v1/x HTTP/1.1\r\nhost: x\r\n\r\nHEAD /v1/y HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        got = await talk_raw(here.port, head)
    assert got.count(b"content-length: 12345") == 2
    assert got.endswith(b"connection: close\r\n\r\n")


async def test_a_body_that_is_waited_for_is_invited() -> None:
    """A client that expects 100-continue gets it, and its body then passes."""
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"POST /v1/files HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
    assert (there.requests[0].body, there.requests[0].header("expect")) == (b"hello", None)


async def test_a_large_body_passes_both_ways_in_constant_memory(client: aiohttp.ClientSession) -> None:
    """100 MiB up and down leave the memory of the process as it was."""
    piece, count = os.urandom(1 << 20), 100

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        digest = hashlib.sha256()
        for _number in range(count):
            digest.update(await reader.readexactly(len(piece)))
        writer.write(
            f"HTTP/1.1 200 OK\r\nx-digest: {digest.hexdigest()}\r\ncontent-length: {count << 20}\r\n\r\n".encode()
        )
        for _number in range(count):
            writer.write(piece)
            await writer.drain()

    async def pieces() -> AsyncIterator[bytes]:
        for _number in range(count):
            yield piece

    expected = hashlib.sha256(piece * 1)
    for _number in range(count - 1):
        expected.update(piece)
    async with origin(talk, reads_body=False) as there, proxied(there.url) as here:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        headers = {"content-length": str(count << 20)}
        async with client.post(f"{here.url}/v1/files", data=pieces(), headers=headers) as got:
            size = 0
            async for part in got.content.iter_any():
                size += len(part)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (size, got.headers["x-digest"]) == (count << 20, expected.hexdigest())
    assert after - before < 48 << 10


async def test_compressed_bodies_stay_compressed(client: aiohttp.ClientSession) -> None:
    """Neither side is decompressed on the way."""
    packed = gzip.compress(b"{}")
    async with origin(answer(packed, "content-encoding: gzip")) as there, proxied(there.url) as here:
        headers = {"content-encoding": "gzip"}
        async with client.post(f"{here.url}/v1/files", data=packed, headers=headers) as got:
            assert (await got.read(), got.headers["content-encoding"]) == (packed, "gzip")
    assert there.requests[0].body == packed


async def test_events_pass_as_they_come(client: aiohttp.ClientSession) -> None:
    """An event reaches the client before the next one is there, and the stream is gauged while it runs."""
    more = asyncio.Event()

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"3\r\n1\n\n\r\n")
        await more.wait()
        writer.write(b"3\r\n2\n\n\r\n0\r\n\r\n")

    async with origin(talk) as there, proxied(there.url) as here:
        async with client.get(f"{here.url}/v1/audio/speech") as got:
            assert await got.content.readany() == b"1\n\n"
            assert here.value("streams_active") == 1
            more.set()
            assert await got.content.read() == b"2\n\n"
        await asyncio.wait_for(here.running.plane.idle(), 5)
        assert here.value("streams_active") == 0
    assert here.requests()[0]["stream"] is True


async def test_a_client_that_goes_away_ends_the_upstreams_request(client: aiohttp.ClientSession) -> None:
    """The upstream sees the end at once, and the log says that the client left."""
    gone = asyncio.Event()

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"3\r\n1\n\n\r\n")
        await reader.read()
        gone.set()

    async with origin(talk) as there, proxied(there.url) as here:
        got = await client.get(f"{here.url}/v1/events")
        await got.content.readany()
        got.close()
        await asyncio.wait_for(gone.wait(), 5)
        await asyncio.wait_for(here.running.plane.idle(), 5)
    assert here.requests()[0]["error"] == "client_gone"


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(client: aiohttp.ClientSession) -> None:
    """What came of a broken answer passes, and its end is missing."""
    async with origin(streamed(b"abc", end=False)) as there, proxied(there.url) as here:
        got = await client.get(f"{here.url}/v1/x")
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()
    assert here.value("upstream_errors_total", kind="reset") == 1


async def test_an_old_client_gets_a_body_that_the_close_ends() -> None:
    """HTTP/1.0 knows no chunks: the body ends with the connection."""
    async with origin(streamed(b"abc", b"def")) as there, proxied(there.url) as here:
        got = await talk_raw(here.port, b"GET /v1/x HTTP/1.0\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert body == b"abcdef"
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in head


async def test_a_websocket_passes_both_ways_as_bytes() -> None:
    """After the upstream's 101, bytes pass both ways with back-pressure, and one end ends the other."""
    size = 8 << 20

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Mine: 1\r\n\r\nhi"
        )
        left = size
        while left:
            data = await reader.read(65536)
            left -= len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    sent = os.urandom(size)
    async with origin(talk) as there, proxied(there.url) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(
            b"GET /v1/realtime?model=m HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-key: abc\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"X-Mine: 1" in head
        assert await reader.readexactly(2) == b"hi"
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 20) == sent
        writer.close()
        await asyncio.wait_for(here.running.plane.idle(), 5)
    seen = there.requests[0]
    assert (seen.header("upgrade"), seen.header("sec-websocket-key")) == ("websocket", "abc")
    assert here.requests()[0]["status"] == 101


async def test_a_handshake_that_is_refused_passes_as_it_is() -> None:
    """An answer other than 101 is an answer like any other."""
    async with origin(answer(b"no", status="401 Unauthorized")) as there, proxied(there.url) as here:
        head = b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade, close\r\n\r\n"
        got = await talk_raw(here.port, head)
    assert got.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert got.endswith(b"no")


@pytest.mark.parametrize(
    ("target", "upgrade", "status"),
    [
        ("/v1/batches", False, 403),
        ("/v1/batches/b/cancel", False, 403),
        ("/v1/realtime", True, 403),
        ("/v1/realtime/client_secrets", False, 403),
        ("/v1/threads/runs", False, 403),
        ("/v1/threads/t/runs/r/submit_tool_outputs", False, 403),
        ("/v1/responses", True, 426),
        ("/openai/v1/responses%3Fx/", True, 426),
        ("/v1/messages", False, 403),
        ("/api/chat", False, 403),
        ("/api/generate%00", False, 403),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", False, 403),
    ],
)
async def test_ungoverned_surfaces_are_refused_once_there_is_a_rule(
    target: str, upgrade: bool, status: int, tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """With a rule they are refused, without one they pass, and `unsupported` decides for good."""
    headers = {"upgrade": "websocket", "connection": "Upgrade"} if upgrade else {}
    async with origin(answer(b"ok")) as there:
        cases: list[tuple[dict[str, Any], int]] = [
            ({"policy": tmp_path / "p.yaml"}, status),
            ({}, 200),
            ({"policy": tmp_path / "p.yaml", "unsupported": "pass"}, 200),
            ({"unsupported": "deny"}, status),
        ]
        for settings, expected in cases:
            async with proxied(there.url, **settings) as here:
                got = await client.get(URL(f"{here.url}{target}", encoded=True), headers=headers)
                assert (got.status, await got.read() != b"") == (expected, True)
                if expected != 200:
                    assert (await got.json())["error"]["code"] == "surface_not_governed"
                    assert got.headers.get("upgrade") == ("HTTP/1.1" if expected == 426 else None)
    assert [seen.line for seen in there.requests] == [f"GET {target} HTTP/1.1"] * 2


async def test_a_path_of_two_apis_is_refused_once_there_is_a_rule(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """Nobody could say which of them the upstream takes it for."""
    target = "/v1/messages%3F/chat/completions"
    async with origin(answer(b"ok")) as there:
        cases: list[tuple[dict[str, Any], int]] = [
            ({"policy": tmp_path / "p.yaml", "unsupported": "pass"}, 403),
            ({}, 200),
        ]
        for settings, expected in cases:
            async with proxied(there.url, **settings) as here:
                got = await client.post(URL(f"{here.url}{target}", encoded=True), data=b"{}")
                assert (got.status, await got.read() != b"") == (expected, True)
    assert [seen.line for seen in there.requests] == [f"POST {target} HTTP/1.1"]


@pytest.mark.parametrize(
    "target", ["/v1/chat/completions%00", "/v1/chat/completions%3Fa", "/openai/deployments/d/chat%2Fcompletions?b=%20"]
)
async def test_a_governed_target_goes_up_as_it_was_spelled(
    target: str, tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """It is governed as what it may be read as, and the upstream reads what the client wrote."""
    async with origin(answer(b"{}")) as there, proxied(there.url, policy=tmp_path / "p.yaml") as here:
        async with client.post(URL(f"{here.url}{target}", encoded=True), data=b"{}") as got:
            assert got.status == 200
        assert len(here.governor.exchanges) == 1
    assert there.requests[0].line == f"POST {target} HTTP/1.1"


async def test_chat_completions_are_the_governors_once_there_is_a_rule(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """With a rule the governor serves them; without one they pass unread until the ledger has something."""
    async with origin(answer(b"{}")) as there:
        async with proxied(there.url, policy=tmp_path / "p.yaml") as here:
            async with client.post(f"{here.url}/v1/chat/completions", data=b"{}") as got:
                assert got.status == 200
            (exchange,) = here.governor.exchanges
            assert exchange.request_id == here.requests()[0]["request_id"]
            assert (await exchange.tenant()) == "(anonymous)"
        async with proxied(there.url) as here:
            await here.running.services.store.save([Write("batch:x", b"1", 60)])
            async with client.post(f"{here.url}/v1/chat/completions", data=b"{}"):
                assert len(here.governor.exchanges) == 1
        async with proxied(there.url) as here, client.post(f"{here.url}/v1/chat/completions", data=b"{}"):
            assert here.governor.exchanges == []


async def test_callers_that_are_not_listed_are_refused(client: aiohttp.ClientSession) -> None:
    """With a list of clients any other caller gets 401, and nothing goes up."""
    clients = [{"name": "a", "keySha256": hashlib.sha256(b"k").hexdigest()}]
    async with origin(answer(b"ok")) as there, proxied(there.url, clients=clients) as here:
        async with client.get(f"{here.url}/v1/models") as got:
            assert (got.status, (await got.json())["error"]["code"]) == (401, "invalid_api_key")
        async with client.get(f"{here.url}/v1/models", headers={"api-key": "k"}) as got:
            assert got.status == 200
    assert len(there.requests) == 1
    assert [line.get("client") for line in here.requests()] == [None, "a"]


async def test_a_request_is_one_line_without_its_query(client: aiohttp.ClientSession) -> None:
    """The log has path and status, and neither query nor credential."""
    headers = {"authorization": "Bearer sk-mine", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        got = await client.get(f"{here.url}/v1/models?key=sk-query", headers=headers)
        assert await got.read() == b"ok"
    (line,) = here.requests()
    assert (line["path"], line["status"], line["trace_id"]) == ("/v1/models", 200, TRACE)
    assert "sk-" not in str(here.lines)
    assert here.value("requests_total", api="other", stream="false", status="200") == 1


async def test_this_is_no_forward_proxy() -> None:
    """CONNECT is refused."""
    async with origin(answer(b"ok")) as there, proxied(there.url) as here:
        got = await talk_raw(here.port, b"CONNECT evil:443 HTTP/1.1\r\nhost: evil\r\nconnection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 405 ")
    assert there.requests == []


async def test_the_ledger_is_looked_at_once_a_second() -> None:
    """Between two looks the answer is the last one."""
    now, store = [0.0], MemoryStore(clock=lambda: 0.0)
    glance = LedgerGlance(store, timer=lambda: now[0])
    assert await glance.is_empty()
    await store.save([Write("batch:x", b"1", 60)])
    assert await glance.is_empty()
    now[0] = 1.0
    assert not await glance.is_empty()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"),
        ("00-x-y-z", ""),
    ],
)
def test_a_trace_is_found_in_its_header(text: str, found: str) -> None:
    """Only a well-formed traceparent names a trace."""
    assert trace_id(text) == found
