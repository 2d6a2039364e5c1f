"""The upstream: what reaches it, what comes back, and what its failures are called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Upstream as Settings
from proxy.errors import RequestError, UpstreamError
from proxy.server.http import RequestHead
from proxy.server.upstream import AioUpstream
from tests.server.certificates import Authority
from tests.server.origin import Origin, Seen, answer, origin, read_head

HEAD = RequestHead("POST", "/v1/chat/completions", (("Content-Type", "application/json"), ("X-Mine", "1")))


@asynccontextmanager
async def upstream(
    base_url: str, *, environ: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[tuple[AioUpstream, list[str]]]:
    errors: list[str] = []
    made = AioUpstream(
        Settings.model_validate_json(json.dumps({"baseUrl": base_url, **settings})),
        on_error=errors.append,
        environ=environ or {},
    )
    try:
        yield made, errors
    finally:
        await made.close()


async def ask(found: AioUpstream, head: RequestHead = HEAD, body: Any = b"{}", *, governed: bool = True) -> bytes:
    async with found.request(head, body, governed=governed) as got:
        return b"".join([piece async for piece in got.pieces()])


async def test_nothing_is_added_to_a_request_and_its_spelling_stays() -> None:
    """Names, order and repetitions of headers stay, and no Accept, Accept-Encoding or User-Agent comes."""
    headers = (("X-One", "1"), ("x-TWO", "caf\u00e9"), ("X-One", "again"), ("Host", "evil"), ("Expect", "100-continue"))
    async with origin(answer(b"ok")) as there, upstream(there.url) as (found, _):
        assert await ask(found, RequestHead("POST", "/v1/a%2Fb?x=%20&y", headers)) == b"ok"
    (seen,) = there.requests
    assert seen.line == "POST /v1/a%2Fb?x=%20&y HTTP/1.1"
    assert sorted(seen.headers) == sorted(
        [
            ("Host", f"127.0.0.1:{there.port}"),
            ("X-One", "1"),
            ("X-One", "again"),
            ("x-TWO", "caf\u00e9".encode().decode("latin-1")),
            ("Content-Length", "2"),
        ]
    )


async def test_hop_by_hop_headers_stay_on_their_hop() -> None:
    """What Connection names, and the fixed ones, go neither up nor down."""
    headers = (("Connection", "x-up, close"), ("X-Up", "1"), ("TE", "trailers"), ("Upgrade", "h2c"), ("X-Kept", "1"))
    down = answer(b"ok", "Connection: x-down", "X-Down: 1", "Keep-Alive: timeout=9", "X-Kept: 1")
    head = RequestHead("GET", "/v1/models", headers)
    async with (
        origin(down) as there,
        upstream(there.url) as (found, _),
        found.request(head, None, governed=False) as got,
    ):
        assert [name for name, _ in got.headers] == ["X-Kept", "content-length"]
    names = {name.lower() for name, _ in there.requests[0].headers}
    assert names == {"host", "x-kept"}


@pytest.mark.parametrize(
    ("auth", "expected"),
    [("bearer", {"authorization": "Bearer sk-real"}), ("api-key", {"api-key": "sk-real"}), ("none", {})],
)
async def test_the_configured_key_takes_the_place_of_the_clients(
    auth: str, expected: dict[str, str], tmp_path: Path
) -> None:
    """With a key, no credential of the client goes up, and the key is read anew for each request."""
    (tmp_path / "key").write_text("sk-real\n")
    settings: dict[str, Any] = {"auth": auth, "apiKey": {"file": str(tmp_path / "key")}, "headers": {"X-Extra": "e"}}
    head = RequestHead("GET", "/v1/models", (("Authorization", "Bearer mine"), ("api-key", "mine"), ("x-extra", "m")))
    async with origin(answer(b"ok")) as there, upstream(there.url, **settings) as (found, _):
        await ask(found, head, None)
        (tmp_path / "key").write_text("sk-real-new\n")
        await ask(found, head, None)
    first, second = ({name.lower(): value for name, value in seen.headers} for seen in there.requests)
    assert {name: value for name, value in first.items() if name != "host"} == {**expected, "x-extra": "e"}
    assert "mine" not in str(second)
    assert ("sk-real-new" in str(second)) is bool(expected)


async def test_a_streamed_body_keeps_its_framing() -> None:
    """A body that comes in pieces goes up chunked, or with the length that the client gave."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b"def"

    async with origin(answer(b"ok")) as there, upstream(there.url) as (found, _):
        await ask(found, RequestHead("POST", "/v1/files", ()), pieces())
        await ask(found, RequestHead("POST", "/v1/files", (("Content-Length", "6"),)), pieces())
    assert [seen.body for seen in there.requests] == [b"abcdef", b"abcdef"]
    assert [seen.header("transfer-encoding") for seen in there.requests] == ["chunked", None]


async def test_an_answer_comes_in_its_own_encoding() -> None:
    """Bytes are not decompressed."""
    talk = answer(b"\x1f\x8bxyz", "Content-Encoding: gzip")
    async with origin(talk) as there, upstream(there.url) as (found, _):
        assert await ask(found) == b"\x1f\x8bxyz"


async def test_redirects_and_cookies_are_the_clients_to_follow() -> None:
    """A redirect passes as it is, and a cookie that was set is not sent back."""
    talk = answer(b"", "Location: /elsewhere", "Set-Cookie: a=b", status="307 Temporary Redirect")
    async with origin(talk) as there, upstream(there.url) as (found, _):
        for _number in range(2):
            async with found.request(HEAD, b"{}", governed=True) as got:
                assert got.status == 307
    assert [seen.header("cookie") for seen in there.requests] == [None, None]


async def failure(there: Origin | str, kind: str, status: int, **settings: Any) -> None:
    url = there if isinstance(there, str) else there.url
    async with upstream(url, **settings) as (found, errors):
        with pytest.raises(UpstreamError) as caught:
            await ask(found)
    assert (caught.value.kind, caught.value.status, errors) == (kind, status, [kind])


async def silent(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def begun(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
    await reader.read()


async def closed(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def broken(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    writer.close()


async def test_a_refused_connection_is_a_502() -> None:
    """Nobody listens: 502, connect."""
    async with origin(silent) as there:
        url = there.url
    await failure(url, "connect", 502)


async def test_no_answer_in_time_is_a_504() -> None:
    """The first byte has a limit on a governed request."""
    async with origin(silent) as there:
        await failure(there, "timeout", 504, timeouts={"firstByte": "50ms"})


async def test_silence_within_an_answer_is_a_504() -> None:
    """Each wait within an answer has a limit on a governed request."""
    async with origin(begun) as there:
        await failure(there, "timeout", 504, timeouts={"idle": "50ms"})


@pytest.mark.parametrize("talk", [closed, broken])
async def test_a_connection_that_breaks_off_is_a_502(talk: Any) -> None:
    """Before an answer or within one: 502, reset."""
    async with origin(talk) as there:
        await failure(there, "reset", 502)


async def test_bytes_that_are_not_http_are_a_502() -> None:
    """What cannot be read as HTTP: 502, protocol."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0 who are you\r\n\r\n")

    async with origin(talk) as there:
        await failure(there, "protocol", 502)


async def test_protocols_that_are_switched_unasked_are_a_502() -> None:
    """A 101 that nobody asked for is no answer."""

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")

    async with origin(talk) as there:
        await failure(there, "protocol", 502)


async def test_a_clients_broken_body_is_not_the_upstreams_failure() -> None:
    """What the client's own body raises is what comes out, and counts as no upstream error."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"
        raise RequestError("the body broke off")

    async with origin(answer(b"ok")) as there, upstream(there.url) as (found, errors):
        with pytest.raises(RequestError):
            await ask(found, RequestHead("POST", "/v1/files", ()), pieces())
    assert errors == []


async def test_leaving_ends_the_request() -> None:
    """The upstream sees the connection end when its answer is left in the middle."""
    gone = asyncio.Event()

    async def talk(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await reader.read()
        gone.set()

    async with origin(talk) as there, upstream(there.url) as (found, _):
        async with found.request(HEAD, b"{}", governed=True) as got:
            assert await anext(got.pieces()) == b"abc"
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_private_authority_and_a_client_certificate_are_used(tmp_path: Path) -> None:
    """caFile is trusted, clientCert is shown, and without caFile the server is not believed."""
    authority = Authority(tmp_path)
    server, mine = authority.issue("localhost"), authority.issue("client")
    context = server.server_context(ask_client_for=authority.file)
    async with origin(answer(b"ok"), tls=context) as there:
        url = f"https://localhost:{there.port}/v1"
        certificate = {"certFile": str(mine.cert), "keyFile": str(mine.key)}
        async with upstream(url, caFile=str(authority.file), clientCert=certificate) as (found, _):
            assert await ask(found) == b"ok"
        await failure(url, "connect", 502)


async def test_an_http_proxy_of_the_environment_is_used(tmp_path: Path) -> None:
    """HTTPS_PROXY is asked to connect to the upstream's name, with the credentials of its URL."""
    server = (authority := Authority(tmp_path)).issue("upstream.test")
    asked: list[Seen] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = await read_head(reader)
        assert seen is not None
        asked.append(seen)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(4096):
                    target.write(data)
            finally:
                target.close()

        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer), return_exceptions=True)

    async with origin(answer(b"ok"), tls=server.server_context()) as there:
        proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
        address = f"http://me:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        environ = {"HTTPS_PROXY": address, "NO_PROXY": "other.test"}
        async with upstream("https://upstream.test/v1", environ=environ, caFile=str(authority.file)) as (found, _):
            assert await ask(found) == b"ok"
        proxy.close()
        await proxy.wait_closed()
    assert [seen.line for seen in asked] == ["CONNECT upstream.test:443 HTTP/1.1"]
    assert asked[0].header("proxy-authorization") == "Basic bWU6c2VjcmV0"
    assert there.requests[0].header("host") == "upstream.test"
    assert there.requests[0].header("proxy-authorization") is None
