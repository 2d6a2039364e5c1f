"""Two hundred calls to slow proxy tools at once: so many run as may, and everybody else is served as ever."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.chat import answer, body, call, stream, user
from tests.e2e.gate import Gate
from tests.e2e.sidecall import Got, Sidecall, post, sidecall
from tests.e2e.slow_functions import Hall, halls
from tests.fake_upstream import Asked, FakeUpstream, Reply
from tests.tools.mcp_processes import plain

CALLS = 200
TOOLS = ("search",)


class House:
    """A Sidecall, and clients of it that are bounded by nothing but it."""

    def __init__(self, here: Sidecall, session: aiohttp.ClientSession) -> None:
        self._here = here
        self._session = session
        self._numbers = itertools.count()

    async def ask(self, words: str, *, streams: bool = False) -> str:
        """The text of the answer. No two requests are the same: those would be one."""
        sent = body(user(words), tools=TOOLS, stream=streams, metadata={"number": str(next(self._numbers))})
        got = await post(self._session, self._here.url, sent)
        return _text(got, streams=streams)

    async def run(self, tool: str) -> str:
        """What a tool gives."""
        return await self.ask(f"{tool} {{}}")


def _text(got: Got, *, streams: bool) -> str:
    assert got.status == 200, got.data
    text: str = (got.assembled() if streams else got.message)["content"]
    return text


def model(asked: Asked) -> Reply:
    """It calls the tool that it is told to call, and says what that gave; other words it says itself."""
    made, last = stream if asked.json.get("stream") else answer, asked.messages[-1]
    tool, _, arguments = last["content"].partition(" ")
    if last["role"] == "tool" or not arguments.startswith("{"):
        return made(text=last["content"])
    return made(call(f"call_{asked.json['metadata']['number']:0>24}", tool, **json.loads(arguments)))


@dataclass
class Slow:
    """A slow tool: its entry, the arguments of a call, how to look at who waits in it, and how to let them go."""

    entries: list[dict[str, Any]]
    arguments: dict[str, Any]
    counts: Callable[[House], Any]
    release: Callable[[House], Any]


def over_http(upstream: FakeUpstream, places: int) -> Slow:
    gate = Gate()

    async def counts(house: House) -> dict[str, int]:
        return {"now": gate.running, "most": gate.most, "all": len(upstream.runs["hold"])}

    async def release(house: House) -> None:
        gate.open.set()

    return Slow([upstream.tool("hold", gate, concurrency=places)], {}, counts, release)


def in_python(function: str, places: int) -> Slow:
    hall = halls[function] = Hall()

    async def counts(house: House) -> dict[str, int]:
        return {name: getattr(hall, name) for name in ("now", "most", "all")}

    async def release(house: House) -> None:
        hall.release()

    entry = {"name": "hold", "python": f"tests.e2e.slow_functions:{function}", "concurrency": places}
    return Slow([entry], {"hall": function}, counts, release)


def over_mcp(places: int) -> Slow:
    """The server counts, and tells it through another tool of its."""

    async def counts(house: House) -> dict[str, int]:
        found: dict[str, int] = json.loads(await house.run("counts"))
        return found

    async def release(house: House) -> None:
        while (await counts(house))["all"] < CALLS or (await counts(house))["now"]:
            assert await house.run("release") == "done"

    reach: Any = plain("hold", "release", "counts").reach
    entry = {"mcp": {"name": "own", "command": list(reach.words), "cwd": reach.folder}, "concurrency": places}
    return Slow([entry], {}, counts, release)


KINDS: dict[str, Callable[[FakeUpstream], tuple[Slow, int]]] = {
    "http": lambda upstream: (over_http(upstream, 8), 8),
    "threads": lambda upstream: (in_python("wait", 8), 8),
    "a thread each": lambda upstream: (in_python("wait", CALLS), CALLS),
    "on the loop": lambda upstream: (in_python("wait_on_the_loop", 8), 8),
    "mcp": lambda upstream: (over_mcp(8), 8),
}


@asynccontextmanager
async def opened(upstream: FakeUpstream, slow: Slow) -> AsyncIterator[House]:
    upstream.always(model)
    tools = [*slow.entries, upstream.tool("quick", "at once")]
    connector = aiohttp.TCPConnector(limit=0)
    async with sidecall(upstream.url, tools=tools) as here, aiohttp.ClientSession(connector=connector) as session:
        yield House(here, session)


@pytest.mark.parametrize("kind", KINDS)
async def test_plain_requests_pass_beside_two_hundred_slow_calls(kind: str, upstream: FakeUpstream) -> None:
    """As many calls run as the tool has places. While all wait, requests without a tool, streams and requests with
    another tool come to their ends; then every call has its own result."""
    slow, places = KINDS[kind](upstream)
    asked = f"hold {json.dumps(slow.arguments)}"
    async with opened(upstream, slow) as house:
        waiting = [asyncio.ensure_future(house.ask(asked, streams=bool(n % 2))) for n in range(CALLS)]
        await upstream.until(lambda: len(upstream.requests) == CALLS, seconds=30)
        async with asyncio.timeout(30):
            while (await slow.counts(house))["now"] < places:
                await asyncio.sleep(0.005)
        for streams in (False, True) * 5:
            assert await house.ask("a word", streams=streams) == "a word"
        assert set(await asyncio.gather(*(house.run("quick") for _ in range(20)))) == {"at once"}
        assert await slow.counts(house) == {"now": places, "most": places, "all": places}
        assert not any(one.done() for one in waiting)
        await slow.release(house)
        texts = await asyncio.gather(*waiting)
        counts = await slow.counts(house)
    assert (counts["now"], counts["most"], counts["all"]) == (0, places, CALLS)
    assert texts.count("released") == CALLS or sorted(texts) == sorted(f"run {n + 1}" for n in range(CALLS))
