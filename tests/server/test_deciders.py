"""Services and Python objects that decide: what they are asked, and what becomes of their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp.test_utils
import pytest
from aiohttp import web

from proxy.core.calls import Api, Batch, Owner, RequestFacts, Tenant
from proxy.core.jsontext import parse_exact
from proxy.core.policy.consults import (
    AskCode,
    AskCodeOfResult,
    AskService,
    CallAsSeen,
    Course,
    NewText,
    Ruling,
    Unanswered,
)
from proxy.core.policy.verdicts import RuleName
from proxy.server.deciders import Deciders
from proxy.server.logs import Log
from proxy.tools.code import load_code
from tests.tools import house_rules

RULE = RuleName("p", "r")
FACTS = RequestFacts(model="gpt", api=Api.CHAT, headers={"a": "b"}, metadata={"x": [1]}, tenant=Tenant("t"))
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def seen(name: str = "pay", text: str = '{"amount": 1.10}') -> CallAsSeen:
    value = parse_exact(text).value
    arguments = value if isinstance(value, dict) else None
    return CallAsSeen("call_1", name, "", arguments, text, Owner.CLIENT, True, Batch(1, 0, (name,)), FACTS)


class Here:
    """The deciders of a test, and the lines that they logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        write = lambda line: self.lines.append(json.loads(line))  # noqa: E731
        self.deciders = Deciders(Log(level="info", clock=lambda: 0.0, write=write))

    async def ask(self, url: str, seconds: float = 5.0, call: CallAsSeen | None = None) -> Ruling | Unanswered:
        return await self.deciders.ask_service(AskService(RULE, url, seconds, call or seen()))

    async def of_call(self, target: str, call: CallAsSeen) -> Ruling | Unanswered:
        code = load_code(f"tests.tools.house_rules:{target}")
        return await self.deciders.ask_of_call(code, AskCode(RULE, target, call))

    async def of_result(self, target: str, result: str) -> NewText | Unanswered:
        code = load_code(f"tests.tools.house_rules:{target}")
        return await self.deciders.ask_of_result(code, AskCodeOfResult(RULE, target, seen(), result))


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    found = Here()
    yield found
    await found.deciders.close()


@asynccontextmanager
async def service(handler: Handler) -> AsyncIterator[str]:
    """A service on loopback; the URL of one of its documents."""
    server = aiohttp.test_utils.RawTestServer(handler)
    async with server:
        yield str(server.make_url("/v1/data/tools?pretty=%20"))


def saying(body: Any, status: int = 200, **headers: str) -> Handler:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def handler(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(body=data, status=status, headers=headers)

    return handler


# ---------------------------------------------------------------- services


async def test_a_service_is_asked_to_the_letter(here: Here) -> None:
    """One POST of `{"input": …}`, its numbers as the model spelled them; nothing of the client but what is listed."""
    asked: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        headers = {k.lower(): v for k, v in request.headers.items()}
        asked.append((request.method, request.raw_path, await request.read(), headers))
        return web.json_response({"result": {"action": "block", "message": "no"}, "decision_id": "1"})

    async with service(handler) as url:
        assert await here.ask(url) == Ruling(Course.BLOCK, "no")
    ((method, path, body, headers),) = asked
    assert (method, path) == ("POST", "/v1/data/tools?pretty=%20")
    assert b'"args":{"amount":1.10}' in body
    assert json.loads(body).keys() == {"input"}
    assert headers.keys() <= {
        *("host", "content-type", "content-length", "accept", "accept-encoding", "user-agent", "connection"),
    }
    assert headers["content-type"] == "application/json"
    assert here.lines == []


async def test_connections_are_kept(here: Here) -> None:
    """Many questions, one connection."""
    connections = set()

    async def handler(request: web.BaseRequest) -> web.Response:
        connections.add(id(request.transport))
        return web.json_response({"result": True})

    async with service(handler) as url:
        for _ in range(5):
            assert await here.ask(url) == Ruling(Course.ALLOW)
        assert len(connections) == 1


async def test_a_connection_that_breaks_is_tried_once_more(here: Here) -> None:
    """A question changes nothing, so that it may be asked again; a service that breaks off twice gives no answer."""
    broken = 0

    async def handler(request: web.BaseRequest) -> web.Response:
        nonlocal broken
        if broken:
            broken -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"result": True})

    async with service(handler) as url:
        broken = 1
        assert await here.ask(url) == Ruling(Course.ALLOW)
        broken = 2
        assert await here.ask(url) == Unanswered("the service cannot be asked: ServerDisconnectedError")


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (saying({}), "has no result: the decision is undefined"),
        (saying({"decision_id": "1"}), "undefined"),
        (saying({"result": None}), "neither an object nor true or false"),
        (saying({"result": {"action": "permit"}}), "no action that is known"),
        (saying({"result": True}, 500), "HTTP status 500"),
        (saying({"result": True}, 302, location="/v1/data/tools"), "HTTP status 302"),
        (saying({"result": True}, 204), "HTTP status 204"),
        (saying(b"allow"), "is no JSON"),
        (saying(b'{"result": true} x'), "no plain JSON object"),
        (saying(b'{"result": false, "result": true}'), "no plain JSON object"),
        (saying(b"[true]"), "no plain JSON object"),
        (saying(b'{"result": ' + b"[" * 200 + b"]" * 200 + b"}"), "nests too deep"),
        (saying(b'{"result": true, "x": "' + b"x" * (1 << 20) + b'"}'), "longer than 1048576 bytes"),
        (saying(b"\xff"), "is no JSON"),
    ],
)
async def test_what_is_no_decision(handler: Handler, why: str, here: Here) -> None:
    """Nothing of it is guessed, and the log says why."""
    async with service(handler) as url:
        reply = await here.ask(url)
    assert isinstance(reply, Unanswered)
    assert why in reply.reason
    assert [(line["policy"], line["rule"], line["reason"]) for line in here.lines] == [("p", "r", reply.reason)]


async def test_a_service_that_takes_its_time(here: Here) -> None:
    """The time is for the whole answer, not for its head alone."""
    gate = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"result": ')
        await gate.wait()
        return response

    async with service(handler) as url:
        assert await here.ask(url, 0.05) == Unanswered("the service did not answer in time")
        gate.set()


async def test_a_service_that_is_not_there(here: Here, unused_tcp_port: int) -> None:
    """It is no decision, and its address is not told to anybody but the operator's own files."""
    reply = await here.ask(f"http://127.0.0.1:{unused_tcp_port}/v1/data/secret-path")
    assert reply == Unanswered("the service cannot be asked: ClientConnectorError")
    assert "secret-path" not in json.dumps(here.lines)


# ---------------------------------------------------------------- Python objects


@pytest.mark.parametrize(
    ("do", "reply"),
    [
        ("nothing", Ruling(Course.NEXT)),
        ("allow", Ruling(Course.ALLOW)),
        ("block", Ruling(Course.BLOCK, "Not in this house.")),
        ("answer", Ruling(Course.ANSWER, content="42")),
        ("rewrite", Ruling(Course.REWRITE, arguments={"do": "rewritten"})),
        ("raise", Unanswered("it raised RuntimeError")),
        ("odd", Unanswered("it returned dict, or one with parts that do not fit")),
        ("class", Unanswered("it returned type, or one with parts that do not fit")),
    ],
)
async def test_what_an_object_says_of_a_call(do: str, reply: Ruling | Unanswered, here: Here) -> None:
    """Its values are decisions; anything else, and what it raises, is none."""
    assert await here.of_call("scripted", seen(text=json.dumps({"do": do}))) == reply
    assert "a secret of the house" not in json.dumps(here.lines)


async def test_what_an_object_is_shown(here: Here) -> None:
    """A copy of the call and of the request: nothing that it does to that changes the call."""
    call = seen(text='{"do": "mutate", "deep": [10000000000000000000001]}')
    house_rules.asked.clear()
    assert await here.of_call("scripted", call) == Ruling(Course.NEXT)
    ((shown, _),) = house_rules.asked
    assert call.arguments == {"do": "mutate", "deep": [10000000000000000000001]}
    assert shown.args == {"do": "mutate", "deep": [10000000000000000000001, 1]}
    assert (shown.name, shown.call_id, shown.raw_args, shown.owner) == ("pay", "call_1", call.raw, "client")
    assert (shown.model, shown.api, shown.tenant, shown.headers, shown.metadata) == (
        *("gpt", "chat", "t", {"a": "b"}),
        {"x": [1]},
    )
    assert shown.metadata is not FACTS.metadata
    house_rules.asked.clear()
    await here.of_call("scripted", seen(text="[1]"))
    assert (house_rules.asked[0][0].args, house_rules.asked[0][0].raw_args) == (None, "[1]")


@pytest.mark.parametrize(
    ("target", "result", "reply"),
    [
        ("scripted", "quiet", NewText(None)),
        ("scripted", "loud", NewText("LOUD")),
        ("scripted", "raise", Unanswered("it raised KeyError")),
        ("scripted", "odd", Unanswered("it returned int, where a text or None was expected")),
        ("coroutines", "x", NewText("x!")),
        ("late", "x", NewText("late x")),
        ("slow", "x", Unanswered("there is no such object")),
    ],
)
async def test_what_an_object_says_of_a_result(
    target: str, result: str, reply: NewText | Unanswered, here: Here
) -> None:
    """Another text, or the same; coroutines too."""
    assert await here.of_result(target, result) == reply


async def test_coroutines_decide_too(here: Here) -> None:
    """Both what they give and what they raise."""
    assert await here.of_call("coroutines", seen()) == Ruling(Course.BLOCK, "Async.")
    assert await here.of_call("coroutines", seen("raise")) == Unanswered("it raised LookupError")


async def test_an_object_that_is_gone(here: Here) -> None:
    """A rule without its object decides nothing."""
    asked = AskCode(RULE, "x:y", seen())
    assert await here.deciders.ask_of_call(None, asked) == Unanswered("there is no such object")


async def test_slow_functions_are_bounded_and_stop_nobody(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns while they wait; so many run at once, and the others when these have ended."""
    slow = house_rules.Slow()
    monkeypatch.setattr(house_rules, "slow", slow)
    work = [asyncio.ensure_future(here.of_call("slow", seen())) for _ in range(70)]
    for _ in range(64):
        assert await asyncio.to_thread(slow.begun.acquire, timeout=10)
    assert not slow.begun.acquire(blocking=False)
    assert await here.of_call("coroutines", seen()) == Ruling(Course.BLOCK, "Async.")
    slow.gate.set()
    assert await asyncio.gather(*work) == [Ruling(Course.ALLOW)] * 70
