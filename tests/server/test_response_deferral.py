"""Deferred calls of a response: surfaced by a response of the proxy's own, and put back together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both
from tests.e2e.responses import A, B, C, D, answer_of, call, custom, message, output, plain, reasoning, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

NO = blocked("not here", "no")


@pytest.fixture
def late(tmp_path: Path) -> str:
    return policy(tmp_path, rule("late", "send", defer={}), rule("no", "delete", block={"message": "not here"}))


@both
@all_manners
async def test_deferred_calls_come_when_the_others_have_results(
    streams: bool, manner: str, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream is not asked for them; it gets one batch with every result, the same on every later turn."""
    batch = [reasoning(1, "one"), call(A, "send"), call(B, "search"), call(C, "delete"), custom(D, "send", "x")]
    for said in (batch, [message("done", 1)], [message("bye", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, manner, streams)
        first = await client.say(user())
        assert first.names == ["search"]
        second = await client.say(output(B, "found"))
        assert plain(second.items) == plain([batch[1], batch[4]])
        assert all(item["id"].startswith(("fc_", "ctc_")) for item in second.items)
        assert second.id != first.id
        assert len(endpoint.asked) == 1
        assert second.got.headers["x-sidecall-request-id"]
        await client.say(output(D, "sent", "custom_tool_call"), output(A, "sent"))
        await client.say(user("more"))
        assert here.value("rejoins_total", api="responses", outcome="rejoined") == 1
        assert here.value("deferred_calls") == 0
    results = [output(A, "sent"), output(B, "found"), output(C, NO), output(D, "sent", "custom_tool_call")]
    assert plain(endpoint.seen[1]) == plain([user(), *batch, *results])
    assert plain(endpoint.seen[2]) == plain([*endpoint.seen[1], message("done"), user("more")])
    assert endpoint.seen[2][: len(endpoint.seen[1])] == endpoint.seen[1]


@both
@all_manners
async def test_one_at_a_time(
    streams: bool, manner: str, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """`maxParallel: 1` surfaces the calls of a batch one by one, in the model's order, over several responses."""
    rules = policy(tmp_path, batch={"maxParallel": 1})
    batch = [call(A, "search", q=1), call(B, "search", q=2), call(C, "search", q=3)]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        given: list[str] = []
        answer = await client.say(user())
        for _ in batch:
            assert len(answer.calls) == 1
            given.append(answer.calls[0]["call_id"])
            answer = await client.say(output(given[-1], f"found {len(given)}"))
        assert answer.texts == ["done"]
    assert given == [A, B, C]
    results = [output(call_id, f"found {n}") for n, call_id in enumerate((A, B, C), 1)]
    assert plain(endpoint.seen[1]) == plain([user(), *batch, *results])


@both
async def test_a_batch_of_deferred_calls_only_is_surfaced_at_once(
    streams: bool, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """There is nothing to wait for."""
    endpoint.says(call(A, "send"), call(B, "send"))
    async with sidecall(upstream.url, policies=[late]) as here:
        assert (await Client(here, streams=streams).say(user())).names == ["send", "send"]


@both
@all_manners
async def test_hidden_rounds_before_a_deferred_call(
    streams: bool, manner: str, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """They stand before the batch when it is put back."""
    hidden = [reasoning(1, "one"), call(A, "delete")]
    batch = [reasoning(2, "two"), call(B, "search"), call(C, "send")]
    for said in (hidden, batch, [message("done")]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(B, "found"))
        await client.say(output(C, "sent"))
    seen = [user(), *hidden, output(A, NO), *batch, output(B, "found"), output(C, "sent")]
    assert plain(endpoint.seen[2]) == plain(seen)


@both
@all_manners
async def test_what_came_with_the_results_of_the_first_calls_goes_up_too(
    streams: bool, manner: str, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The user's words stand behind the results of the batch."""
    endpoint.says(call(A, "search"), call(B, "send"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(A, "found"), user("by the way"))
        await client.say(output(B, "sent"))
    seen = [user(), call(A, "search"), call(B, "send"), output(A, "found"), output(B, "sent"), user("by the way")]
    assert plain(endpoint.seen[1]) == plain(seen)


@both
async def test_a_response_of_our_own_is_read_again(
    streams: bool, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """As it was; nobody else has it, and there is nothing of it to change."""
    endpoint.says(call(A, "search"), call(B, "send"))
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, "previous", streams)
        await client.say(user())
        own = await client.say(output(A, "found"))
        again = await client.read(own)
        assert again.json == own.response
        replayed = await client.read(own, "?stream=true")
        assert answer_of(replayed).response == own.response
        rest = (await client.read(own, "?stream=true&starting_after=2")).events
        assert rest == replayed.events[3:]
        assert (await client.read(own, method="DELETE")).status == 404
        assert (await client.read(own, "/input_items")).status == 404
        assert (await client.read(own, "/cancel", method="POST")).status == 404
        client.key = "two"
        assert (await client.read(own)).status == 404
    assert [(asked.method, asked.path) for asked in endpoint.others] == [("GET", f"/v1/responses/{own.id}")]


@both
async def test_the_same_request_gets_the_same_calls_again(
    streams: bool, late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A client that did not see the answer asks once more."""
    endpoint.says(call(A, "search"), call(B, "send"))
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, "previous", streams)
        await client.say(user())
        sent = client.request(output(A, "found"))
        first, second = [await client.post(sent) for _ in range(2)]
        assert first.status == second.status == 200
        await client.say(output(A, "found"))
    assert B.encode() in first.data
    assert B.encode() in second.data


async def test_a_response_of_our_own_says_what_the_request_said(
    late: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A reader finds every member that it needs, and what it asked for."""
    endpoint.says(call(A, "search"), call(B, "send"))
    async with sidecall(upstream.url, policies=[late]) as here:
        client = Client(here, more={"metadata": {"k": "v"}, "instructions": "Be brief.", "temperature": 0.5})
        await client.say(user())
        own = (await client.say(output(A, "found"))).response
    assert own["object"] == "response"
    assert own["status"] == "completed"
    assert own["usage"]["total_tokens"] == 0
    assert (own["metadata"], own["instructions"], own["temperature"]) == ({"k": "v"}, "Be brief.", 0.5)
    assert [tool["name"] for tool in own["tools"]] == list(client.tools)
    assert (own["model"], own["error"], own["parallel_tool_calls"]) == ("gpt-test", None, True)
