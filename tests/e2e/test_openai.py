"""The `openai` package as a client that knows nothing of Sidecall: sync and async, whole and as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage

from tests.e2e.chat import (
    A,
    B,
    C,
    D,
    Message,
    answer,
    blocked,
    call,
    chunk,
    events,
    history,
    result,
    said,
    stream,
    user,
)
from tests.e2e.chat import tool as declared
from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
from tests.fake_upstream import Cut, Events, FakeUpstream, Whole

E = "call_EEEEEEEEEEEEEEEEEEEEEEEE"
TOOLS: list[Any] = [declared(name) for name in ("search", "show", "delete")]
ADD = {"name": "add", "python": "tests.e2e.sample_tools:add"}


class Talk:
    """One conversation over one way to use the SDK: `ask` gives the message as a client keeps it."""

    def __init__(self, url: str, way: str, retries: int) -> None:
        self.way = way
        kinds = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}
        kind: Any = kinds[way.partition(" ")[0]]
        self.client: Any = kind(base_url=f"{url}/v1", api_key="one", max_retries=retries, timeout=20)

    async def ask(self, messages: list[Message], **more: Any) -> Message:
        if isinstance(self.client, openai.OpenAI):
            return await asyncio.to_thread(self._sync, messages, more)
        return await self._async(messages, more)

    def _sync(self, messages: list[Message], more: dict[str, Any]) -> Message:
        asked: dict[str, Any] = {"model": "gpt-test", "messages": messages, "tools": TOOLS, **more}
        match self.way.partition(" ")[2]:
            case "whole":
                return kept(self.client.chat.completions.create(**asked).choices[0].message)
            case "stream":
                return joined(list(self.client.chat.completions.create(stream=True, **asked)))
            case _:
                with self.client.chat.completions.stream(**asked) as found:
                    return kept(found.get_final_completion().choices[0].message)

    async def _async(self, messages: list[Message], more: dict[str, Any]) -> Message:
        asked: dict[str, Any] = {"model": "gpt-test", "messages": messages, "tools": TOOLS, **more}
        match self.way.partition(" ")[2]:
            case "whole":
                return kept((await self.client.chat.completions.create(**asked)).choices[0].message)
            case "stream":
                return joined([c async for c in await self.client.chat.completions.create(stream=True, **asked)])
            case _:
                async with self.client.chat.completions.stream(**asked) as found:
                    return kept((await found.get_final_completion()).choices[0].message)

    async def close(self) -> None:
        if isinstance(self.client, openai.OpenAI):
            self.client.close()
        else:
            await self.client.close()


def kept(message: ChatCompletionMessage) -> Message:
    calls = [json.loads(c.to_json()) for c in message.tool_calls or []]
    plain = [{k: v for k, v in c.items() if k != "index"} for c in calls]
    for made in plain:
        made["function"] = {k: made["function"][k] for k in ("name", "arguments")}
    return said(*plain, text=message.content or None)


def joined(chunks: list[Any]) -> Message:
    """What a client makes of chunks that it reads itself."""
    calls: list[Message] = []
    text = ""
    for found in (c.choices[0].delta for c in chunks if c.choices):
        text += found.content or ""
        for entry in found.tool_calls or []:
            if entry.index == len(calls):
                calls.append({"id": entry.id, "type": "function", "function": {"name": "", "arguments": ""}})
            calls[entry.index]["function"]["name"] += entry.function.name or ""
            calls[entry.index]["function"]["arguments"] += entry.function.arguments or ""
    return said(*calls, text=text or None)


WAYS = [f"{kind} {how}" for kind in ("sync", "async") for how in ("whole", "stream", "helper")]
Opened = Callable[..., Any]


@pytest.fixture
async def open_talk(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens a Sidecall with these rules and a conversation with it."""
    async with AsyncExitStack() as stack:

        async def opened(
            way: str, *rules: dict[str, Any], retries: int = 0, tools: list[Any] | None = None
        ) -> tuple[Talk, Sidecall]:
            settings: dict[str, Any] = {"policies": [policy(tmp_path, *rules)] if rules else [], "tools": tools or []}
            here = await stack.enter_async_context(sidecall(upstream.url, **settings))
            talk = Talk(here.url, way, retries)
            stack.push_async_callback(talk.close)
            return talk, here

        yield opened


def scripted(way: str, *calls: Message, text: str = "") -> Whole | Events:
    return answer(*calls, text=text or None) if way.endswith("whole") else stream(*calls, text=text)


@pytest.mark.parametrize("way", WAYS)
async def test_a_mixed_batch_over_two_turns(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """The client gets its own calls alone, and the model a whole history: every call, every result, in order."""
    status = upstream.tool("status", "shipped")
    talk, _ = await open_talk(way, rule("no", "delete", block={"message": "not here"}), tools=[status, ADD])
    calls = [
        call(A, "delete", id=7),
        call(B, "search", q="x"),
        call(C, "status", order="o1"),
        call(D, "add", a=2, b=3),
        call(E, "show"),
    ]
    upstream.script(scripted(way, *calls, text="Let me see."), scripted(way, text="done"))
    got = await talk.ask([user()])
    assert got == said(calls[1], calls[4], text="Let me see.")
    assert not upstream.runs["status"]
    results = [result(E, "shown"), result(B, "found")]
    assert await talk.ask([user(), got, *results]) == said(text="done")
    assert history(upstream.last) == [
        user(),
        said(*calls, text="Let me see."),
        result(A, blocked("not here", "no")),
        result(B, "found"),
        result(C, "shipped"),
        result(D, "5"),
        result(E, "shown"),
    ]
    assert [run.json for run in upstream.runs["status"]] == [{"order": "o1"}]


@pytest.mark.parametrize("way", WAYS)
async def test_parallel_calls_of_the_client(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """Calls that go ahead reach the client as they were made, and come back as they are."""
    talk, _ = await open_talk(way, rule("no", "delete", block={"message": "no"}))
    calls = [call(A, "search", q="x"), call(B, "show", n=1), call(C, "search", q="y")]
    upstream.script(scripted(way, *calls), scripted(way, text="done"))
    got = await talk.ask([user()])
    assert got == said(*calls)
    sent = [user(), got, *(result(i, i) for i in (A, B, C))]
    await talk.ask(sent)
    assert history(upstream.last) == sent


@pytest.mark.parametrize("way", WAYS)
async def test_a_batch_that_is_held_whole_is_one_answer(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """The client sees the last round's text behind the first one's."""
    talk, _ = await open_talk(way, rule("no", "delete", block={"message": "no"}), tools=[ADD])
    upstream.script(
        scripted(way, call(A, "delete"), call(B, "add", a=1, b=1), text="Let me see."), scripted(way, text="It is 2.")
    )
    assert await talk.ask([user()]) == said(text="Let me see.\n\nIt is 2.")
    assert history(upstream.last)[2:] == [result(A, blocked("no", "no")), result(B, "2")]


# -- errors of Sidecall's own


@pytest.mark.parametrize("way", ["sync whole", "async stream"])
async def test_errors_raise_the_usual_classes(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """A refused request is a BadRequestError, a failing rule a PermissionDeniedError, a dead upstream a server's."""
    fails = rule("stop", "delete", block={"message": "never", "then": "fail"})
    talk, _ = await open_talk(way, fails, rule("gone", "show", hide={}))
    choice = {"type": "function", "function": {"name": "show"}}
    with pytest.raises(openai.BadRequestError):
        await talk.ask([user()], tool_choice=choice)
    assert not upstream.requests
    upstream.script(answer(call(A, "delete")))
    with pytest.raises(openai.PermissionDeniedError) as denied:
        await Talk.ask(talk, [user()]) if way == "sync whole" else await _whole(talk)
    assert (denied.value.code, denied.value.status_code) == ("tool_call_blocked", 403)
    upstream.script(Cut())
    with pytest.raises(openai.InternalServerError) as broken:
        await talk.ask([user()])
    assert broken.value.status_code == 502


async def _whole(talk: Talk) -> Message:
    talk.way = talk.way.replace("stream", "whole")
    try:
        return await talk.ask([user()])
    finally:
        talk.way = talk.way.replace("whole", "stream")


@pytest.mark.parametrize("way", [way for way in WAYS if not way.endswith("whole")])
async def test_an_error_in_a_stream_raises(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """An error behind the first byte is an APIError of the SDK, never a short answer."""
    talk, _ = await open_talk(way, rule("stop", "delete", block={"message": "never", "then": "fail"}))
    upstream.script(stream(call(A, "delete"), text="Let me see."))
    with pytest.raises(openai.APIError) as raised:
        await talk.ask([user()])
    assert raised.value.code == "tool_call_blocked"
    upstream.script(Events([*events(text="some")[:2]], break_after=2))
    with pytest.raises(openai.APIError):
        await talk.ask([user()])


# -- retries of the SDK


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("way", ["sync whole", "async whole", "sync stream", "async helper"])
async def test_the_sdk_retries(way: str, status: int, open_talk: Opened, upstream: FakeUpstream) -> None:
    """An error of the upstream reaches the SDK as it is, which sends the request again."""
    talk, _ = await open_talk(way, rule("no", "delete", block={"message": "no"}), retries=2)
    refused = Whole({"error": {"message": "later", "type": "x"}}, status, {"retry-after-ms": "1"})
    upstream.script(refused, scripted(way, text="done"))
    assert await talk.ask([user()]) == said(text="done")
    assert upstream.requests[0].body == upstream.requests[1].body


@pytest.mark.parametrize("way", ["sync whole", "async whole"])
@pytest.mark.parametrize("failure", [Cut(), Whole({"error": {"message": "later"}}, 500, {"retry-after-ms": "1"})])
async def test_a_retry_runs_no_tool_again(
    way: str, failure: Cut | Whole, open_talk: Opened, upstream: FakeUpstream
) -> None:
    """An answer that failed behind a run is taken up again from the saved round: the tool ran once."""
    talk, _ = await open_talk(way, tools=[upstream.tool("status", "shipped")], retries=2)
    upstream.script(answer(call(A, "status")), failure, answer(text="It is shipped."))
    assert await talk.ask([user()]) == said(text="It is shipped.")
    assert len(upstream.runs["status"]) == 1
    assert history(upstream.last) == [user(), said(call(A, "status")), result(A, "shipped")]


@pytest.mark.parametrize("way", ["sync stream", "async stream", "async helper"])
async def test_a_stream_that_is_asked_for_again_runs_no_tool_again(
    way: str, open_talk: Opened, upstream: FakeUpstream
) -> None:
    """A client that asks again after its stream broke off gets the text of the saved rounds, and nothing runs twice."""
    talk, _ = await open_talk(way, tools=[upstream.tool("status", "shipped")])
    broken = Events([chunk({"role": "assistant", "content": "It"})], break_after=1)
    upstream.script(stream(call(A, "status"), text="Let me see."), broken)
    with pytest.raises(openai.APIError):
        await talk.ask([user()])
    upstream.script(stream(text="It is shipped."))
    assert await talk.ask([user()]) == said(text="Let me see.\n\nIt is shipped.")
    assert len(upstream.runs["status"]) == 1
    assert history(upstream.last) == [
        user(),
        said(call(A, "status"), text="Let me see."),
        result(A, "shipped"),
    ]
