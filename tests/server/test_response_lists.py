"""Lists of what the upstream keeps: the input of a response, the items of a conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.flaky import Flaky
from tests.e2e.manners import Client, both
from tests.e2e.responses import (
    A,
    B,
    C,
    Item,
    approval,
    approved,
    call,
    custom,
    message,
    output,
    plain,
    ran,
    reasoning,
    server,
    user,
)
from tests.e2e.sidecall import Got, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, Whole

ITEMS = "/v1/conversations/conv_0001/items"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("enough", "stop", block={"message": "that is enough", "then": "stop"}),
        rule("late", "send", defer={}),
    )


def listed(got: Got) -> list[Item]:
    """The items of a list, the oldest first."""
    assert got.status == 200
    found: list[Item] = got.json["data"]
    return plain(found[::-1])


MIXED = [reasoning(1, "x"), call("call_1", "search"), call(B, "delete"), custom(C, "delete", "x")]


@both
async def test_the_items_of_a_conversation_show_no_held_call_and_no_result_of_one(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Before the batch has come back, and after; the others stand under the ids that the client knows."""
    endpoint.says(call(A, "delete"))
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", streams)
        answer = await client.say(user())
        given = answer.calls[0]["call_id"]
        assert given != "call_1"
        shown = [user(), reasoning(1, "x"), {**call("call_1", "search"), "call_id": given}]
        assert listed(await here.get(ITEMS)) == plain(shown)
        await client.say(output(given, "found"))
        shown += [output(given, "found"), message("done")]
        got = await here.get(f"{ITEMS}?limit=20&order=desc")
        assert listed(got) == plain(shown)
        assert "x-sidecall-request-id" in got.headers
    assert endpoint.others[-1].target == f"{ITEMS}?limit=20&order=desc"


@both
async def test_the_input_of_a_response_is_what_the_client_sent(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What was put back into it is not shown."""
    endpoint.says(call(A, "delete"))
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "full", streams)
        await client.say(user())
        given = client.history[-1]["call_id"]
        answer = await client.say(output(given, "found"))
        shown = listed(await client.read(answer, "/input_items"))
    assert shown == plain(client.history[:-1])


@both
async def test_the_id_that_a_stream_showed_lists_the_input_of_the_last(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Its hidden rounds are not shown."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert listed(await client.read(answer, "/input_items?limit=2")) == [user()]
    last = f"/v1/responses/resp_{2:048}"
    assert [asked.target for asked in endpoint.others] == [f"{last}/input_items?limit=2", last], "its rules are asked"


@both
async def test_a_list_of_responses_shows_each_as_it_was(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Without the calls that were held, under the ids that the client knows."""
    endpoint.says(*MIXED)
    endpoint.says(message("other"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        await Client(here).say(user())
        shown = (await here.get("/v1/responses")).json["data"]
    assert [item["output"] for item in shown] == [answer.items, [message("other")]]


async def test_the_ends_of_a_list_name_no_held_call(rules: str, upstream: FakeUpstream) -> None:
    """A page of which nothing is left keeps them: the next is asked for by the last."""
    items = [{"id": f"item_{n}", **item} for n, item in enumerate((call(A, "delete"), user(), call(B, "delete")))]
    ends = {"first_id": "item_0", "last_id": "item_2", "has_more": True}
    upstream.script(Whole({"data": items, **ends}), Whole({"data": items[:1], **ends}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        first = (await here.get(ITEMS)).json
        second = (await here.get(ITEMS)).json
    assert first == {"data": items[1:2], "first_id": "item_1", "last_id": "item_1", "has_more": True}
    assert second == {"data": [], **ends}


@both
async def test_what_a_stopped_turn_left_is_not_shown(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Its calls were dropped: neither they nor their results."""
    endpoint.says(call(A, "search"), call(B, "stop"))
    endpoint.says(message("bye"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", streams)
        await client.say(user())
        assert listed(await here.get(ITEMS)) == [user()]
        await client.say(user("more"))
        assert listed(await here.get(ITEMS)) == [user(), user("more"), *plain([message("bye")])]


@both
async def test_approvals_that_the_rules_gave_are_not_shown(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Neither the question nor the answer; those of the client are."""
    asked = [approval("read", number=1), approval("delete", number=2)]
    endpoint.says(*asked)
    endpoint.says(ran("read", asked=asked[0]["id"]), message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", streams, tools=[server(require_approval="never")])
        answer = await client.say(user())
        assert listed(await here.get(ITEMS)) == [user(), *plain(answer.items)]


async def test_the_clients_own_approvals_are_shown(rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """It was asked, and it answered."""
    asked = [approval("read", number=1), approval("delete", number=2)]
    endpoint.says(*asked)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", tools=[server()])
        await client.say(user())
        await client.say(approved(asked[0]))
        assert listed(await here.get(ITEMS)) == [user(), *plain([asked[0], approved(asked[0]), message("done")])]


async def test_calls_that_nobody_has_read_are_judged(rules: str, upstream: FakeUpstream) -> None:
    """A list of what another way has made shows no call that the rules would hold, and no result of it."""
    items = [user(), call(A, "delete"), call(B, "search"), output(A, "deleted"), output(B, "found")]
    upstream.always(Whole({"object": "list", "data": items}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        assert (await here.get(ITEMS)).json["data"] == [items[0], items[2], items[4]]


@pytest.mark.parametrize(
    ("item", "status"),
    [(call(A, "delete"), 404), (call(A, "search"), 200), (output(A, "x"), 200), (message("hi"), 200)],
)
async def test_one_item(item: Item, status: int, rules: str, upstream: FakeUpstream) -> None:
    """One that the client does not know is not there."""
    upstream.always(Whole(item))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.get(f"{ITEMS}/item_1")
    assert got.status == status
    if status == 200:
        assert got.data == json.dumps(item).encode()


@pytest.mark.parametrize(
    "data",
    [
        b'{ "object":"list", "data":[ {"type":"message","n":1.10} ] }',
        b'{ "data":[ {"type":"function_call","call_id":"c","name":"search","arguments":"{ }"} ] }',
        b'{"data": 5}',
        b"[]",
        b"no json",
    ],
)
async def test_a_list_without_held_calls_passes_byte_for_byte(data: bytes, rules: str, upstream: FakeUpstream) -> None:
    """Whatever it is."""
    upstream.always(Whole(data))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.get(ITEMS)
    assert got.data == data


async def test_a_store_that_is_down_shows_no_list_of_calls(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Nobody can say which of them the client knows."""
    flaky = Flaky()
    endpoint.says(*MIXED)
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        await Client(here, "conversation").say(user())
        flaky.store.fails = lambda operation, keys: True
        got = await here.get(ITEMS)
    assert (got.status, got.error["code"]) == (503, "state_unavailable")


async def test_another_tenant_sees_nothing_of_the_entry(rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """What it is shown is judged."""
    endpoint.says(*MIXED)
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, "conversation").say(user())
        got = await here.get(ITEMS, key="two")
    assert listed(got) == plain([user(), reasoning(1, "x"), call("call_1", "search")])


# ---------------------------------------------------------------- counting and compacting


@pytest.mark.parametrize("path", ["/v1/responses/input_tokens", "/v1/responses/compact"])
async def test_what_counts_or_compacts_a_conversation_names_it_as_the_upstream_does(
    path: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A response that a stream showed under another id; all else of the body stays as it is."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=True).say(user())
        sent = b'{ "model":"m", "n":1.10, "previous_response_id":"%s" }' % answer.id.encode()
        await here.get(path, method="POST", sent=sent)
    asked = endpoint.others[-1]
    assert (asked.path, asked.body) == (path, sent.replace(answer.id.encode(), b"resp_%048d" % 2))
