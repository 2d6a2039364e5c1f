"""What is kept of responses: before what it is kept, for how long, and what happens when it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.flaky import Flaky, Timed, on
from tests.e2e.manners import Client, all_manners, both, remembered
from tests.e2e.responses import A, B, C, D, call, custom, message, output, plain, read_strictly, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

NO = blocked("not here", "no")
GONE = "(result no longer available)"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("enough", "stop", block={"message": "that is enough", "then": "stop"}),
    )


@both
@pytest.mark.parametrize("kind", ["batch", "response"])
async def test_a_batch_that_cannot_be_kept_is_not_surfaced(
    kind: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """503, or an error event and no call that is complete."""
    flaky = Flaky()
    endpoint.says(message("Hm."), call(A, "search"), call(B, "delete"))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        flaky.store.fails = on("save", kind)
        got = await Client(here, streams=streams).send(user())
        assert got.error["code"] == "state_unavailable"
        assert here.value("state_unavailable_total") == 1
    if not streams:
        assert got.status == 503
        return
    read = read_strictly(got.events)
    assert read.final is None
    assert [item["type"] for number, item in enumerate(read.items) if number not in read.open] == ["message"]


@both
@pytest.mark.parametrize(("kind", "said"), [("turn", "I may not."), ("response", "I may not.")])
async def test_hidden_rounds_that_cannot_be_kept_end_no_turn(
    kind: str, said: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What was said is said; the end waits for the ledger and does not come."""
    flaky = Flaky()
    endpoint.says(call(A, "delete"))
    endpoint.says(message(said))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        flaky.store.fails = on("save", kind)
        got = await Client(here, streams=streams).send(user())
    assert got.error["code"] == "state_unavailable"
    assert got.status == (200 if streams else 503)
    assert b"response.completed" not in got.data


@both
@pytest.mark.parametrize("on_unavailable", ["refuse", "pass"])
@all_manners
async def test_a_store_that_is_down(
    manner: str, on_unavailable: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Requests and answers without held calls pass; a history with calls passes only where the setting says so."""
    flaky = Flaky()
    endpoint.says(call(A, "search"))
    settings: dict[str, Any] = {"state": {"url": "memory:", "onUnavailable": on_unavailable}}
    async with sidecall(upstream.url, services=flaky, policies=[rules], **settings) as here:
        flaky.store.fails = lambda operation, keys: True
        client = Client(here, manner, streams)
        passes = on_unavailable == "pass" or manner != "conversation"
        if passes:
            assert (await client.say(user())).items == [call(A, "search")]
        else:
            got = await client.send(user())
            assert (got.status, got.error["code"]) == (503, "state_unavailable"), "who knows what it is owed"
            endpoint.turns.clear()
            return
        sent = client.request(output(A, "found"))
        if on_unavailable == "pass":
            endpoint.says(message("done"))
            assert (await client.say(output(A, "found"))).texts == ["done"]
            assert endpoint.last["input"] == sent["input"]
        else:
            got = await client.send(output(A, "found"))
            assert (got.status, got.error["code"]) == (503, "state_unavailable")
        client = Client(here, "full", streams)
        endpoint.says(call(B, "delete"), call(C, "search"))
        assert (await client.send(user())).error["code"] == "state_unavailable"


@both
@remembered
async def test_a_forgotten_batch_still_gets_results_where_the_upstream_has_its_calls(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """For seven days beyond its time the held calls are known by name; it is counted and logged once."""
    timed = Timed()
    endpoint.says(call(A, "delete"), custom(B, "delete", "x"), call(C, "search"))
    endpoint.says(message("done"))
    endpoint.lenient = True  # of what is forgotten nobody knows the order
    settings: dict[str, Any] = {"state": {"url": "memory:", "ttl": "1h", "storedTtl": "2h"}}
    async with sidecall(upstream.url, services=timed, policies=[rules], **settings) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        timed.clock.now += 7201
        await client.say(output(C, "found"))
        assert here.value("rejoins_total", api="responses", outcome="forgotten") == 1
        assert [line["message"] for line in here.lines].count("a batch was forgotten") == 1
    held = [output(A, GONE), output(B, GONE, "custom_tool_call")]
    assert endpoint.last["input"] == [*held, output(C, "found")]


async def test_a_forgotten_batch_of_a_client_that_keeps_its_own_history_passes_as_it_was_sent(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Nothing is owed to anybody."""
    timed = Timed()
    endpoint.says(call(A, "delete"), call(C, "search"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, services=timed, policies=[rules]) as here:
        client = Client(here, "stateless")
        await client.say(user())
        timed.clock.now += 25 * 3600
        sent = client.request(output(C, "found"))["input"]
        await client.say(output(C, "found"))
        assert here.value("rejoins_total", api="responses", outcome="forgotten") == 1
    assert endpoint.last["input"] == sent


@both
async def test_a_batch_lives_from_its_last_use_as_long_as_what_the_upstream_stores(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """`storedTtl` where it is stored, `ttl` where it is not."""
    timed = Timed()
    batch = [call(A, "search"), call(B, "delete")]
    settings: dict[str, Any] = {"state": {"url": "memory:", "ttl": "1h", "storedTtl": "2h"}}
    for said in (batch, [message("one", 1)], [message("two", 2)], [message("three", 3)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, services=timed, policies=[rules], **settings) as here:
        client = Client(here, "full", streams)
        await client.say(user())
        for words in ([output(A, "found")], [user("more")], [user("and more")]):
            timed.clock.now += 7199
            await client.say(*words)
            assert plain(endpoint.seen[-1])[1:3] == plain(batch)


@both
async def test_the_id_that_a_stream_showed_is_known_as_long_as_the_response(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream's own id is put in its place, in a request and back in its answer."""
    for said in ([call(A, "delete")], [message("one", 1)], [message("two", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams)
        first = await client.say(user())
        second = await client.say(user("more"))
        assert second.response["previous_response_id"] == first.id
    assert endpoint.last["previous_response_id"] == f"resp_{2:048}"


@remembered
async def test_a_turn_that_is_remembered_for_its_denials_alone_passes_with_the_store_down(
    manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """An answer without held calls needs nothing kept."""
    flaky = Flaky()
    endpoint.says(call(A, "search"), call(D, "search"))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        flaky.store.fails = lambda operation, keys: operation == "save"
        assert (await Client(here, manner).say(user())).names == ["search", "search"]
