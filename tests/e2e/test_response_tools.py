"""Proxy tools behind responses: when they run, how often, and what a client that asks again finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.gate import Gate, eventually
from tests.e2e.manners import Client, all_manners, both
from tests.e2e.responses import (
    USAGE,
    A,
    B,
    C,
    D,
    Item,
    answer_of,
    body,
    call,
    message,
    output,
    plain,
    reasoning,
    stream,
    user,
    whole,
)
from tests.e2e.sidecall import pinging, policy, rule, sidecall
from tests.fake_upstream import Asked, Cut, FakeUpstream, Whole

MIXED = [reasoning(1, "one"), call(A, "count", n=1), call(B, "search", q="x")]
TOOLS = ("search", "send")


async def echo(asked: Asked) -> str:
    return str(asked.json["n"])


@both
@all_manners
async def test_a_tool_runs_when_its_batch_comes_back(
    streams: bool, manner: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Once, however often the client sends its request; its result is the same on every later turn."""
    for said in (MIXED, [message("done", 1)], [message("done", 2)], [message("bye", 3)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        client = Client(here, manner, streams, tools=TOOLS)
        await client.say(user())
        assert here.value("deferred_calls") == 1
        assert not upstream.runs["count"]
        if manner != "conversation":  # there is no asking twice in one
            await client.send(output(B, "found"))
        else:
            endpoint.turns.pop(0)
        await client.say(output(B, "found"))
        await client.say(user("more"))
        assert here.value("deferred_calls") == 0
    assert len(upstream.runs["count"]) == 1
    seen = [user(), *MIXED, output(A, "1"), output(B, "found")]
    assert all(plain(found[: len(seen)]) == plain(seen) for found in endpoint.seen[1:])


@both
@all_manners
async def test_tools_alone_are_run_in_hidden_rounds(
    streams: bool, manner: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The client sees the text and nothing of the calls; the next turn has them again."""
    rounds = [[reasoning(1, "one"), call(A, "count", n=1), call(B, "count", n=2)], [call(C, "count", n=3)]]
    for said in (*rounds, [message("six", 1)], [message("bye", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        client = Client(here, manner, streams, tools=TOOLS)
        answer = await client.say(user())
        assert answer.items == [reasoning(1, "one"), message("six", 1)]
        assert answer.response["usage"]["total_tokens"] == 3 * USAGE["total_tokens"]
        await client.say(user("more"))
    seen = [user(), *rounds[0], output(A, "1"), output(B, "2"), *rounds[1], output(C, "3"), message("six", 1)]
    assert plain(endpoint.seen[3]) == plain([*seen, user("more")])
    assert len(upstream.runs["count"]) == 3


async def test_the_upstream_is_told_of_tools(upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """As functions of this API, behind the client's own; one that the client declares is the client's."""
    about: dict[str, Any] = {
        "description": "Counts.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }
    tools = [upstream.tool("count", **about), upstream.tool("send"), upstream.tool("secret", advertise="never")]
    async with sidecall(upstream.url, tools=tools) as here:
        await Client(here, tools=TOOLS).say(user())
        await Client(here, tools=()).say(user())
        await Client(here, tools=TOOLS).say(user(), tool_choice="none")
    declared = [request.get("tools", []) for request in endpoint.asked]
    assert [[tool["name"] for tool in tools] for tools in declared] == [[*TOOLS, "count"], [], list(TOOLS)]
    assert declared[0][2] == {"type": "function", "name": "count", "strict": False, **about}


@both
async def test_a_tool_of_the_client_with_the_name_of_one_is_the_clients(
    streams: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It is surfaced."""
    endpoint.says(call(A, "send"))
    async with sidecall(upstream.url, tools=[upstream.tool("send")]) as here:
        assert (await Client(here, streams=streams, tools=TOOLS).say(user())).names == ["send"]
    assert not upstream.runs["send"]


@both
async def test_an_eager_tool_runs_while_the_client_works(
    streams: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It begins when the batch is split, and is not run again on the client's return."""
    gate = Gate()
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, tools=[upstream.tool("count", gate, execution="eager")]) as here:
        client = Client(here, "previous", streams, tools=TOOLS)
        await client.say(user())
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        gate.open.set()
        await eventually(lambda: here.value("deferred_calls") == 0)
        await client.say(output(B, "found"))
    assert endpoint.last["input"] == [output(A, "run 1"), output(B, "found")]
    assert len(upstream.runs["count"]) == 1


@both
@pytest.mark.parametrize("fails", [Cut(), Whole({"error": {"message": "later", "type": "x"}}, 500)])
async def test_a_request_that_is_sent_again_goes_on_from_the_saved_rounds(
    fails: Any, streams: bool, upstream: FakeUpstream
) -> None:
    """The first call is not made again, and nothing runs twice; the answer shows what came before."""
    held = [message("Let me count.", 1), call(A, "count", n=1)]
    upstream.script(made(streams, *held), fails, made(streams, message("done", 2), number=2))
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        client = Client(here, streams=streams, tools=TOOLS)
        failed = await client.send(user())
        assert failed.error
        answer = await client.say(user())
        assert answer.items == [held[0], message("done", 2)]
        assert answer.response["created_at"] == 1760000001
        assert answer.response["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]
        assert answer.got.headers["x-sidecall-request-id"]
        assert answer.id == f"resp_{1 if streams else 2:048}"
    assert len(upstream.runs["count"]) == 1
    assert [asked.json["input"] for asked in upstream.requests[1:]] == [[user(), *held, output(A, "1")]] * 2


def made(streams: bool, *items: Item, **more: Any) -> Any:
    return stream(*items, **more) if streams else whole(*items, **more)


@both
async def test_an_answer_that_was_seen_is_not_taken_up_again(
    streams: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The same words said again are another turn."""
    for said in ([call(A, "count", n=1)], [message("one", 1)], [call(B, "count", n=2)], [message("two", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        texts = [(await Client(here, streams=streams, tools=TOOLS).say(user())).texts for _ in range(2)]
    assert texts == [["one"], ["two"]]
    assert len(upstream.runs["count"]) == 2


@both
async def test_two_identical_requests_at_once_share_a_run(streams: bool, upstream: FakeUpstream) -> None:
    """Each is answered as one response, with the items of the rounds that both went on from."""
    gate = Gate()

    def reply(asked: Asked) -> Any:
        if len(asked.json["input"]) > 1:
            return made(streams, message("done", 9), number=9)
        number = len(upstream.requests)
        return made(streams, call((A, B)[number - 1], "count", n=1), number=number)

    upstream.always(reply)
    async with sidecall(upstream.url, tools=[upstream.tool("count", gate)]) as here:
        client = Client(here, streams=streams, tools=TOOLS)
        asking = [asyncio.ensure_future(client.send(user())) for _ in range(2)]
        await upstream.until(lambda: len(upstream.requests) == 2 and gate.running >= 1)
        gate.open.set()
        found = [answer_of(got) for got in await asyncio.gather(*asking)]
    assert [answer.items for answer in found] == [[message("done", 9)]] * 2
    assert len(upstream.runs["count"]) == 1
    assert {asked.json["input"][-1]["output"] for asked in upstream.requests[2:]} == {"run 1"}


@both
async def test_a_client_that_goes_away_in_the_middle_of_a_run(
    streams: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The run goes on, and the same request finds its result."""
    gate = Gate()
    endpoint.says(call(A, "count", n=1))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, tools=[upstream.tool("count", gate)]) as here:
        client = Client(here, streams=streams, tools=TOOLS)
        asking = asyncio.ensure_future(client.send(user()))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        asking.cancel()
        await asyncio.wait([asking])
        again = asyncio.ensure_future(client.say(user()))
        gate.open.set()
        assert (await again).texts == ["done"]
        assert here.value("continuations_total", api="responses", end="client_gone") == 1
    assert len(upstream.runs["count"]) == 1
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("returns", [False, True])
async def test_comments_while_tools_run_behind_a_stream(
    returns: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """No reader takes them for events."""
    gate = Gate()
    endpoint.says(*(MIXED if returns else MIXED[:2]))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, services=pinging(0.02), tools=[upstream.tool("count", gate)]) as here:
        client = Client(here, streams=True, tools=TOOLS)
        words = user()
        if returns:
            await client.say(words)
            words = output(B, "found")
        asking = asyncio.ensure_future(client.say(words))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        await asyncio.sleep(0.1)
        gate.open.set()
        answer = await asking
    assert answer.got.data.count(b": waiting\n") >= 2
    assert answer.texts == ["done"]


@both
@all_manners
async def test_a_deferred_call_behind_a_proxy_tool(
    streams: bool, manner: str, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The tool runs when the deferred call has its result too, and once."""
    rules = policy(tmp_path, rule("late", "send", defer={}))
    batch = [call(A, "send"), call(B, "search"), call(D, "count", n=4)]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count", echo)]) as here:
        client = Client(here, manner, streams, tools=TOOLS)
        await client.say(user())
        assert (await client.say(output(B, "found"))).names == ["send"]
        assert not upstream.runs["count"]
        await client.say(output(A, "sent"))
    seen = [user(), *batch, output(A, "sent"), output(B, "found"), output(D, "4")]
    assert plain(endpoint.seen[1]) == plain(seen)
    assert len(upstream.runs["count"]) == 1


@both
async def test_results_beyond_the_limit_of_a_conversation_are_trimmed(
    streams: bool, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The oldest first, and the same on every request."""
    for said in ([call(A, "count", n=1)], [message("one", 1)], [call(B, "count", n=2)], [message("two", 2)]):
        endpoint.says(*said)
    endpoint.says(message("bye", 3))

    async def long(asked: Asked) -> str:
        return str(asked.json["n"]) * 10

    settings: dict[str, Any] = {"continuations": {"restoreBytes": 15}}
    async with sidecall(upstream.url, tools=[upstream.tool("count", long)], **settings) as here:
        client = Client(here, streams=streams, tools=TOOLS)
        for words in ("one", "two", "three"):
            await client.say(user(words))
    found = {item["call_id"]: item["output"] for item in endpoint.last["input"] if "output" in item}
    assert found == {A: "(trimmed)", B: "2" * 10}


@both
async def test_the_path_of_azure_is_governed(streams: bool, upstream: FakeUpstream) -> None:
    """With its query, which the continuation keeps."""
    azure = "/openai/deployments/d/responses?api-version=v1"
    upstream.script(made(streams, call(A, "count", n=1)), made(streams, message("done"), number=2))
    async with sidecall(upstream.url, tools=[upstream.tool("count", echo)]) as here:
        got = await here.post(body(user(), tools=TOOLS, stream=streams), path=azure)
        assert answer_of(got).texts == ["done"]
    assert [asked.target for asked in upstream.requests] == [azure, azure]
