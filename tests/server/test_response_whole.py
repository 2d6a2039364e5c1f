"""Answers to requests for a response: what is continued, what the client sees of several rounds, what passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both
from tests.e2e.responses import (
    PATH,
    USAGE,
    A,
    B,
    C,
    call,
    custom,
    message,
    output,
    plain,
    reasoning,
    stream,
    user,
    whole,
)
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, Whole

NO = blocked("not here", "no")
LIMIT = "The limit of tool calls for one answer was reached."


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        rule("pong", "ping", answer={"content": "pong"}),
        rule("never", "fail", block={"message": "never", "then": "fail"}),
    )


@both
@all_manners
async def test_a_batch_that_is_held_whole_is_continued(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The model is told, the client sees one response without the call, and the next turn has it all again."""
    held = [reasoning(1, "secret"), message("Let me see.", 1), call(A, "delete", id=1), custom(B, "delete", "it")]
    endpoint.says(*held)
    endpoint.says(message("I may not.", 2))
    endpoint.says(message("Bye.", 3))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        answer = await client.say(user())
        assert answer.items == [*held[:2], message("I may not.", 2)]
        assert answer.id == f"resp_{1 if streams else 2:048}"
        assert answer.response["created_at"] == 1760000001
        assert answer.response["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]
        assert answer.response["usage"]["input_tokens_details"] == {"cached_tokens": 4}
        await client.say(user("more"))
        assert here.value("continuations_total", api="responses", end="text") == 1
    results = [output(A, NO), output(B, NO, "custom_tool_call")]
    assert plain(endpoint.seen[1]) == plain([user(), *held, *results])
    assert plain(endpoint.seen[2]) == plain([*endpoint.seen[1], message("I may not.", 2), user("more")])
    assert endpoint.seen[2][: len(endpoint.seen[1])] == endpoint.seen[1], "the same bytes again"


@both
async def test_reasoning_that_was_not_stored_goes_back_with_its_encrypted_content_alone(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What nobody keeps and cannot be read back stays out of the continuation; the client sees it all the same."""
    endpoint.says(reasoning(1), call(A, "delete"), reasoning(2, "secret"), call(B, "delete"))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, "stateless", streams).say(user())
    assert answer.items == [reasoning(1), reasoning(2, "secret"), message("I may not.")]
    calls = [{k: v for k, v in call(i, "delete").items() if k != "id"} for i in (A, B)]
    assert endpoint.last["input"][1:4] == [calls[0], reasoning(2, "secret"), calls[1]]


@both
async def test_a_string_is_an_input(streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """In a continuation it is the user's message, as it was spelled; all else of the request stays as it came."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not."))
    sent = (
        b'{"input": "h\\u00e9", "model":"m", "temperature": 1.10, "seed": 9007199254740993, "stream":%s}'
        % str(streams).lower().encode()
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        await here.post(sent, path=PATH)
    again = upstream.last.body
    assert endpoint.last["input"] == [user("hé"), call(A, "delete"), output(A, NO)]
    assert b'"h\\u00e9"' in again
    assert b'"temperature": 1.10, "seed": 9007199254740993' in again


@both
@all_manners
async def test_several_hidden_rounds_stand_before_the_answer_on_the_next_turn(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Each with its own reasoning and text, in order, before the message that ended the turn."""
    first = [reasoning(1, "one"), call(A, "delete")]
    second = [reasoning(2, "two"), message("Hm.", 1), call(B, "ping")]
    last = [reasoning(3, "three"), message("Done.", 2)]
    for said in (first, second, last, [message("Bye.", 3)], [message("Still.", 4)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        answer = await client.say(user())
        assert plain(answer.items) == plain([first[0], *second[:2], *last])
        await client.say(user("more"))
        await client.say(user("and more"))
    seen = [user(), *first, output(A, NO), *second, output(B, "pong"), *last, user("more")]
    assert plain(endpoint.seen[3]) == plain(seen)
    assert endpoint.seen[4][: len(seen)] == endpoint.seen[3]


@both
async def test_hidden_rounds_of_an_answer_without_a_message_item_of_another_turn_stay_where_they_are(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A conversation that does not show the answer gets nothing of the rounds behind it."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not.", 1))
    endpoint.says(message("Bye.", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, "full", streams).say(user())
        await Client(here, "full", streams).say(user("something else"))
    assert endpoint.seen[2] == [user("something else")]


@both
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "auto"),
        ({"type": "function", "name": "delete"}, "auto"),
        ({"type": "custom", "name": "delete"}, "auto"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "delete"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "delete"}]},
        ),
        ("auto", "auto"),
    ],
)
async def test_a_forced_call_is_not_forced_again(
    choice: Any, expected: Any, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A choice that insists on a call is relaxed in a continuation."""
    endpoint.says(call(A, "delete"))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, streams=streams).say(user(), tool_choice=choice)
    assert [r["tool_choice"] for r in endpoint.asked] == [choice, expected]


@both
@all_manners
async def test_the_limit_of_continuations(
    streams: bool, manner: str, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """One last call allows no calls; those that come all the same are dropped, and a sentence says why."""
    for number, call_id in enumerate((A, B, C), 1):
        endpoint.says(reasoning(number, "x"), call(call_id, "ping"))
    endpoint.says(message("Bye.", 9))
    async with sidecall(upstream.url, policies=[rules], continuations={"max": 1}) as here:
        client = Client(here, manner, streams)
        answer = await client.say(user())
        assert answer.texts == [LIMIT]
        assert not answer.calls
        assert "none" not in [r.get("tool_choice") for r in endpoint.asked[:2]]
        assert endpoint.last["tool_choice"] == "none"
        await client.say(user("more"))
        assert here.value("continuations_total", api="responses", end="limit") == 1
    rounds = [(reasoning(n, "x"), call(c, "ping"), output(c, "pong")) for n, c in enumerate((A, B, C), 1)]
    own = [message(LIMIT)] if manner in ("full", "stateless") else []
    seen = [user(), *(item for items in rounds for item in items), *own, user("more")]
    assert plain(endpoint.seen[3]) == plain(seen), "dropped calls have results too"


@both
async def test_a_limit_keeps_the_text_of_the_last_round(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Where something is left to show, no sentence is added."""
    endpoint.says(call(A, "ping"))
    endpoint.says(message("So far."), call(B, "ping"))
    async with sidecall(upstream.url, policies=[rules], continuations={"max": 0}) as here:
        answer = await Client(here, streams=streams).say(user())
    assert (answer.texts, answer.calls) == (["So far."], [])


@both
async def test_rounds_of_nothing_but_errors_end_the_turn(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Two in a row are as many as the setting says; then no more calls are allowed."""
    endpoint.says(call(A, "delete"))
    endpoint.says(call(B, "delete"))
    endpoint.says(message("I give up."))
    async with sidecall(upstream.url, policies=[rules], continuations={"maxConsecutiveErrors": 2}) as here:
        answer = await Client(here, streams=streams).say(user())
        assert here.value("continuations_total", api="responses", end="errors") == 1
    assert answer.texts == ["I give up."]
    assert endpoint.last["tool_choice"] == "none"


async def test_who_parses_the_text_gets_that_of_the_last_round_alone(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Under a format of JSON an answer in one piece is one JSON text."""
    endpoint.says(reasoning(1), message("{}", 1), call(A, "delete"))
    endpoint.says(message('{"a": 1}', 2))
    form = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here).say(user(), text=form)
    assert answer.items == [reasoning(1), message('{"a": 1}', 2)]


@both
async def test_a_rule_that_fails_the_request(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """403, or an error event where the stream has begun."""
    upstream.script(
        stream(message("Well."), call(A, "search"), call(B, "fail"))
        if streams
        else whole(message("Well."), call(A, "search"), call(B, "fail"))
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=streams).send(user())
    assert got.status == (200 if streams else 403)
    assert (got.error["code"], got.error["message"]) == ("tool_call_blocked", "never")
    assert A.encode() not in got.data


@both
async def test_what_the_upstream_refuses_in_the_middle_is_the_answer(
    streams: bool, rules: str, upstream: FakeUpstream
) -> None:
    """Its error, with its status; in a stream as an error event."""
    refused = {"error": {"message": "slow down", "type": "rate", "param": None, "code": "rate_limit"}}
    upstream.script(stream(call(A, "delete")) if streams else whole(call(A, "delete")), Whole(refused, 429))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=streams).send(user())
        assert here.value("continuations_total", api="responses", end="upstream_error") == 1
    assert got.status == (200 if streams else 429)
    assert (got.error["message"], got.error["code"]) == ("slow down", "rate_limit")
    assert A.encode() not in got.data


# ---------------------------------------------------------------- what passes


ODD = (
    b'{ "id":"resp_1", "output":[ {"type":"reasoning","id":"rs","n":1.10 } ,{"type":"function_call","id":"fc_1",'
    b'"call_id":"call_1","name":"search","arguments":"{}"} ],"usage":null,"z":9007199254740993 }'
)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (ODD, 200),
        (b'{"error":{"message":"no","type":"x"}}', 200),
        (b'{"error":{"message":"no","type":"x"}}', 400),
        (b'{"error":{"message":"no","type":"x"}}', 503),
        (b"not json", 200),
        (b"<html>function</html>", 502),
        (b'{"output": "text"}', 200),
        (b"[]", 200),
    ],
)
async def test_what_holds_no_call_to_change_passes_byte_for_byte(
    data: bytes, status: int, rules: str, upstream: FakeUpstream
) -> None:
    """Answers without a held call, errors, and what is no response at all."""
    upstream.script(Whole(data, status, {"x-request-id": "up"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here).send(user())
    assert (got.status, got.data, got.headers["x-request-id"]) == (status, data, "up")
    assert "x-sidecall-request-id" not in got.headers


@pytest.mark.parametrize(
    "data",
    [
        b'\xef\xbb\xbf[{"type":"function_call","name":"delete"}]',
        b'{"outputs":[{"type":"shell_call","call_id":"c"}]}',
        b'{"id":"x","choices":[{"message":{"tool_calls":[{"id":"x"}]}}]}',
        b'{"output":{"type":"function_call","name":"delete"}}',
        ODD + b" trailing",
        b"\xef\xbb\xbf" + ODD,
    ],
)
async def test_what_is_no_response_and_holds_a_call_is_refused(data: bytes, rules: str, upstream: FakeUpstream) -> None:
    """502: a client may read more into it than a strict reader does."""
    upstream.script(Whole(data))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here).send(user())
    assert got.status == 502
    assert got.error["type"] == "upstream_error"


async def test_an_oddly_written_response_is_governed(rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """What no JSON may hold and many readers take hides no call."""
    upstream.script(Whole(ODD.replace(b"search", b"delete").replace(b"1.10", b"NaN")))
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here).say(user())
    assert [item["type"] for item in answer.items] == ["reasoning", "message"]


@both
@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
async def test_a_turn_that_was_cut_short_is_not_continued(
    status: str, streams: bool, rules: str, upstream: FakeUpstream
) -> None:
    """Its held calls are left out, nothing of it runs; what else came is what the upstream sent."""
    items = [message("Well."), call(A, "search"), call(B, "delete"), call(C, "count")]
    about: dict[str, Any] = {"status": status, "incomplete_details": {"reason": "max_output_tokens"}}
    upstream.script(stream(*items, **about) if streams else whole(*items, **about))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        answer = await Client(here, streams=streams, tools=("search",)).say(user())
    assert answer.items == items[:2]
    assert answer.response["status"] == status
    assert answer.response["incomplete_details"] == about["incomplete_details"]
    assert not upstream.runs["count"]
    assert len(upstream.requests) == 1


@both
async def test_a_rewritten_call_is_rewritten_wherever_it_stands(
    streams: bool, rules: str, upstream: FakeUpstream
) -> None:
    """Its arguments alone; a custom tool's input too."""
    items = [call(A, "cap", limit=500, q="x"), call(B, "search", limit=500)]
    upstream.script(stream(*items) if streams else whole(*items))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=streams).say(user())
    assert json.loads(answer.items[0]["arguments"]) == {"limit": 10, "q": "x"}
    assert {**answer.items[0], "arguments": items[0]["arguments"]} == items[0]
    assert answer.items[1] == items[1]


@both
async def test_too_many_calls_are_refused(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """A batch beyond the limit is an error, and no call of it is shown whole."""
    items = [call(f"call_{n:024}", "search") for n in range(4)]
    upstream.script(stream(*items) if streams else whole(*items))
    async with sidecall(upstream.url, policies=[rules], limits={"batchCalls": 3}) as here:
        got = await Client(here, streams=streams).send(user())
    assert got.status == (200 if streams else 502)
    assert got.error["type"] == "upstream_error"
    assert b"response.completed" not in got.data


@both
async def test_every_call_is_counted_once(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Under its API, the rule that decided it, and the kind of its batch."""
    endpoint.says(call(A, "search"), call(B, "delete"))
    endpoint.says(call(C, "delete"))
    endpoint.says(message("Done."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams)
        await client.say(user())
        await client.say(output(A, "found"))
        api = {"api": "responses"}
        assert here.total("tool_calls_total", tool="search", decision="allowed", **api) == 1
        assert here.total("tool_calls_total", tool="delete", decision="blocked", policy="p", rule="no", **api) == 2
        assert here.total("tool_calls_total") == 3
        assert here.value("batches_total", kind="mixed", **api) == 1
        assert here.value("batches_total", kind="held", **api) == 1
        assert here.value("rejoins_total", outcome="rejoined", **api) == 1
        assert here.total("tool_results_total", tool="search", outcome="ok") == 1
        assert here.value("requests_total", stream=str(streams).lower(), status="200", **api) == 2
