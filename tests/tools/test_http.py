"""Proxy tools that are HTTP requests."""

from __future__ import annotations

import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from proxy.core.jsontext import Object, parse_exact
from proxy.tools.http import open_session, run_request
from proxy.tools.spec import HttpBackend, RunKind, ToolRun, ToolRunError
from proxy.tools.urltemplate import parse_template

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers every request as `answer` says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Handler = self._ok
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._prepare)
        self.typed = True
        self.server = TestServer(app)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.method, request.raw_path, headers, await request.read()))
        return await self.answer(request)

    async def _ok(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _prepare(self, _: web.Request, response: web.StreamResponse) -> None:
        if not self.typed:
            response.headers.popall("content-type", None)

    def always(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Without headers the answer has no content type either."""

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body, status=status, headers=headers)

        self.answer = answer
        self.typed = headers is not None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def headers(self) -> dict[str, str]:
        return self.requests[-1][2]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    await served.server.start_server()
    yield served
    await served.server.close()


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with open_session() as opened:
        yield opened


RUN = ToolRun("call_1", {}, "team-a", "key-1", "00-1-2-01", "tenant")


def backend(server: Server, method: str = "POST", path: str = "/x", **headers: str) -> HttpBackend:
    values = tuple((name.replace("_", "-"), lambda value=value: value) for name, value in headers.items())
    return HttpBackend(method, parse_template(server.origin + path), values, 5.0)


def with_arguments(arguments: Object) -> ToolRun:
    return replace(RUN, arguments=arguments)


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_arguments_that_the_url_does_not_use_become_the_query(
    method: str, server: Server, session: ClientSession
) -> None:
    """For methods without a body."""
    run = with_arguments({"id": "a/b", "q": "a b&c"})
    await run_request(session, backend(server, method, "/orders/{id}"), run, most=1000)
    assert server.requests[-1][:2] == (method, "/orders/a%2Fb?q=a%20b%26c")
    assert server.requests[-1][3] == b""
    assert "content-type" not in server.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_arguments_that_the_url_does_not_use_become_the_body(
    method: str, server: Server, session: ClientSession
) -> None:
    """As JSON, with numbers as the model spelled them."""
    arguments = parse_exact('{"id":"7","price":1.10,"n":12345678901234567890123,"s":"é"}').value
    assert isinstance(arguments, dict)
    await run_request(session, backend(server, method, "/orders/{id}"), with_arguments(arguments), most=1000)
    assert server.requests[-1][:2] == (method, "/orders/7")
    assert server.requests[-1][3] == '{"price":1.10,"n":12345678901234567890123,"s":"é"}'.encode()
    assert server.headers["content-type"] == "application/json"


async def test_without_arguments_the_body_is_an_empty_object(server: Server, session: ClientSession) -> None:
    """A server that wants JSON gets JSON."""
    await run_request(session, backend(server), RUN, most=1000)
    assert server.requests[-1][3] == b"{}"


async def test_a_tool_is_told_for_whom_it_acts(server: Server, session: ClientSession) -> None:
    """Beside the configured headers, which cannot say otherwise."""
    tool = backend(server, authorization="Bearer t", X_Sidecall_Client="forged", Idempotency_Key="forged")
    await run_request(session, tool, RUN, most=1000)
    sent = server.headers
    assert (sent["authorization"], sent["x-sidecall-client"]) == ("Bearer t", "team-a")
    assert (sent["idempotency-key"], sent["traceparent"]) == ("key-1", "00-1-2-01")
    await run_request(session, tool, replace(RUN, client="", traceparent=""), most=1000)
    assert not {"x-sidecall-client", "traceparent"} & server.headers.keys()


async def test_a_header_is_read_at_each_run(server: Server, session: ClientSession) -> None:
    """Secrets change while the proxy runs."""
    values = iter(["old", "new"])
    tool = replace(backend(server), headers=(("x-token", lambda: next(values)),))
    for value in ("old", "new"):
        await run_request(session, tool, RUN, most=1000)
        assert server.headers["x-token"] == value


async def test_cookies_are_not_kept(server: Server, session: ClientSession) -> None:
    """Runs for one tenant leave nothing for another."""
    server.always(b"ok", headers={"set-cookie": "a=1; Path=/"})
    for _ in range(2):
        await run_request(session, backend(server), RUN, most=1000)
    assert "cookie" not in server.headers


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"ok", "text/plain", "ok"),
        ("é".encode("latin-1"), "text/plain; charset=latin-1", "é"),
        ("é".encode(), "text/plain; charset=no-such", "é"),
        ("é".encode(), "text/plain; charset=base64", "é"),
        (b"\xff", "text/plain", "\ufffd"),
        (b'{"a": 1.10}', "application/json", '{"a": 1.10}'),
        (b'{"a":1}', "application/problem+json", '{"a":1}'),
        (b"<a/>", "image/svg+xml", "<a/>"),
        (b"ok", None, "ok"),
        ("é".encode(), None, "é"),
        (b"", "image/png", ""),
        (b"", None, ""),
        (b"\x89PNG", "image/png", "(binary result, image/png, 4 bytes)"),
        (b"text", "application/octet-stream", "(binary result, application/octet-stream, 4 bytes)"),
        (b"\xff\xfe", None, "(binary result, of unknown type, 2 bytes)"),
        (b"a\0b", None, "(binary result, of unknown type, 3 bytes)"),
    ],
)
async def test_text_and_json_are_given_as_they_came_and_the_rest_as_a_note(
    body: bytes, kind: str | None, text: str, server: Server, session: ClientSession
) -> None:
    """A body without a type is text where it reads as text."""
    server.always(body, headers={"content-type": kind} if kind else None)
    assert await run_request(session, backend(server), RUN, most=1000) == (text, False)


async def test_an_answer_is_read_little_further_than_its_bound(server: Server, session: ClientSession) -> None:
    """Also one that never ends, and one that unfolds from a few compressed bytes."""

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    server.answer = endless
    text, more = await run_request(session, backend(server), RUN, most=1000)
    assert more
    assert 1000 < len(text) < 1 << 22
    bomb = zlib.compress(b"x" * (64 << 20))
    server.always(bomb, headers={"content-type": "text/plain", "content-encoding": "deflate"})
    text, more = await run_request(session, backend(server), RUN, most=1000)
    assert more
    assert 1000 < len(text) < 1 << 22


async def test_a_long_binary_answer_is_a_note_with_its_size(server: Server, session: ClientSession) -> None:
    """The size is that which the server told."""
    server.always(b"\0" * 300_000, headers={"content-type": "image/png"})
    told = await run_request(session, backend(server), RUN, most=1000)
    assert told == ("(binary result, image/png, 300000 bytes)", False)


async def failure(session: ClientSession, tool: HttpBackend, run: ToolRun = RUN) -> tuple[RunKind, str]:
    with pytest.raises(ToolRunError) as caught:
        await run_request(session, tool, run, most=1000)
    return caught.value.kind, caught.value.reason


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_an_http_error_is_told_by_its_status_alone(status: int, server: Server, session: ClientSession) -> None:
    """What its body says may be anything."""
    server.always(b"Traceback: password=hunter2", status, {"content-type": "text/plain"})
    kind, reason = await failure(session, backend(server))
    assert kind is RunKind.HTTP
    assert str(status) in reason
    assert "hunter2" not in reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, server: Server, session: ClientSession) -> None:
    """It would choose another host."""
    server.always(b"", status, {"location": f"{server.origin}/elsewhere"})
    kind, reason = await failure(session, backend(server, "GET"))
    assert (kind, len(server.requests)) == (RunKind.HTTP, 1)
    assert "redirect" in reason


async def test_arguments_that_do_not_fit_reach_no_server(server: Server, session: ClientSession) -> None:
    """The model is told which argument it is."""
    tool = backend(server, "GET", "/orders/{id}")
    assert await failure(session, tool) == (RunKind.ARGUMENTS, "the argument id is missing")
    kind, _ = await failure(session, tool, with_arguments({"id": "7", "q": "\ud800"}))
    assert (kind, server.requests) == (RunKind.ARGUMENTS, [])


async def test_a_server_that_cannot_be_reached_is_told_without_its_address(session: ClientSession) -> None:
    """The model has no use for hosts and ports of the inside."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tool = HttpBackend("GET", parse_template(f"http://127.0.0.1:{taken.getsockname()[1]}/x"), (), 5.0)
        kind, reason = await failure(session, tool)
    assert (kind, reason) == (RunKind.CONNECT, "its server could not be reached")


async def test_a_server_without_tls_is_told_as_such(server: Server, session: ClientSession) -> None:
    """An https URL needs a server that speaks it."""
    tool = replace(backend(server), url=parse_template(server.origin.replace("http", "https")))
    assert await failure(session, tool) == (RunKind.CONNECT, "no secure connection to its server could be made")


async def test_a_connection_that_breaks_off_is_told_as_such(server: Server, session: ClientSession) -> None:
    """Before or within the answer."""

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/plain", "content-length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = cut
    assert await failure(session, backend(server)) == (RunKind.CONNECT, "the connection to its server broke off")
