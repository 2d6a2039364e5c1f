"""What real clients of the Responses API do with a history, and what the upstream is to make of it all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import chat
from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, both
from tests.e2e.responses import PATH, A, B, C, Item, body, call, message, output, reasoning, reference, stream, user
from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
from tests.fake_upstream import Asked, Events, FakeUpstream, Reply, framed

NO = blocked("not here", "no")


@pytest.fixture
def endpoint(upstream: FakeUpstream) -> Endpoint:
    return Endpoint.on(upstream)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("stop", "stop", block={"message": "enough", "then": "stop"}),
    )


def without_ids(items: list[Item]) -> list[Item]:
    return [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items]


def renamed(items: list[Item]) -> list[Item]:
    """Items as a conversation gives them that they were put into: under ids of its own."""
    prefixes = {"reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
    return [
        {"type": "message", **item, "id": f"{prefixes.get(item.get('type', ''), 'msg')}_{number:040}"}
        for number, item in enumerate(items)
    ]


# ---------------------------------------------------------------- the response before, and what came behind it


@both
@pytest.mark.parametrize("by_reference", [False, True], ids=["items", "references"])
async def test_the_turn_so_far_beside_the_response_before_it(
    by_reference: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The AI SDK names the last response of the turn before in every step of a turn, and sends what the turn has come
    to: the upstream does not have these calls."""
    endpoint.says(message("Hello.", 1))
    endpoint.says(call(A, "delete"))
    endpoint.says(reasoning(1), call(B, "delete"), call(C, "search"))
    endpoint.says(message("Done.", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams)
        first = await client.say(user())
        second = await client.say(user("go on"))
        shown = [reference(item) for item in second.items] if by_reference else second.items
        client.previous = first.id
        answer = await client.say(user("go on"), *shown, output(C, "found"))
    assert answer.texts == ["Done."]
    held = [call(A, "delete"), output(A, NO)]
    batch = [reasoning(1), call(B, "delete"), call(C, "search"), output(B, NO), output(C, "found")]
    assert endpoint.seen[3] == [user(), message("Hello.", 1), user("go on"), *held, *batch]
    assert endpoint.refused == []


@both
async def test_a_turn_that_ended_beside_the_response_before_it(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The same with a turn that ended in text: its hidden rounds are not the upstream's either."""
    endpoint.says(message("Hello.", 1))
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not.", 2))
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams)
        first = await client.say(user())
        second = await client.say(user("go on"))
        client.previous = first.id
        await client.say(user("go on"), *second.items, user("bye"))
    turn = [user("go on"), call(A, "delete"), output(A, NO), message("I may not.", 2)]
    assert endpoint.seen[3] == [user(), message("Hello.", 1), *turn, user("bye")]


# ---------------------------------------------------------------- reasoning and ids


@both
async def test_calls_without_ids_and_without_reasoning(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A client that lets go of both: the upstream refuses a call by its id without the reasoning that led to it. What
    led to a held call alone is there, so that this keeps its id."""
    first = [reasoning(1), call(A, "search"), call(B, "delete")]
    endpoint.says(*first)
    endpoint.says(reasoning(2), call(C, "delete"))
    endpoint.says(message("Done."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        client.history = [user(), {**call(A, "search"), "id": None}]
        await client.say(output(A, "found"))
    batch = [{k: v for k, v in item.items() if k != "id"} for item in first[1:]]
    assert endpoint.seen[1] == [user(), *batch, output(A, "found"), output(B, NO)]
    assert endpoint.seen[2] == [*endpoint.seen[1], reasoning(2), call(C, "delete"), output(C, NO)]


@both
@pytest.mark.parametrize("ends_in_text", [True, False])
async def test_a_client_that_keeps_one_reasoning_of_a_response(
    ends_in_text: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """LangChain's older form has room for one: that of the last round of several comes back with what it led to."""
    last = message("I may not.", 1) if ends_in_text else call(B, "search")
    endpoint.says(reasoning(1), call(A, "delete"))
    endpoint.says(reasoning(2), last)
    endpoint.says(message("Bye.", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        client.history = [user(), *(item for item in answer.items if item != reasoning(2))]
        await client.say(user("more") if ends_in_text else output(B, "found"))
    end = user("more") if ends_in_text else output(B, "found")
    assert endpoint.seen[2] == [user(), reasoning(1), call(A, "delete"), output(A, NO), reasoning(2), last, end]


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("breaks_off", [False, True])
async def test_a_client_that_goes_away_with_the_last_event(
    breaks_off: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The conversation has the results that were owed to it, and gets them once; of an answer that broke off before its
    end nobody can say that."""
    endpoint.says(call(A, "stop"))
    endpoint.says(message("Fine.", 2))
    endpoint.says(message("Bye.", 3))
    forever = asyncio.Event()

    def lasting(asked: Asked) -> Reply:
        before = list(endpoint.conversations["conv_0001"])
        reply = endpoint(asked)
        assert isinstance(reply, Events)
        if breaks_off:
            endpoint.conversations["conv_0001"] = before
            return Events(reply.events[:-1], done=False)
        return Events([*reply.events, forever], done=False)

    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "conversation", streams=True)
        await client.say(user())
        upstream.script(lasting)
        if breaks_off:
            assert b"response.completed" not in (await client.send(user("more"))).data
        else:
            await reads_until(here, b"response.completed", PATH, client.request(user("more")))
            await upstream.gone.wait()
        await client.say(user("and?"))
    assert endpoint.refused == []
    owed = [output(A, blocked("enough", "stop"))]
    assert endpoint.seen[1][1:] == [call(A, "stop"), *owed, user("more")]
    said = [] if breaks_off else [user("more"), message("Fine.", 2)]
    assert endpoint.seen[2][1:] == [call(A, "stop"), *owed, *said, user("and?")]


@both
async def test_a_response_of_our_own_names_its_conversation(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """pydantic-ai sends again what it does not find in the conversation by that."""
    endpoint.says(call(A, "search"), call(B, "search"))
    endpoint.says(message("Done."))
    one = policy(tmp_path, rule("cap", "search", rewrite={"default": {"n": 1}}), batch={"maxParallel": 1})
    async with sidecall(upstream.url, policies=[one]) as here:
        client = Client(here, "conversation", streams)
        await client.say(user())
        answer = await client.say(output(A, "one"))
        assert (answer.names, answer.response["conversation"]) == (["search"], {"id": "conv_0001"})
        await client.say(output(B, "two"))
    assert endpoint.seen[1][-2:] == [output(A, "one"), output(B, "two")]


# ---------------------------------------------------------------- the last event


async def reads_until(here: Sidecall, last: bytes, path: str, sent: dict[str, Any]) -> None:
    """A client that goes away when it has read this."""
    headers = {"authorization": "Bearer one"}
    async with here.session.post(f"{here.url}{path}", json={**sent, "stream": True}, headers=headers) as answer:
        found = b""
        async for piece in answer.content.iter_any():
            found += piece
            if last in found:
                return
    raise AssertionError("it never came")


@pytest.mark.parametrize(
    ("api", "last", "runs"),
    [
        ("responses", b"response.completed", 2),
        ("responses", b"response.output_text.delta", 1),
        ("chat", b'"finish_reason": "stop"', 2),
        ("chat", b'"content": "Do"', 1),
    ],
)
async def test_the_same_request_behind_an_answer_that_was_seen(
    api: str, last: bytes, runs: int, upstream: FakeUpstream
) -> None:
    """It is a new one: its tools run again, also where the client went away with the last event and the upstream left
    its connection open. Behind an answer whose end the client did not have, what ran before is taken up."""
    forever = asyncio.Event()
    if api == "chat":
        path, sent = chat.PATH, chat.body(chat.user(), tools=("search",))
        rounds = [chat.stream(chat.call(A, "count")), chat.stream(text="Done.")]
    else:
        path, sent = PATH, body(user(), tools=["search"])
        rounds = [stream(call(A, "count")), stream(message("Done."), number=2)]
    at = next(n for n, event in enumerate(rounds[1].events) if last in framed(event))
    more = rounds[1].events[at + 1 :] if runs == 1 else []
    lasting = Events([*rounds[1].events[: at + 1], forever, *more], done=False)
    async with sidecall(upstream.url, tools=[upstream.tool("count", "three")]) as here:
        upstream.script(rounds[0], lasting)
        await reads_until(here, last, path, sent)
        await upstream.gone.wait()
        upstream.script(*(rounds if runs == 2 else rounds[1:]))
        got = await here.post({**sent, "stream": True}, path=path)
    assert (b"three" in upstream.requests[2].body) is (runs == 1)
    assert (got.status, len(upstream.runs["count"])) == (200, runs)


# ---------------------------------------------------------------- turns that are found by what was said


HELD = [reasoning(1, "one"), message("Let me see.", 1), call(A, "delete")]
SAID = [reasoning(2, "two"), message("I may not.", 2)]


async def history_behind(shown: Any, upstream: FakeUpstream, *, streams: bool, rules: str, **more: Any) -> list[Item]:
    """What the upstream sees of a turn with a hidden round when the client shows it in its way."""
    endpoint = Endpoint.on(upstream)
    endpoint.says(*HELD)
    endpoint.says(*SAID)
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "stateless", streams, more={"include": ["reasoning.encrypted_content"], **more})
        answer = await client.say(user())
        client.history = shown([user(), *answer.items])
        await client.say(user("more"))
    assert endpoint.refused == []
    return endpoint.seen[2]


@both
async def test_a_turn_whose_items_have_no_ids(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Nothing is stored, so some frameworks leave ids out: the hidden round stands in its place all the same."""
    seen = await history_behind(without_ids, upstream, streams=streams, rules=rules)
    whole = [user(), *HELD, output(A, NO), *SAID, user("more")]
    assert without_ids(seen) == without_ids(whole)


@both
async def test_a_turn_that_became_one_message(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """One message of all that was said: it stands at the end, behind what was hidden."""
    one = {"role": "assistant", "content": "Let me see.I may not."}
    seen = await history_behind(lambda _: [user(), one], upstream, streams=streams, rules=rules)
    assert without_ids(seen) == [user(), *without_ids([call(A, "delete")]), output(A, NO), one, user("more")]


@both
async def test_a_turn_with_reasoning_told_as_text(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Another framework tells reasoning again as messages of the assistant: those stay where they are."""

    def told(items: list[Item]) -> list[Item]:
        thought = {"role": "assistant", "content": "<think>Hm.</think>"}
        return [thought if item.get("type") == "reasoning" else item for item in without_ids(items)]

    seen = await history_behind(told, upstream, streams=streams, rules=rules)
    assert [item.get("type") or item["content"] for item in seen] == [
        *("hello", "<think>Hm.</think>", "<think>Hm.</think>"),
        *("message", "function_call", "function_call_output", "message", "more"),
    ]


@both
async def test_a_turn_that_went_through_a_conversation(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Its items come back under new ids, the user's too."""
    seen = await history_behind(renamed, upstream, streams=streams, rules=rules)
    expected = [user(), *HELD, output(A, NO), *SAID, user("more")]
    assert [without_type(item) for item in without_ids(seen)] == [without_type(i) for i in without_ids(expected)]


def without_type(item: Item) -> Item:
    return item if item.get("type") != "message" else {k: v for k, v in item.items() if k != "type"}


@both
async def test_a_stopped_turn_without_ids(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The calls that were not run, and their results, stand before the message."""
    endpoint.says(call(A, "stop"))
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "stateless", streams)
        answer = await client.say(user())
        client.history = [user(), *without_ids(answer.items)]
        await client.say(user("more"))
    stopped = [*without_ids([call(A, "stop")]), output(A, blocked("enough", "stop"))]
    assert without_ids(endpoint.seen[1]) == [user(), *stopped, *without_ids(answer.items), user("more")]


@both
async def test_another_answer_of_the_same_words(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """An id that the ledger does not know is another answer's: nothing is put before that."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not.", 1))
    endpoint.says(message("I may not.", 2))
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, streams=streams).say(user())
        client = Client(here, streams=streams)
        await client.say(user())
        await client.say(user("more"))
    assert endpoint.seen[3] == [user(), message("I may not.", 2), user("more")]


@both
@pytest.mark.parametrize("asked", ["hello", "hello!"])
async def test_a_turn_of_another_conversation(
    asked: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Without ids a turn is found by the whole conversation before it."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not.", 1))
    endpoint.says(message("Bye.", 3))
    said = {"role": "assistant", "content": "I may not."}
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, streams=streams).say(user())
        client = Client(here, streams=streams)
        await client.say(user(asked), said, user("more"))
    found = [call(A, "delete"), output(A, NO)] if asked == "hello" else []
    assert endpoint.seen[2] == [user(asked), *found, said, user("more")]
