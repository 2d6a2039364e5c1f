"""HTTP below a session: what fails is an answer to one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from proxy.tools import mcp_http
from proxy.tools.mcp_http import STATUS, UNFINISHED, UNREADABLE, ServerTransport
from proxy.tools.mcp_process import UNDELIVERED
from proxy.tools.mcp_spec import McpUrl

SESSION = {"mcp-session-id": "s"}
Answering = Callable[[httpx2.Request], httpx2.Response]


class Net:
    """A transport in front of `answer`, which may raise."""

    def __init__(self, answer: Answering, *, token: Callable[[], str] = lambda: "t") -> None:
        self.losses = 0
        headers = (("Authorization", token),)
        inner = httpx2.MockTransport(answer)
        self.client = httpx2.AsyncClient(
            transport=ServerTransport(inner, McpUrl("http://h/mcp", headers), lost=self.lose)
        )

    def lose(self) -> None:
        self.losses += 1

    async def post(self, **headers: str) -> httpx2.Response:
        request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        return await self.client.post(
            "http://h/mcp", json=request, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    async def code(self, **headers: str) -> int:
        """The code of the error that is given in the server's place."""
        answer = json.loads((await self.post(**headers)).content)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
        code: int = answer["error"]["code"]
        return code


def raising(error: Exception) -> Answering:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise error

    return answer


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed = True


def streamed(*pieces: bytes | Exception, kind: str = "application/json", **headers: str) -> Answering:
    return lambda request: httpx2.Response(200, stream=Pieces(*pieces), headers={"content-type": kind, **headers})


async def test_configured_headers_are_asked_for_at_each_request() -> None:
    """A secret may change."""
    tokens = iter(["one", "two"])
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["authorization"])
        return httpx2.Response(202)

    net = Net(answer, token=lambda: next(tokens))
    assert [(await net.post()).status_code for _ in range(2)] == [202, 202]
    assert seen == ["one", "two"]


async def test_an_answer_reaches_its_reader_as_it_came() -> None:
    """Whole when it is a piece, and the id of a session with it."""
    net = Net(lambda r: httpx2.Response(200, json={"result": 1}, headers={"Mcp-Session-Id": "s", "x-other": "o"}))
    got = await net.post()
    assert (got.json(), got.headers["mcp-session-id"], "x-other" in got.headers) == ({"result": 1}, "s", False)
    assert net.losses == 0


async def test_a_stream_is_not_held() -> None:
    """Its pieces come one by one, however many there are."""
    net = Net(streamed(b"data: 1\n\n", httpx2.ReadError("later"), kind="text/event-stream"))
    async with net.client.stream("POST", "http://h/mcp", json={}) as got:
        pieces = aiter(got.aiter_raw())
        assert await anext(pieces) == b"data: 1\n\n"


@pytest.mark.parametrize("error", [httpx2.ConnectError("refused"), httpx2.ConnectTimeout("late")])
async def test_a_server_that_is_not_there_never_had_the_request(error: Exception) -> None:
    """The session is lost, and the call may be sent again."""
    net = Net(raising(error))
    assert (await net.code(), net.losses) == (UNDELIVERED, 1)
    with pytest.raises(type(error)):
        await net.client.get("http://h/mcp")


async def test_a_connection_that_breaks_may_have_carried_the_request() -> None:
    """Others in the same session go on."""
    net = Net(raising(httpx2.RemoteProtocolError("gone")))
    assert (await net.code(), net.losses) == (UNFINISHED, 0)
    with pytest.raises(httpx2.RemoteProtocolError):
        await net.client.get("http://h/mcp")


async def test_a_body_that_breaks_off_is_no_body() -> None:
    """Nor is half of one believed."""
    assert await Net(streamed(b"{", httpx2.ReadError("gone"))).code() == UNFINISHED


async def test_a_session_that_the_server_does_not_know_is_lost() -> None:
    """It never began; without a session a 404 is just an error."""
    net = Net(lambda r: httpx2.Response(404, json={"error": {"code": -32600}}))
    assert (await net.code(mcp_session_id="s"), net.losses) == (UNDELIVERED, 1)
    plain = Net(lambda r: httpx2.Response(404))
    assert (await plain.code(), plain.losses) == (STATUS, 0)


async def test_an_http_error_is_told_by_its_status() -> None:
    """Not by its body, which may hold anything; an error of the protocol passes."""
    got = await Net(lambda r: httpx2.Response(503, text="Traceback: hunter2")).post()
    assert got.json()["error"] == {"code": STATUS, "message": "no answer", "data": 503}
    told = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "q is missing"}}
    assert (await Net(lambda r: httpx2.Response(400, json=told)).post()).json() == told
    assert await Net(lambda r: httpx2.Response(401, json={"error": "no"})).code() == STATUS


async def test_a_body_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """And closed then."""
    monkeypatch.setattr(mcp_http, "MESSAGE_BYTES", 10)
    stream = Pieces(b"12345", b"67890", b"1", AssertionError("read beyond"))
    net = Net(lambda r: httpx2.Response(200, stream=stream, headers={"content-type": "application/json"}))
    assert (await net.code(), stream.closed) == (UNREADABLE, True)


async def test_a_compressed_body_is_not_read() -> None:
    """It was not asked for, and may be larger than it looks."""
    assert await Net(streamed(b"x", **{"content-encoding": "gzip"})).code() == UNREADABLE


async def test_goodbye_is_said_to_a_session_that_there_is() -> None:
    """Nobody waits for one that is lost."""
    methods: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        return httpx2.Response(204 if request.method == "DELETE" else 404)

    net = Net(answer)
    await net.client.delete("http://h/mcp", headers=SESSION)
    await net.post(mcp_session_id="s")
    assert (await net.client.delete("http://h/mcp", headers=SESSION)).status_code == 204
    assert methods == ["DELETE", "POST"]


async def test_goodbye_does_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer it is left."""
    monkeypatch.setattr(mcp_http, "_GOODBYE_SECONDS", 0.01)

    async def never(request: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    transport = ServerTransport(httpx2.MockTransport(never), McpUrl("http://h/mcp", ()), lost=lambda: None)
    async with httpx2.AsyncClient(transport=transport) as client:
        assert (await client.delete("http://h/mcp")).status_code == 204


async def test_a_client_asks_for_nothing_compressed_and_waits_as_long_as_calls_do() -> None:
    """Its time limits are those of the calls."""
    async with await mcp_http.open_client(McpUrl("http://h/mcp", ()), lost=lambda: None) as client:
        assert client.headers["accept-encoding"] == "identity"
        assert (client.timeout.read, client.timeout.connect) == (None, 10.0)
