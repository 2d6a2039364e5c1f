"""A process that is killed: every turn that the client saw end is put back together, and nothing runs twice."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.e2e.chat import (
    A,
    B,
    C,
    Message,
    answer,
    blocked,
    body,
    call,
    follow,
    history,
    result,
    said,
    stream,
    tool,
    user,
)
from tests.e2e.process import process
from tests.e2e.sidecall import policy, rule
from tests.fake_upstream import Asked, FakeUpstream

TOOLS = ("search", "delete")
BATCH = [call(A, "delete", id=7), call(B, "search", q="x"), call(C, "count", n=1)]


def counting() -> Any:
    numbers = itertools.count(1)

    async def count(asked: Asked) -> str:
        return f"run {next(numbers)}"

    return count


@pytest.mark.parametrize("streams", [False, True])
async def test_ten_requests_at_once_after_a_crash(streams: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """After SIGKILL the batch is put back, and ten requests at once share the one run of its tool."""
    count = upstream.tool("count", counting())
    no_deletes = policy(tmp_path, rule("no", "delete", block={"message": "no"}))
    async with process(tmp_path, upstream.url, policies=[no_deletes], tools=[count]) as here:
        upstream.script(stream(*BATCH) if streams else answer(*BATCH))
        got = await here.post(body(tools=TOOLS, stream=streams))
        message = got.assembled() if streams else got.message
        assert [made["id"] for made in message["tool_calls"]] == [B]
        await here.kill()
        assert not upstream.runs["count"]
        await here.start()
        upstream.requests.clear()
        upstream.always(answer(text="done"))
        sent: list[Any] = follow(said(*message["tool_calls"]), "found")
        declared: list[Any] = [tool(name) for name in TOOLS]
        with openai.OpenAI(base_url=f"{here.url}/v1", api_key="one", max_retries=0, timeout=20) as client:

            def ask() -> str | None:
                made = client.chat.completions.create(model="gpt-test", messages=sent, tools=declared)
                return made.choices[0].message.content

            answers = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(10)))
    assert answers == ["done"] * 10
    assert len(upstream.runs["count"]) == 1
    whole = [user(), said(*BATCH), result(A, blocked("no", "no")), result(B, "found"), result(C, "run 1")]
    assert [history(asked) for asked in upstream.requests] == [whole] * 10


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_crash_in_the_middle_of_a_run(idempotent: bool, upstream: FakeUpstream, tmp_path: Path) -> None:
    """A run that was cut off is not repeated unless its tool may be: its outcome is unknown."""
    hang, runs = asyncio.Event(), itertools.count(1)

    async def once(asked: Asked) -> str:
        number = next(runs)
        if number == 1:
            await hang.wait()
        return f"run {number}"

    count = upstream.tool("count", once, idempotent=idempotent)
    upstream.script(answer(*BATCH[1:]))
    async with process(tmp_path, upstream.url, tools=[count]) as here:
        message = (await here.post(body(tools=TOOLS))).message
        sent = body(*follow(said(*message["tool_calls"]), "found"), tools=TOOLS)
        asking = asyncio.ensure_future(here.post(sent))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        await here.kill()
        with pytest.raises(aiohttp.ClientError):
            await asking
        await here.start()
        upstream.always(answer(text="done"))
        for _ in range(2):
            assert (await here.post(sent)).message["content"] == "done"
    hang.set()
    shown = history(upstream.last)[-1]["content"]
    assert history(upstream.requests[-2]) == history(upstream.last)
    if idempotent:
        assert (shown, len(upstream.runs["count"])) == ("run 2", 2)
        keys = {run.headers["idempotency-key"] for run in upstream.runs["count"]}
        assert len(keys) == 1, "every try of one call has the same key"
    else:
        assert "outcome is unknown" in shown
        assert "count" in shown
        assert len(upstream.runs["count"]) == 1


async def test_a_crash_between_the_rounds_of_an_answer(upstream: FakeUpstream, tmp_path: Path) -> None:
    """The same request, sent again to the next process, goes on from the saved round."""
    count, hang = upstream.tool("count", counting()), asyncio.Event()
    never = stream(text="never")
    never.events.insert(0, hang)
    upstream.script(stream(call(A, "count", n=1)), never)
    async with process(tmp_path, upstream.url, tools=[count]) as here:
        sent: Message = body(tools=TOOLS, stream=True)
        asking = asyncio.ensure_future(here.post(sent))
        await upstream.until(lambda: len(upstream.requests) == 2)
        await here.kill()
        assert (await asking).broken
        await here.start()
        upstream.script(stream(text="done"))
        got = await here.post(sent)
    hang.set()
    assert got.assembled()["content"] == "done"
    assert len(upstream.runs["count"]) == 1
    assert history(upstream.last) == [user(), said(call(A, "count", n=1)), result(A, "run 1")]
