"""Turns and histories: hidden rounds put back, limits of a turn, results trimmed, orphans repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import A, B, C, Message, answer, blocked, body, call, follow, history, result, said, stream, user
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

TOOLS = ("search", "delete", "ping")
LIMIT = "The limit of tool calls for one answer was reached."


@pytest.fixture(params=["whole", "stream"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "stream")


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("no", "delete", block={"message": "no"}),
        rule("pong", "ping", answer={"content": "pong"}),
        rule("long", "read", answer={"content": "x" * 600}),
        rule("halt", "halt", block={"message": "That is all.", "then": "stop"}),
    )


def made(streams: bool, *calls: Message, text: str = "", finish: str | None = None) -> Whole | Events:
    if streams:
        return stream(*calls, text=text, finish=finish)
    return answer(*calls, text=text or None, finish=finish)


async def ask(here: Sidecall, streams: bool, *messages: Message, **more: Any) -> Message:
    """The message and its finish reason."""
    got: Got = await here.post(body(*messages, tools=TOOLS, stream=streams, **more))
    assert got.status == 200, got.data
    if streams:
        assert got.data.endswith(b"data: [DONE]\n\n")
        assert sum("role" in c["delta"] for e in got.events for c in e["choices"]) == 1
        assert len({e["id"] for e in got.events}) == 1
        return got.assembled()
    first = got.json["choices"][0]
    return {**first["message"], "finish": first["finish_reason"]}


async def test_hidden_rounds_come_back_on_the_next_turn(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """The model still knows what its tools told it, with each round's own text, and the same on every request."""
    one, two = call(A, "ping"), call(B, "delete")
    upstream.script(made(streams, one, text="First."), made(streams, two, text="Second."), made(streams, text="Done."))
    upstream.always(made(streams, text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await ask(here, streams, user())
        assert (got["content"], got["finish"]) == ("First.\n\nSecond.\n\nDone.", "stop")
        shown = said(text=got["content"])
        hidden = [
            user(),
            said(one, text="First."),
            result(A, "pong"),
            said(two, text="Second."),
            result(B, blocked("no", "no")),
            said(text="Done."),
        ]
        for next_one in ([user("and?")], [user("and?"), said(text="ok"), user("so?")]):
            await ask(here, streams, user(), shown, *next_one)
            assert history(upstream.last) == [*hidden, *next_one]
        parts = {"role": "assistant", "content": [{"type": "text", "text": got["content"]}], "refusal": None}
        await ask(here, streams, user(), parts, user("and?"))
        assert [m["content"] for m in history(upstream.last)][-2:] == ["Done.", "and?"]
        assert len(history(upstream.last)) == len(hidden) + 1
        await ask(here, streams, user("another"), shown, user("and?"))
        assert history(upstream.last) == [user("another"), shown, user("and?")]


async def test_another_tenant_finds_nothing(rules: str, upstream: FakeUpstream) -> None:
    """Batches and hidden rounds belong to a credential."""
    batch = [call(A, "delete"), call(B, "search")]
    upstream.script(answer(*batch), answer(call(C, "ping")), answer(text="done"))
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        message = (await here.post(body(tools=TOOLS))).message
        await here.post(body(tools=TOOLS))
        for sent in (follow(message, "found"), [user(), said(text="done"), user("and?")]):
            await here.post(body(*sent, tools=TOOLS), key="two")
            assert upstream.last.messages == sent
            await here.post(body(*sent, tools=TOOLS))
            assert len(upstream.last.messages) == len(sent) + (1 if sent[1] is message else 2)


async def test_hidden_rounds_before_a_mixed_batch(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """They stand before the batch of their turn."""
    one, batch = call(A, "ping"), [call(B, "search", q="x"), call(C, "delete")]
    upstream.script(made(streams, one, text="First."), made(streams, *batch, text="Second."))
    upstream.always(made(streams, text="done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await ask(here, streams, user())
        assert (got["content"], got["finish"], len(got["tool_calls"])) == ("First.\n\nSecond.", "tool_calls", 1)
        await ask(here, streams, *follow(said(*got["tool_calls"], text=got["content"]), "found"))
    assert history(upstream.last) == [
        user(),
        said(one, text="First."),
        result(A, "pong"),
        said(*batch, text="Second."),
        result(B, "found"),
        result(C, blocked("no", "no")),
    ]


async def test_the_limit_of_continuations(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """After `max` calls beyond the first, one last one allows no calls; those that come all the same are dropped."""
    upstream.script(*(made(streams, call(f"call_{n:024}", "ping")) for n in range(4)))
    async with sidecall(upstream.url, policies=[rules], continuations={"max": 2}) as here:
        got = await ask(here, streams, user(), tool_choice="required")
    assert (got["content"], got["finish"], "tool_calls" in got) == (LIMIT, "stop", False)
    choices = [asked.json.get("tool_choice") for asked in upstream.requests]
    assert choices == ["required", "auto", "auto", "none"]


async def test_rounds_of_errors(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """`maxConsecutiveErrors` counts rounds, and a good result in one starts it again."""
    bad, good = [call(A, "delete"), call(B, "delete")], [call(A, "delete"), call(C, "ping")]
    rounds = [bad, good, bad, bad]
    upstream.script(*(made(streams, *calls) for calls in rounds), made(streams, text="I give up."))
    bounds = {"maxConsecutiveErrors": 2}
    async with sidecall(upstream.url, policies=[rules], continuations=bounds, denials={"stopAfter": 50}) as here:
        got = await ask(here, streams, user())
    assert got["content"] == "I give up."
    assert [asked.json.get("tool_choice") for asked in upstream.requests] == [None, None, None, None, "none"]


async def test_a_model_that_keeps_asking_is_stopped(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """After `stopAfter` blocked calls in a row, hidden and split ones counted, a block ends the turn."""
    upstream.script(
        made(streams, call(A, "search"), call(B, "delete")),
        made(streams, call(C, "delete"), text="Again."),
        made(streams, call(f"{A}2", "delete"), call(f"{B}2", "search"), text="And again."),
    )
    async with sidecall(upstream.url, policies=[rules], denials={"stopAfter": 2}) as here:
        first = await ask(here, streams, user())
        got = await ask(here, streams, *follow(said(*first["tool_calls"]), "found"))
    assert (got["content"], got["finish"], "tool_calls" in got) == ("Again.\n\nAnd again.\n\nno", "stop", False)
    assert len(upstream.requests) == 3


async def test_a_rule_that_stops_the_turn(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """No call of the batch is surfaced, and the message becomes the text."""
    upstream.script(made(streams, call(A, "search"), call(B, "halt")))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await ask(here, streams, user())
    assert (got["content"], got["finish"], "tool_calls" in got) == ("That is all.", "stop", False)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_turn_that_was_cut_short(finish: str, streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Nothing runs and nothing is continued; held calls are left out all the same."""
    upstream.script(made(streams, call(A, "search"), call(B, "delete"), call(C, "count"), finish=finish))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count", execution="eager")]) as here:
        got = await ask(here, streams, user())
        assert here.value("deferred_calls") == 0
    assert ([c["id"] for c in got["tool_calls"]], got["finish"]) == ([A], finish)
    assert not upstream.runs["count"]
    assert len(upstream.requests) == 1


async def test_old_results_are_trimmed(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Of hidden results beyond `restoreBytes` the oldest go first, and the same on every request."""
    upstream.script(
        made(streams, call(A, "read"), call(B, "ping")), made(streams, call(C, "read")), made(streams, text="done")
    )
    upstream.always(made(streams, text="ok"))
    async with sidecall(upstream.url, policies=[rules], continuations={"restoreBytes": "1Ki"}) as here:
        await ask(here, streams, user())
        assert [m["content"] for m in history(upstream.last) if m["role"] == "tool"] == ["x" * 600, "pong", "x" * 600]
        for _ in range(2):
            await ask(here, streams, user(), said(text="done"), user("and?"))
            shown = [m["content"] for m in history(upstream.last) if m["role"] == "tool"]
            assert shown == ["(trimmed)", "pong", "x" * 600]


async def test_orphans_are_repaired_when_asked_for(rules: str, upstream: FakeUpstream) -> None:
    """Each call without a result gets an error, behind the results that are there; without the setting nothing does."""
    upstream.always(answer(text="ok"))
    sent = [user(), said(call(A, "search"), call(B, "search")), result(B, "found"), user("never mind")]
    async with sidecall(upstream.url, policies=[rules]) as here:
        await here.post(body(*sent, tools=TOOLS))
        assert upstream.last.messages == sent
    async with sidecall(upstream.url, policies=[rules], orphans="repair") as here:
        await here.post(body(*sent, tools=TOOLS))
        repaired = result(A, "Error: there is no result for this call.")
        assert upstream.last.messages == [*sent[:3], repaired, sent[3]]


async def test_other_requests_release_nothing(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """A title that is written meanwhile changes nothing, and the batch is put back later."""
    batch = [call(A, "search"), call(B, "count", n=1)]
    upstream.script(made(streams, *batch))
    upstream.always(made(streams, text="ok"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        got = await ask(here, streams, user())
        shown = said(*got["tool_calls"])
        title = [user(), shown, user("Write a title.")]
        await ask(here, streams, *title)
        assert upstream.last.messages == title
        assert not upstream.runs["count"]
        await ask(here, streams, *follow(shown, "found"))
        assert history(upstream.last) == [user(), said(*batch), result(A, "found"), result(B, "ran")]


async def test_an_upstream_error_consumes_nothing(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """The same request, sent again after an error, gets the same history."""
    batch = [call(A, "search"), call(B, "count", n=1)]
    refused = Whole({"error": {"message": "later", "type": "x"}}, 503)
    upstream.script(made(streams, *batch), refused, made(streams, text="done"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        got = await ask(here, streams, user())
        sent = body(*follow(said(*got["tool_calls"]), "found"), tools=TOOLS, stream=streams)
        failed = await here.post(sent)
        assert (failed.status, failed.json) == (503, refused.body)
        await here.post(sent)
    assert upstream.requests[1].body == upstream.requests[2].body
    assert len(upstream.runs["count"]) == 1


async def test_arguments_that_a_client_edits_stay_its_own(rules: str, upstream: FakeUpstream) -> None:
    """A client's own words about its call are believed, held calls come from the record."""
    batch = [call(A, "search", q="x"), call(B, "delete", id=1)]
    upstream.script(answer(*batch))
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await here.post(body(tools=TOOLS))
        edited = {**batch[0], "function": {"name": "search", "arguments": json.dumps({"q": "y"})}}
        await here.post(body(*follow(said(edited), "found"), tools=TOOLS))
    assert history(upstream.last)[1] == said(edited, batch[1])


async def test_weak_ids_get_fresh_ones(streams: bool, rules: str, upstream: FakeUpstream) -> None:
    """Ids that may come again are replaced for the client; the upstream gets its own back."""
    batch = [call("call_0", "search", q="x"), call("", "search", q="y"), call("call_1", "delete")]
    upstream.script(made(streams, *batch), made(streams, *batch))
    upstream.always(made(streams, text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        first = await ask(here, streams, user())
        second = await ask(here, streams, user("two"))
        ids = [c["id"] for got in (first, second) for c in got["tool_calls"]]
        assert len(set(ids)) == 4
        assert all(len(i) == 29 and i.startswith("call_") for i in ids)
        await ask(here, streams, *follow(said(*first["tool_calls"]), "one", "two"))
    no = result("call_1", blocked("no", "no"))
    assert history(upstream.last) == [user(), said(*batch), result("call_0", "one"), result("", "two"), no]
