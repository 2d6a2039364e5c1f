"""A governed request for a response: what its history brings back, and what the upstream is still owed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chat import answer, blocked
from tests.e2e.chat import call as chat_call
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both
from tests.e2e.responses import PATH, A, B, C, D, call, custom, message, output, plain, reasoning, user, whole
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, Whole

NO = blocked("not here", "no")
E, F = (f"call_{letter * 24}" for letter in "EF")


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        rule("enough", "stop", block={"message": "that is enough", "then": "stop"}),
        rule("never", "fail", block={"message": "never", "then": "fail"}),
    )


@both
@all_manners
async def test_a_mixed_batch_is_put_back_whole(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The model sees all of its calls, with every result, whoever keeps the conversation; on later turns too."""
    batch = [reasoning(1, "secret"), call(A, "delete", id=1), call(B, "search", q="x"), call(C, "search", q="y")]
    endpoint.says(*batch)
    endpoint.says(message("done", 1))
    endpoint.says(message("bye", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        first = await client.say(user())
        assert plain(first.items) == plain([batch[0], batch[2], batch[3]])
        await client.say(output(C, "two"), output(B, "one"))
        seen = [user(), *batch, output(A, NO), output(B, "one"), output(C, "two")]
        assert plain(endpoint.seen[1]) == plain(seen)
        await client.say(user("more"))
        assert plain(endpoint.seen[2]) == plain([*seen, message("done"), user("more")])
        assert endpoint.seen[2][: len(seen)] == endpoint.seen[1]


@both
@all_manners
async def test_hidden_rounds_before_a_mixed_batch_stand_before_it(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Also on later turns, with their reasoning and their text."""
    hidden = [reasoning(1, "one"), message("Hm.", 1), call(A, "delete")]
    batch = [reasoning(2, "two"), call(B, "search", q="x"), call(C, "delete")]
    for said in (hidden, batch, [message("done", 2)], [message("bye", 3)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        first = await client.say(user())
        assert plain(first.items) == plain([*hidden[:2], *batch[:2]])
        await client.say(output(B, "found"))
        await client.say(user("more"))
    seen = [user(), *hidden, output(A, NO), *batch, output(B, "found"), output(C, NO)]
    assert plain(endpoint.seen[2]) == plain(seen)
    assert plain(endpoint.seen[3]) == plain([*seen, message("done"), user("more")])
    assert endpoint.seen[3][: len(seen)] == endpoint.seen[2]


@both
@all_manners
async def test_two_mixed_batches_in_one_turn(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Each stands where it stood."""
    one = [reasoning(1, "one"), call(A, "delete"), call(B, "search", q="x")]
    two = [reasoning(2, "two"), call(C, "search", q="y"), custom(D, "delete", "it")]
    for said in (one, two, [message("done")]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(B, "found"))
        await client.say(output(C, "too"))
    seen = [user(), *one, output(A, NO), output(B, "found")]
    seen += [*two, output(C, "too"), output(D, NO, "custom_tool_call")]
    assert plain(endpoint.seen[2]) == plain(seen)


@both
@all_manners
async def test_a_turn_that_a_rule_stopped_is_whole_on_the_next(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The message is the text of the answer. Where the upstream has its calls, they get results; where it has not, it
    does not hear of them."""
    stopped = [reasoning(1, "one"), message("Well.", 1), call(A, "search"), call(B, "stop")]
    for said in (stopped, [message("bye", 2)], [message("still", 3)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        answer = await client.say(user())
        assert (answer.texts, answer.calls) == (["Well.", "that is enough"], [])
        assert answer.response["status"] == "completed"
        await client.say(user("more"))
        await client.say(user("and more"))
    results = [output(A, "(not run: the turn was ended)"), output(B, blocked("that is enough", "enough"))]
    own = [message("that is enough")] if manner in ("full", "stateless") else []
    assert plain(endpoint.seen[1]) == plain([user(), *stopped, *results, *own, user("more")])
    assert plain(endpoint.seen[2]) == plain([*endpoint.seen[1], message("bye"), user("and more")])
    assert endpoint.seen[2][: len(endpoint.seen[1])] == endpoint.seen[1]


@both
async def test_what_is_owed_to_a_response_is_owed_to_every_branch_of_it(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Two requests that build on one response both bring the results."""
    for said in ([call(A, "stop")], [message("one", 1)], [message("two", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams)
        await client.say(user())
        await client.send(user("one"))
        await client.send(user("two"))
    owed = output(A, blocked("that is enough", "enough"))
    assert [asked["input"] for asked in endpoint.asked[1:]] == [[owed, user("one")], [owed, user("two")]]


@both
async def test_what_is_owed_to_a_conversation_is_owed_once(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It has the results from then on; a request that failed did not bring them."""
    endpoint.says(call(A, "stop"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", streams)
        await client.say(user())
        upstream.script(Whole({"error": {"message": "later", "type": "x"}}, 503))
        assert (await client.send(user("one"))).status == 503
        endpoint.says(message("one", 1))
        endpoint.says(message("two", 2))
        await client.say(user("one"))
        await client.say(user("two"))
    owed = output(A, blocked("that is enough", "enough"))
    assert [asked["input"] for asked in endpoint.asked[1:]] == [[owed, user("one")], [user("two")]]


async def test_a_conversation_of_a_turn_that_a_rule_failed_is_owed_results(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The client was refused the answer, and the conversation has it all the same."""
    endpoint.says(call(A, "search"), call(B, "fail"))
    endpoint.says(message("one"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation")
        assert (await client.send(user())).status == 403
        await client.say(user("more"))
    owed = [output(A, "(not run: the turn was ended)"), output(B, blocked("never", "never"))]
    assert endpoint.last["input"] == [*owed, user("more")]


async def test_a_response_that_a_rule_failed_behind_its_first_events_is_owed_results(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The client has its id, and may build on it."""
    endpoint.says(message("Hm."), call(A, "search"), call(B, "fail"))
    endpoint.says(message("one", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams=True)
        got = await client.send(user())
        assert got.events[-1]["type"] == "error"
        client.previous = got.events[0]["response"]["id"]
        await client.say(user("more"))
    owed = [output(A, "(not run: the turn was ended)"), output(B, blocked("never", "never"))]
    assert endpoint.last["input"] == [*owed, user("more")]


@pytest.mark.parametrize("sent", [b"[]", b"", b"no", b"{}"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_calls_that_answer_what_is_no_request(sent: bytes, path: str, rules: str, upstream: FakeUpstream) -> None:
    """There is nothing to go on with: the upstream is at fault."""
    upstream.script(whole(call(A, "delete")) if path == PATH else answer(chat_call(A, "delete")))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(sent, path=path)
    assert (got.status, got.error["type"]) == (502, "upstream_error")
    assert len(upstream.requests) == 1


@both
@all_manners
async def test_a_model_that_keeps_asking_is_stopped(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Calls that were blocked in a row are counted over several requests, whoever remembers them."""
    for said in (
        [call(A, "search"), call(B, "delete"), call(C, "delete")],
        [call(D, "delete"), call(E, "search")],
        [call(F, "delete")],
        [message("ok", 2)],
    ):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules], denials={"stopAfter": 2}) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        second = await client.say(output(A, "found"))
        assert (second.names, second.texts) == ([], ["not here"]), "two were blocked before this batch came"
        third = await client.say(user("again"))
        assert third.texts == ["ok"], "the user's words start the count again"
    assert len(endpoint.asked) == 4
