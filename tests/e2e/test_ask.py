"""`ask`, with decisions in Rego: chat and responses, whole and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp.test_utils
import pytest
from aiohttp import web

from tests.e2e import responses
from tests.e2e.chat import A, B, answer, blocked, body, call, events, history, result, said, stream, user
from tests.e2e.sidecall import Sidecall, pinging, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream

if TYPE_CHECKING:
    from tests.e2e.opa import Agent

pytest.importorskip("regopy")

MODULE = """
package tools

default decision := {"action": "next"}

decision := {"action": "block", "message": sprintf("%v is too much for %v", [input.args.amount, input.user])} if {
    input.tool == "pay"
    input.args.amount > 100
}

decision := {"action": "rewrite", "args": object.union(input.args, {"checked": true})} if {
    input.tool == "pay"
    input.args.amount > 50
    input.args.amount <= 100
}

decision := {"action": "answer", "content": "It is noon."} if input.tool == "clock"

decision := {"action": "block", "message": "one at a time"} if {
    input.tool == "send"
    input.batch.size > 1
}

allow if input.tool == "pay"
allow if input.client == "team"
"""
UNEVALUATED = "the rule could not be evaluated"
TOOLS = ("pay", "clock", "send", "search")


@pytest.fixture
async def opa() -> AsyncIterator[Agent]:
    from tests.e2e.opa import agent  # the interpreter of Rego may not be there

    async with agent(MODULE) as running:
        yield running


@pytest.fixture
async def asking(upstream: FakeUpstream, opa: Agent, tmp_path: Path) -> AsyncIterator[Sidecall]:
    """Two rules: one document gives objects, the other true or nothing at all."""
    rules = [
        rule("opa", "pay", "clock", "send", ask={"url": f"{opa.url}tools/decision"}),
        rule("allow", "pay", "search", ask={"url": f"{opa.url}tools/allow"}),
    ]
    async with sidecall(upstream.url, policies=[policy(tmp_path, *rules)]) as running:
        yield running


async def test_rego_decides(asking: Sidecall, upstream: FakeUpstream) -> None:
    """What it blocks, answers and leaves undefined is held; what it rewrites goes on to the next rule."""
    calls = [call(A, "pay", amount=700), call(B, "pay", amount=70, to="x")]
    upstream.script(answer(*calls))
    first = await asking.post(body(tools=TOOLS, user="ann"))
    (made,) = first.message["tool_calls"]
    assert made["function"] == {"name": "pay", "arguments": '{"amount":70,"checked":true,"to":"x"}'}
    upstream.script(answer(text="done"))
    await asking.post(body(user(), said(made), result(B, "paid"), tools=TOOLS, user="ann"))
    assert history(upstream.last)[2] == result(A, blocked("700 is too much for ann", "opa"))
    upstream.script(answer(call(A, "clock"), call(B, "search")), answer(text="done"))
    await asking.post(body(tools=TOOLS))
    assert history(upstream.last)[2:] == [result(A, "It is noon."), result(B, blocked(UNEVALUATED, "allow"))]
    lines = [line for line in asking.lines if line["message"] == "a decision could not be had"]
    assert [line["reason"] for line in lines] == ["the service's answer has no result: the decision is undefined"]
    assert asking.value("policy_errors_total", policy="p", rule="allow") == 1


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_the_batch_is_told(api: str, streams: bool, asking: Sidecall, upstream: FakeUpstream, opa: Agent) -> None:
    """Also in a stream, where a decision that depends on it waits for its end."""
    if api == "chat":
        calls = [call(A, "send"), call(B, "free")]
        upstream.script(stream(*calls) if streams else answer(*calls))
        got = await asking.post(body(tools=(*TOOLS, "free"), stream=streams))
        names = [made["function"]["name"] for made in (got.assembled() if streams else got.message)["tool_calls"]]
    else:
        items = [responses.call(A, "send"), responses.call(B, "free")]
        upstream.script(responses.stream(*items) if streams else responses.whole(*items))
        sent = responses.body("hi", tools=(*TOOLS, "free"), stream=streams)
        got = await asking.post(sent, path=responses.PATH)
        names = [item["name"] for item in responses.answer_of(got).items]
    assert (got.status, names) == (200, ["free"])
    (told,) = opa.inputs
    assert told["batch"] == {"size": 2, "index": 0, "tools": ["send", "free"]}
    assert (told["api"], told["owner"], told["declared"], told["args"]) == (api, "client", True, {})


async def test_a_stream_goes_on_while_a_service_thinks(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Text behind the call reaches the client, and then comments, until the decision comes."""
    asked, decide = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.Response:
        asked.set()
        await decide.wait()
        return web.json_response({"result": True})

    made = events(call(A, "pay", amount=1), text="Let me see.")
    upstream.script(Events(made))
    async with aiohttp.test_utils.RawTestServer(slow) as service:
        path = policy(tmp_path, rule("slow", "pay", ask={"url": str(service.make_url("/v1/data/a"))}))
        async with sidecall(upstream.url, policies=[path], services=pinging(0.02)) as here:
            sent = body(tools=TOOLS, stream=True)
            async with here.session.post(f"{here.url}/v1/chat/completions", json=sent) as got:
                found = b""
                while found.count(b": waiting\n") < 3:
                    found += await got.content.readany()
                assert asked.is_set()
                assert b"see." in found
                assert b"pay" not in found
                decide.set()
                found += await got.content.read()
            assert b'"pay"' in found
            assert found.rstrip().endswith(b"data: [DONE]")
            (request,) = here.requests()
            assert request["calls"] == 1


@pytest.mark.parametrize(("on_error", "held"), [("fail", True), ("next", False)])
async def test_a_service_that_is_late(on_error: str, held: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """The call is blocked, or the next rule is tried; nobody waits longer than the rule says."""

    async def never(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    upstream.script(answer(call(A, "pay")), answer(text="done"))
    async with aiohttp.test_utils.RawTestServer(never) as service:
        ask: dict[str, Any] = {"url": str(service.make_url("/v1/data/a")), "timeout": "50ms", "onError": on_error}
        async with sidecall(upstream.url, policies=[policy(tmp_path, rule("late", "pay", ask=ask))]) as here:
            got = await here.post(body(tools=TOOLS))
    assert (got.message.get("tool_calls") is None) is held
    if held:
        assert history(upstream.last)[-1] == result(A, blocked(UNEVALUATED, "late"))
