"""Histories of responses as clients send them: in part, in references, in another order, or with words of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both, remembered
from tests.e2e.responses import (
    A,
    B,
    C,
    D,
    Item,
    call,
    custom,
    message,
    output,
    plain,
    reasoning,
    reference,
    user,
)
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

NO = blocked("not here", "no")


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        rule("quiet", "quiet", rewrite={"merge": {"limit": 10}, "history": "original"}),
        rule("enough", "stop", block={"message": "that is enough", "then": "stop"}),
    )


def bare(item: Item) -> Item:
    """A reference whose type is left out."""
    return {"id": item["id"]}


def without(item: Item, *keys: str) -> Item:
    return {k: v for k, v in item.items() if k not in keys}


MIXED = [reasoning(1, "one"), call(A, "delete", id=1), reasoning(2, "two"), call(B, "search", q="x")]
WHOLE = [*MIXED, output(A, NO), output(B, "found")]


@both
@pytest.mark.parametrize("named", [reference, bare])
async def test_references_to_surfaced_calls_stand_for_them(
    named: Callable[[Item], Item], streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The batch is put back around them, and they stay references; one to the reasoning of a held call too."""
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        client.history = [user(), *map(named, answer.items)]
        await client.say(output(B, "found"))
    assert endpoint.seen[1] == [user(), *WHOLE]
    sent = endpoint.last["input"]
    assert sent == [user(), named(MIXED[0]), MIXED[1], named(MIXED[2]), named(MIXED[3]), *WHOLE[4:]]


async def test_a_reference_to_a_held_call_gives_way_to_it(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A client that read the upstream's own list names what it should not know of: it stands there once."""
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here)
        await client.say(user())
        client.history = [user(), *map(reference, MIXED)]
        await client.say(output(B, "found"))
    assert endpoint.seen[1] == [user(), *WHOLE]


@both
async def test_a_reference_to_the_message_of_an_answer_finds_its_hidden_rounds(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The rounds stand before it."""
    held = [reasoning(1, "one"), call(A, "delete")]
    for said in (held, [reasoning(2), message("I may not.", 1)], [message("Bye.", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        client.history = [user(), *map(reference, answer.items)]
        await client.say(user("more"))
    assert endpoint.seen[2] == [user(), *held, output(A, NO), reasoning(2), message("I may not.", 1), user("more")]


@both
async def test_a_reference_to_a_message_of_our_own_never_goes_up(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream has never heard of it: what it says goes up, without its id."""
    endpoint.says(call(A, "stop"))
    endpoint.says(message("Bye.", 2))
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert answer.texts == ["that is enough"]
        client.history = [user(), reference(answer.items[0])]
        await client.send(user("more"))
        client.history = [user(), *answer.items]
        await client.send(user("more"))
    own = without(answer.items[0], "id")
    stopped = [call(A, "stop"), output(A, blocked("that is enough", "enough"))]
    assert endpoint.seen[1] == [user(), *stopped, own, user("more")]
    assert endpoint.seen[2] == endpoint.seen[1]


@both
@all_manners
async def test_results_stand_in_the_order_of_the_calls(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Whatever order the client sent them in, and whatever of its own stands between them."""
    batch = [call(A, "search", q=1), call(B, "delete"), call(C, "search", q=2), call(D, "search", q=3)]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(D, "three"), output(A, "one"), output(C, "two"), user("well?"))
    results = [output(A, "one"), output(B, NO), output(C, "two"), output(D, "three")]
    assert plain(endpoint.seen[1]) == plain([user(), *batch, *results, user("well?")])


@both
async def test_a_history_in_which_each_result_follows_its_call(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The batch is one again."""
    batch = [call(A, "search", q=1), call(B, "delete"), call(C, "search", q=2)]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        client.history = [user(), batch[0], output(A, "one"), batch[2], output(C, "two")]
        await client.say()
    assert endpoint.seen[1] == [user(), *batch, output(A, "one"), output(B, NO), output(C, "two")]


@both
async def test_reasoning_that_a_client_dropped(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """That of a held call is put back with it, that of a surfaced one stays dropped."""
    endpoint.says(*MIXED)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        client.history = [user(), MIXED[3]]
        await client.say(output(B, "found"))
    assert endpoint.seen[1] == [user(), *MIXED[:2], MIXED[3], *WHOLE[4:]]


@both
async def test_reasoning_that_led_to_all_calls_of_a_batch_comes_back_once(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The first call of the batch is held, or is not: the reasoning stands where it stood."""
    first = [reasoning(1, "one"), call(A, "delete"), call(B, "search")]
    second = [reasoning(2, "two"), call(C, "search"), call(D, "delete")]
    for said in (first, second, [message("done")]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        await client.say(output(B, "found"))
        await client.say(output(C, "found"))
    seen = [user(), *first, output(A, NO), output(B, "found"), *second, output(C, "found"), output(D, NO)]
    assert endpoint.seen[2] == seen


@both
async def test_arguments_that_a_client_edited_stay_its_own(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Also those of a call that a rule had changed."""
    endpoint.says(call(A, "cap", limit=99), call(B, "delete"), call(C, "search", q="x"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        edited = [call(A, "cap", limit=5), call(C, "search", q="y")]
        client.history = [user(), *edited]
        await client.say(output(A, "one"), output(C, "two"))
    calls = [edited[0], call(B, "delete"), edited[1]]
    assert endpoint.seen[1] == [user(), *calls, output(A, "one"), output(B, NO), output(C, "two")]


@both
async def test_a_call_that_a_client_only_spells_otherwise_is_the_recorded_one(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A client that writes JSON its own way has edited nothing; one that drops ids and status neither."""
    made = {**call(A, "search"), "arguments": '{ "q":1.0,"n" : "\\u00e9" }'}
    endpoint.says(made, call(B, "delete"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        client.history = [user(), without({**made, "arguments": '{"n":"é","q":1.0}'}, "id", "status")]
        await client.say(output(A, "found"))
    assert endpoint.seen[1] == [user(), made, call(B, "delete"), output(A, "found"), output(B, NO)]


@both
@pytest.mark.parametrize(("name", "kept"), [("cap", True), ("quiet", False)])
async def test_rewritten_arguments_in_a_history(
    name: str, kept: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream sees what the client was given, or the model's own text where the rule wants that."""
    made = call(A, name, limit=99)
    endpoint.says(made)
    endpoint.says(message("done", 1))
    endpoint.says(message("bye", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert json.loads(answer.items[0]["arguments"]) == {"limit": 10}
        await client.say(output(A, "found"))
        await client.say(user("more"))
    shown = endpoint.seen[2][1]
    assert shown == (answer.items[0] if kept else made)
    assert endpoint.seen[1][1] == shown


@both
@all_manners
async def test_weak_ids_get_fresh_ones(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """In a batch that is split; the upstream gets its own back, and two turns are not taken for one another."""
    batch = [call("call_1", "search", q=1), custom("call_2", "note", "x"), call("call_3", "delete")]
    for said in (batch, batch, [message("done")]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        first = [item["call_id"] for item in (await client.say(user())).calls]
        second = [item["call_id"] for item in (await client.say(*results(first))).calls]
        assert all(len(i) == 29 and i.startswith("call_") for i in (*first, *second))
        assert len({*first, *second}) == 4
        await client.say(*results(second))
    own = [*results(["call_1", "call_2"]), output("call_3", NO)]
    assert plain(endpoint.seen[2]) == plain([user(), *batch, *own, *batch, *own])


def results(ids: list[Any]) -> list[Item]:
    return [output(ids[0], "found"), output(ids[1], "noted", "custom_tool_call")]


@both
async def test_a_batch_without_held_calls_keeps_its_ids(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Weak ones too: nothing has to be found again."""
    endpoint.says(call("call_1", "search"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        assert [c["call_id"] for c in (await client.say(user())).calls] == ["call_1"]
        await client.say(output("call_1", "found"))
    assert endpoint.seen[1] == [user(), call("call_1", "search"), output("call_1", "found")]


@both
async def test_another_call_under_a_surfaced_id_is_not_touched(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It is counted as a mismatch."""
    endpoint.says(call(A, "search"), call(B, "delete"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        client.history = [user(), call(A, "other")]
        await client.say(output(A, "found"))
        assert here.value("rejoins_total", api="responses", outcome="mismatch") == 1
    assert endpoint.seen[1] == [user(), call(A, "other"), output(A, "found")]


@both
@all_manners
async def test_a_result_that_a_client_made_up_for_a_held_call_is_dropped(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It is counted and logged; the true one is there."""
    endpoint.says(call(A, "search"), call(B, "delete"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(A, "found"), output(B, "deleted, I swear"))
        assert [line["message"] for line in here.lines].count("a result was dropped") == 1
    seen = [user(), call(A, "search"), call(B, "delete"), output(A, "found"), output(B, NO)]
    assert plain(endpoint.seen[1]) == plain(seen)


@remembered
async def test_a_turn_that_leaves_some_calls_unanswered(
    manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What the client did not answer is the upstream's to say; held calls have their results."""
    endpoint.lenient = True
    endpoint.says(call(A, "search"), call(B, "delete"), call(C, "search"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner)
        await client.say(user())
        await client.say(output(C, "found"))
        assert here.value("rejoins_total", api="responses", outcome="partial") == 1
    assert endpoint.last["input"] == [output(B, NO), output(C, "found")]


@both
async def test_other_requests_release_nothing(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A title that is written meanwhile changes nothing, and the batch is put back later."""
    endpoint.lenient = True
    for said in (MIXED, [message("A title", 8)], [message("done", 9)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        title = client.request(user("Write a title."))["input"]
        await client.send(user("Write a title."))
        assert endpoint.last["input"] == title
        await client.say(output(B, "found"))
    assert endpoint.seen[2] == [user(), *WHOLE]


@both
async def test_two_tenants_do_not_meet(streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """Another credential never reaches an entry: not by a call, not by a response."""
    endpoint.lenient = True
    for said in (MIXED, [message("done", 1)], [message("done", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        client.key = "two"
        sent = client.request(output(B, "found"))["input"]
        await client.send(output(B, "found"))
        assert endpoint.last["input"] == sent
        other = Client(here, "previous", streams, key="two", previous=answer.id)
        await other.send(output(B, "found"))
        assert endpoint.last["input"] == [output(B, "found")]
