"""Responses that are read again, taken up again, or made in the background."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.flaky import Flaky
from tests.e2e.manners import Client, both
from tests.e2e.responses import (
    A,
    B,
    C,
    D,
    Item,
    answer_of,
    approval,
    approved,
    call,
    custom,
    message,
    output,
    ran,
    read_strictly,
    reasoning,
    server,
    user,
)
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, Whole

NO = blocked("not here", "no")


def rules_in(folder: Path, *more: dict[str, Any]) -> str:
    return policy(
        folder,
        *more,
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        rule("enough", "stop", block={"message": "that is enough", "then": "stop"}),
    )


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return rules_in(tmp_path)


MIXED = [reasoning(1, "x"), message("Hm.", 1), call("call_1", "search"), call(B, "delete"), call(C, "cap", limit=99)]


@both
@pytest.mark.parametrize("taken_up", [False, True])
async def test_a_response_reads_as_it_was_shown(
    taken_up: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The same items under the same ids, whole or as a stream; nothing is counted once more."""
    endpoint.says(*MIXED)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        counted = here.total("tool_calls_total")
        for _ in range(2):
            again = await client.read(answer, "?stream=true" if taken_up else "")
            read = answer_of(again)
            assert read.response == answer.response
            assert "x-sidecall-request-id" in again.headers
        assert here.total("tool_calls_total") == counted == 3
        assert here.total("batches_total") == 1
    assert read.items[2]["call_id"] not in ("call_1", "")


@both
async def test_the_policies_of_today_do_not_change_what_was_shown(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The calls are shown as they were decided, although a rule would hold them now, or would not."""
    path = rules_in(tmp_path)
    endpoint.says(*MIXED)
    async with sidecall(upstream.url, policies=[path]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        Path(path).write_text(Path(path).read_text().replace('"delete"', '"search"').replace("10", "20"))
        assert await here.running.snapshots.reload()
        assert (await client.read(answer)).json == answer.response
        assert answer_of(await client.read(answer, "?stream=true")).response == answer.response
        endpoint.says(call(D, "search"))
        endpoint.says(message("I may not."))
        other = await Client(here, streams=streams).say(user("other"))
        assert other.texts == ["I may not."], "another set is loaded"


async def test_a_response_without_held_calls_passes_byte_for_byte(rules: str, upstream: FakeUpstream) -> None:
    """Nothing changes, so nothing is written anew, and nothing is counted."""
    data = (
        b'{ "id":"resp_1", "status":"completed", "output":[ {"type":"message","n":1.10},{"type":"function_call",'
        b'"id":"fc","call_id":"call_1","name":"search","arguments":"{ }"} ] }'
    )
    upstream.script(Whole(data, headers={"etag": "x"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here).read("resp_1")
        assert here.total("tool_calls_total") == 0
    assert (got.data, got.headers["etag"]) == (data, "x")
    assert "x-sidecall-request-id" not in got.headers


@pytest.mark.parametrize("status", [404, 401, 500])
async def test_errors_pass(status: int, rules: str, upstream: FakeUpstream) -> None:
    """With their status and their words."""
    upstream.script(Whole(b'{"error": {"message": "function_call"} }', status))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here).read("resp_1")
    assert (got.status, got.data) == (status, b'{"error": {"message": "function_call"} }')


async def test_what_cannot_be_read_and_holds_a_call_is_refused(rules: str, upstream: FakeUpstream) -> None:
    """502, as in the first answer."""
    upstream.script(Whole(b'\xef\xbb\xbf{"output":[{"type":"function_call","name":"delete"}]}'))
    async with sidecall(upstream.url, policies=[rules]) as here:
        assert (await Client(here).read("resp_1")).status == 502


@both
@pytest.mark.parametrize("taken_up", [False, True])
async def test_hidden_rounds_stay_hidden(
    taken_up: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The response shows the items of all rounds and what they all used, under the id that the client knows; as a
    stream too, from behind any event."""
    for said in ([reasoning(1, "x"), message("Hm.", 1), call(A, "delete")], [message("Done.", 2), call(B, "search")]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        got = await client.read(answer, "?stream=true" if taken_up else "")
        again = answer_of(got).response
        behind = await client.read(answer, "?stream=true&starting_after=3")
        assert got.data.endswith(behind.data) or not taken_up
    assert {k: again[k] for k in ("id", "output", "usage", "status")} == {
        k: answer.response[k] for k in ("id", "output", "usage", "status")
    }


@both
async def test_what_a_limit_said_is_read_as_a_stream_too(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream's last answer had nothing to show."""
    endpoint.says(call(A, "delete"))
    endpoint.says(call(B, "delete"))
    endpoint.says()
    async with sidecall(upstream.url, policies=[rules], continuations={"max": 1}) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        again = [answer_of(await client.read(answer, behind)) for behind in ("", "?stream=true")]
    assert answer.texts == ["The limit of tool calls for one answer was reached."]
    assert [read.texts for read in again] == [answer.texts] * 2


@both
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_the_id_that_a_stream_showed_stands_for_the_last_one(
    method: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """In reading, cancelling and deleting; a client that has the upstream's own is served as well."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert (await client.read(answer, "?include=x")).json["id"] == answer.id
        assert (await client.read(f"resp_{2:048}")).json["id"] == f"resp_{2:048}"
        got = await client.read(answer, "/cancel" if method == "POST" else "", method=method)
        assert got.status == 200
    last = f"/v1/responses/resp_{2:048}"
    asked = [(a.method, a.target) for a in endpoint.others]
    assert asked[:2] == [("GET", f"{last}?include=x"), ("GET", last)]
    assert asked[2] == (method, f"{last}/cancel" if method == "POST" else last)


@both
async def test_a_turn_that_a_rule_stopped_reads_as_its_message(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Completed, with the message at its end, under the id that it had."""
    endpoint.says(message("Well."), call(A, "search"), call(B, "stop"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert (await client.read(answer)).json == answer.response
        assert answer_of(await client.read(answer, "?stream=true")).response == answer.response
    assert answer.texts == ["Well.", "that is enough"]


async def test_another_tenant_reads_what_the_rules_leave(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It never reaches the entry; what it sees is judged anew."""
    endpoint.says(call("call_1", "search"), call(B, "delete"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here)
        answer = await client.say(user())
        client.key = "two"
        assert [item["call_id"] for item in (await client.read(answer)).json["output"]] != [
            item["call_id"] for item in answer.items
        ]
        assert B.encode() not in (await client.read(answer)).data


async def test_a_store_that_is_down_shows_no_call(rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """Nobody can say how it was decided."""
    flaky = Flaky()
    endpoint.says(call(A, "search"), call(B, "delete"))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        client = Client(here)
        answer = await client.say(user())
        flaky.store.fails = lambda operation, keys: True
        got = await client.read(answer)
        assert (got.status, got.error["code"]) == (503, "state_unavailable")


# ---------------------------------------------------------------- in the background


async def begun(client: Client, endpoint: Endpoint, *items: Item, **more: Any) -> str:
    """A response that runs in the background; its id."""
    endpoint.says(*items, **more)
    got = await client.send(user(), background=True)
    assert got.json["status"] == "queued"
    assert got.json["output"] == []
    found: str = got.json["id"]
    return found


def running(endpoint: Endpoint, name: str, status: str, *items: Item) -> None:
    endpoint.stored[name].response |= {"status": status, "output": list(items), "usage": None}


async def test_a_response_in_the_background_shows_no_call_before_its_end(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What is queued passes as it is; of what runs the calls are left out, and nothing is counted."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here)
        name = await begun(client, endpoint)
        running(endpoint, name, "queued")
        got = await client.read(name)
        assert got.data == json.dumps(endpoint.stored[name].response).encode()
        running(endpoint, name, "in_progress", message("Hm."), call(A, "search"), call(B, "delete"))
        assert (await client.read(name)).json["output"] == [message("Hm.")]
        assert here.total("tool_calls_total") == 0
        running(endpoint, name, "completed", message("Hm."), call(A, "search"), call(B, "delete"))
        assert (await client.read(name)).json["output"] == [message("Hm."), call(A, "search")]
        assert here.total("tool_calls_total") == 2, "when it is whole"


async def test_a_response_in_the_background_is_governed_when_it_is_read(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The first reading counts and splits, later ones show the same, and the batch is put back."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous")
        name = await begun(client, endpoint, *MIXED)
        first, second = [(await client.read(name)).json for _ in range(2)]
        assert first == second
        assert [item["type"] for item in first["output"]] == ["reasoning", "message", "function_call", "function_call"]
        assert json.loads(first["output"][3]["arguments"]) == {"limit": 10}
        given = first["output"][2]["call_id"]
        assert given != "call_1"
        assert here.total("tool_calls_total") == 3
        assert here.value("batches_total", api="responses", kind="mixed") == 1
        client.previous = name
        endpoint.says(message("done", 2))
        await client.say(output(C, "capped"), output(given, "found"))
        assert here.value("rejoins_total", api="responses", outcome="rejoined") == 1
    assert endpoint.last["input"] == [output("call_1", "found"), output(B, NO), output(C, "capped")]


async def test_a_turn_in_the_background_whose_calls_are_all_held_ends(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """As a rule ends one: the message is its text, and what builds on it brings the results."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous")
        name = await begun(client, endpoint, reasoning(1, "x"), call(A, "delete"), custom(B, "delete", "x"))
        first, second = [answer_of(await client.read(name)) for _ in range(2)]
        assert first.response == second.response
        assert (first.texts, first.calls, first.response["status"]) == (["not here"], [], "completed")
        assert len(endpoint.asked) == 1, "it is never continued"
        client.previous = name
        endpoint.says(message("done"))
        await client.say(user("more"))
    assert endpoint.last["input"] == [output(A, NO), output(B, NO, "custom_tool_call"), user("more")]


async def test_a_tool_alone_in_the_background_does_not_run(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """There is no request that it could go on in; the turn ends with a sentence."""
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        client = Client(here, "previous", tools=("search",))
        name = await begun(client, endpoint, call(A, "count"))
        read = answer_of(await client.read(name))
        assert read.texts == ["The limit of tool calls for one answer was reached."]
        client.previous = name
        endpoint.says(message("done"))
        await client.say(user("more"))
    assert endpoint.last["input"] == [output(A, "(not run: the turn was ended)"), user("more")]
    assert not upstream.runs["count"]


async def test_a_tool_in_a_mixed_batch_of_the_background_runs_on_return(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """As it does in any other."""
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        client = Client(here, "previous", tools=("search",))
        name = await begun(client, endpoint, call(A, "count"), call(B, "search"))
        assert answer_of(await client.read(name)).names == ["search"]
        client.previous = name
        endpoint.says(message("done"))
        await client.say(output(B, "found"))
    assert endpoint.last["input"] == [output(A, "ran"), output(B, "found")]


async def test_a_tool_whose_schema_the_upstream_wrote_anew_is_still_the_proxys(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A response shows its tools in the strict form; one of the same name that the client declared is the client's."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = upstream.tool("count", description="Counts.", parameters=schema)
    strict = {**schema, "required": ["n"], "additionalProperties": False}
    others = {"type": "object", "properties": {"word": {"type": "string"}}}
    async with sidecall(upstream.url, policies=[rules], tools=[tool]) as here:
        client = Client(here, "previous", tools=("search",))
        for parameters, names in ((strict, ["search"]), (others, ["count", "search"])):
            name = await begun(client, endpoint, call(A, "count"), call(B, "search"))
            shown = {"type": "function", "name": "count", "description": "Counts.", "parameters": parameters}
            endpoint.stored[name].response["tools"] = [shown]
            assert answer_of(await client.read(name)).names == names


async def test_a_response_in_the_background_that_was_cut_short(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Its held calls are left out, and it stays what it is."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here)
        name = await begun(client, endpoint, message("Hm."), call(A, "search"), call(B, "delete"), status="incomplete")
        endpoint.stored[name].response["status"] = "incomplete"
        read = answer_of(await client.read(name))
        again = answer_of(await client.read(name))
        assert here.total("tool_calls_total") == 2
    assert read.items == again.items == [message("Hm."), call(A, "search")]
    assert read.response["status"] == "incomplete"


@both
async def test_approvals_in_the_background_are_the_clients_to_give(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """There is no later round for them: what the rules allow is asked of the client, the first time and again."""
    asked = [approval("read", number=1), approval("delete", number=2), call(A, "search")]
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams, tools=["search", server(require_approval="never")])
        if streams:
            endpoint.says(*asked)
            answer = answer_of(await client.send(user(), background=True))
            assert answer.items == [asked[0], asked[2]]
            name = answer.id
        else:
            name = await begun(client, endpoint, *asked)
        assert upstream.last.json["tools"][1]["require_approval"] == "always"
        assert (await client.read(name)).json["output"] == [asked[0], asked[2]]
        client.previous = name
        endpoint.says(message("done"))
        await client.say(approved(asked[0]), output(A, "found"))
    denied = approved(asked[1], False, reason=NO)
    assert endpoint.last["input"] == [approved(asked[0]), denied, output(A, "found")]


@pytest.mark.parametrize("after", [-1, 0, 3, 7, 11])
async def test_a_stream_that_is_taken_up_again_has_the_numbers_of_the_first(
    after: int, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """`starting_after` counts what the client was given: the events behind it are the same."""
    endpoint.says(*MIXED)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=True)
        answer = answer_of(await client.send(user(), background=True))
        first = answer.got.events
        got = await client.read(answer, f"?stream=true&starting_after={after}" if after >= 0 else "?stream=true")
    assert got.events == first[after + 1 :]
    read_strictly(first)
    assert [event["sequence_number"] for event in got.events] == list(range(after + 1, len(first)))
    assert not any("starting_after" in asked.target for asked in endpoint.others), "the upstream counts otherwise"


async def test_a_stream_of_the_background_that_is_first_read_as_one(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It is judged, split and counted like any other, once."""
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous")
        name = await begun(client, endpoint, *MIXED)
        first = answer_of(await client.read(name, "?stream=true"))
        second = answer_of(await client.read(name))
        third = answer_of(await client.read(name, "?stream=true"))
        assert first.items == second.items == third.items
        assert here.total("tool_calls_total") == 3
        client.previous = name
        endpoint.says(message("done", 2))
        await client.say(output(C, "capped"), output(first.items[2]["call_id"], "found"))
    assert endpoint.last["input"] == [output("call_1", "found"), output(B, NO), output(C, "capped")]


async def test_a_background_stream_whose_calls_are_all_held_ends(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """With the rule's message, without another call of the upstream."""
    endpoint.says(call(A, "delete"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=True)
        answer = answer_of(await client.send(user(), background=True))
        assert answer.texts == ["not here"]
        assert answer_of(await client.read(answer, "?stream=true")).response == answer.response
        assert (await client.read(answer)).json["output"] == answer.items
        assert here.total("tool_calls_total") == 1
    assert len(endpoint.asked) == 1


@both
@pytest.mark.parametrize("background", [False, True])
async def test_a_record_of_a_hosted_call_is_counted_once(
    background: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Reading it again counts nothing, in the background neither."""
    endpoint.says(ran("read"), message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams, tools=[server()])
        got = await client.send(user(), background=background)
        name = got.events[0]["response"]["id"] if streams else got.json["id"]
        await client.read(name)
        await client.read(name, "?stream=true")
        assert here.total("tool_calls_total", owner="upstream") == 1
