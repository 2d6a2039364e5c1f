"""The `openai` package sends a request again whose answer broke off behind a run of a proxy tool: the tool ran once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.e2e import chat, responses
from tests.e2e.gate import Gate, eventually
from tests.e2e.sidecall import Sidecall, sidecall
from tests.fake_upstream import Asked, Cut, Events, FakeUpstream, Reply, Whole

A = chat.A
REFUSED = Whole({"error": {"message": "later", "type": "server_error"}}, 500, {"retry-after-ms": "1"})
APIS = pytest.mark.parametrize("api", ["chat", "responses"])
KINDS = pytest.mark.parametrize("kind", [openai.OpenAI, openai.AsyncOpenAI])


def asks(api: str, *, text: str = "", streams: bool = False) -> Reply:
    """A round that calls the tool."""
    if api == "chat":
        made = chat.call(A, "status", order=7)
        return chat.stream(made, text=text) if streams else chat.answer(made, text=text or None)
    items = [*([responses.message(text)] if text else []), responses.call(A, "status", order=7)]
    return responses.stream(*items) if streams else responses.whole(*items)


def says(api: str, text: str, *, streams: bool = False) -> Reply:
    """The round behind it."""
    if api == "chat":
        return chat.stream(text=text) if streams else chat.answer(text=text)
    item = responses.message(text, number=2)
    return responses.stream(item, number=2) if streams else responses.whole(item, number=2)


def told(api: str, asked: Asked) -> str:
    """What the model is told that the tool gave: the last of a history, or of what is new to the upstream."""
    if api == "chat":
        content: str = asked.messages[-1]["content"]
        return content
    output: str = asked.json["input"][-1]["output"]
    return output


async def text_of(client: Any, api: str, *, streams: bool = False) -> str:
    """The text of an answer, as a program has it that knows the package alone."""
    if isinstance(client, openai.OpenAI):
        return await asyncio.to_thread(_sync, client, api, streams)
    found: list[Any] = []
    if api == "chat":
        asked = await client.chat.completions.create(**_asked(api), stream=streams)
    else:
        asked = await client.responses.create(**_asked(api), stream=streams)
    if streams:
        found = [event async for event in asked]
    return _text(api, asked, found)


def _sync(client: openai.OpenAI, api: str, streams: bool) -> str:
    made: Any = client.chat.completions if api == "chat" else client.responses
    asked = made.create(**_asked(api), stream=streams)
    return _text(api, asked, list(asked) if streams else [])


def _asked(api: str) -> dict[str, Any]:
    if api == "chat":
        return {"model": "gpt-test", "messages": [chat.user()], "tools": [chat.tool("search")]}
    return {"model": "gpt-test", "input": "hello", "tools": [responses.tool("search")]}


def _text(api: str, whole: Any, events: Sequence[Any]) -> str:
    if api == "chat":
        if events:
            return "".join(event.choices[0].delta.content or "" for event in events if event.choices)
        content: str = whole.choices[0].message.content
        return content
    text: str = (events[-1].response if events else whole).output_text
    return text


@asynccontextmanager
async def opened(kind: Any, here: Sidecall, **settings: Any) -> AsyncIterator[Any]:
    client = kind(base_url=f"{here.url}/v1", api_key="one", **{"timeout": 20, **settings})
    try:
        yield client
    finally:
        closing = client.close()
        if closing is not None:
            await closing


@KINDS
@pytest.mark.parametrize("failure", [Cut(), REFUSED], ids=["cut", "refused"])
@APIS
async def test_a_retry_goes_on_behind_the_run(api: str, failure: Reply, kind: Any, upstream: FakeUpstream) -> None:
    """The second round failed: the package asks again, and that round alone is asked for again."""
    upstream.script(asks(api), failure, says(api, "It is shipped."))
    async with (
        sidecall(upstream.url, tools=[upstream.tool("status", "shipped")]) as here,
        opened(kind, here, max_retries=2) as client,
    ):
        assert await text_of(client, api) == "It is shipped."
    assert len(upstream.runs["status"]) == 1
    assert [told(api, asked) for asked in upstream.requests[1:]] == ["shipped", "shipped"]


@APIS
async def test_a_retry_finds_the_run_that_it_gave_up_on(api: str, upstream: FakeUpstream) -> None:
    """The package did not wait for the tool to end: its next try has the result of the one run."""
    gate = Gate()
    upstream.script(asks(api))
    upstream.always(says(api, "It is shipped."))
    async with (
        sidecall(upstream.url, tools=[upstream.tool("status", gate)]) as here,
        opened(openai.AsyncOpenAI, here, max_retries=20, timeout=1.0) as client,
    ):
        asking = asyncio.ensure_future(text_of(client, api))
        await eventually(lambda: here.value("continuations_total", api=api, end="client_gone") == 1)
        assert not asking.done()
        gate.open.set()
        assert await asking == "It is shipped."
    assert len(upstream.runs["status"]) == 1
    assert told(api, upstream.last) == "run 1"


@KINDS
@APIS
async def test_a_stream_that_broke_off_behind_the_run(api: str, kind: Any, upstream: FakeUpstream) -> None:
    """The package raises; when its user asks again, the text of the round that was saved comes, and nothing runs."""
    broken = says(api, "It is", streams=True)
    assert isinstance(broken, Events)
    broken.break_after = 2
    upstream.script(asks(api, text="Let me see.", streams=True), broken, says(api, "It is shipped.", streams=True))
    async with (
        sidecall(upstream.url, tools=[upstream.tool("status", "shipped")]) as here,
        opened(kind, here, max_retries=2) as client,
    ):
        with pytest.raises(openai.APIError):
            await text_of(client, api, streams=True)
        text = await text_of(client, api, streams=True)
    assert text == ("Let me see.\n\nIt is shipped." if api == "chat" else "Let me see.It is shipped.")
    assert len(upstream.runs["status"]) == 1
    assert [told(api, asked) for asked in upstream.requests[1:]] == ["shipped", "shipped"]
