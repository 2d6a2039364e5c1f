"""Several processes over one state: nothing that a client saw depends on which of them answers next."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e import responses
from tests.e2e.chat import A, B, C, Message, answer, blocked, body, call, follow, history, result, said, user
from tests.e2e.process import Process, processes
from tests.e2e.sidecall import Got, policy, post, rule
from tests.e2e.traffic import BROKEN, DONE, KINDS, Traffic, model
from tests.fake_upstream import Asked, FakeUpstream
from tests.stores.redis_servers import RedisServer, running

TOOLS = ("search", "delete")
BATCH = [call(A, "delete", id=7), call(B, "search", q="x"), call(C, "count", n=1)]
NO = rule("no", "delete", block={"message": "no"})
STATES = ("sqlite", "redis")
CLIENTS = 20


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that loses nothing that it has acknowledged."""
    with running(tmp_path / "redis", "appendonly yes", "appendfsync always") as server:
        yield server


@pytest.fixture
async def replicas(
    request: pytest.FixtureRequest, upstream: FakeUpstream, tmp_path: Path
) -> AsyncIterator[list[Process]]:
    """Two processes over the state that the test names, with a rule, and a tool that counts its runs."""
    if request.param == "redis":
        state = f"redis://127.0.0.1:{request.getfixturevalue('redis').port}"
    else:
        state = f"sqlite:{tmp_path / 'state.db'}"
    async with two(tmp_path, upstream, state=state, tools=[upstream.tool("count", counting())]) as started:
        yield started


def two(
    folder: Path, upstream: FakeUpstream, *, state: str, tools: list[Any], unavailable: str = "refuse", **config: Any
) -> AbstractAsyncContextManager[list[Process]]:
    given = {"policies": [policy(folder, NO)], "tools": tools, "state": {"url": state, "onUnavailable": unavailable}}
    return processes(folder, upstream, **given, **config)


def counting() -> Any:
    numbers = itertools.count(1)

    async def count(asked: Asked) -> str:
        return f"run {next(numbers)}"

    return count


over_both = pytest.mark.parametrize("replicas", STATES, indirect=True)
WHOLE = [user(), said(*BATCH), result(A, blocked("no", "no")), result(B, "found"), result(C, "run 1")]


async def first_turn(here: Process, upstream: FakeUpstream) -> list[Message]:
    """A mixed batch that one process has split; what the client sends next."""
    upstream.script(answer(*BATCH))
    message = (await here.post(body(tools=TOOLS))).message
    assert [made["id"] for made in message["tool_calls"]] == [B]
    upstream.requests.clear()
    upstream.always(answer(text="done"))
    return follow(said(*message["tool_calls"]), "found")


@over_both
async def test_what_one_has_split_another_puts_back(replicas: list[Process], upstream: FakeUpstream) -> None:
    """The first request goes to one process and the second to the other."""
    sent = await first_turn(replicas[0], upstream)
    for here in reversed(replicas):
        assert (await here.post(body(*sent, tools=TOOLS))).message["content"] == "done"
    assert [history(asked) for asked in upstream.requests] == [WHOLE] * 2
    assert len(upstream.runs["count"]) == 1


@over_both
async def test_a_response_of_one_is_remembered_by_another(replicas: list[Process], upstream: FakeUpstream) -> None:
    """Split by one process, answered through the other, with the state at the upstream."""
    one, two = replicas
    made = [responses.call(A, "delete"), responses.call(B, "search"), responses.call(C, "count")]
    upstream.script(responses.whole(*made), responses.whole(responses.message("done"), number=2))
    async with aiohttp.ClientSession() as session:
        first = await post(session, one.url, responses.body("hi", tools=TOOLS), path=responses.PATH)
        assert [item["call_id"] for item in first.json["output"]] == [B]
        sent = responses.body(responses.output(B, "found"), previous_response_id=first.json["id"])
        second = await post(session, two.url, sent, path=responses.PATH)
    assert second.status == 200
    results = [responses.output(A, blocked("no", "no")), responses.output(B, "found"), responses.output(C, "run 1")]
    assert upstream.last.json["input"] == results


@over_both
async def test_fifty_copies_at_once_run_a_tool_once(replicas: list[Process], upstream: FakeUpstream) -> None:
    """Spread over both processes: every answer has the one result."""
    sent = body(*await first_turn(replicas[0], upstream), tools=TOOLS)
    got = await asyncio.gather(*(replicas[number % 2].post(sent) for number in range(50)))
    assert [found.message["content"] for found in got] == ["done"] * 50
    assert [history(asked) for asked in upstream.requests] == [WHOLE] * 50
    assert len(upstream.runs["count"]) == 1


@pytest.mark.parametrize("state", STATES)
async def test_a_run_of_a_process_that_died(
    state: str, upstream: FakeUpstream, tmp_path: Path, redis: RedisServer
) -> None:
    """The other process waits for it, and then says that its outcome is unknown; it is not repeated."""
    hang = asyncio.Event()

    async def never(asked: Asked) -> str:
        await hang.wait()
        return "too late"

    tools = [upstream.tool("count", never)]
    url = f"redis://127.0.0.1:{redis.port}" if state == "redis" else f"sqlite:{tmp_path / 'state.db'}"
    async with two(tmp_path, upstream, state=url, tools=tools) as (one, other):
        sent = body(*await first_turn(one, upstream), tools=TOOLS)
        lost = asyncio.ensure_future(one.post(sent))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        waiting = asyncio.ensure_future(other.post(sent))
        await one.kill()
        with pytest.raises(aiohttp.ClientError):
            await lost
        assert (await waiting).message["content"] == "done"
    hang.set()
    assert "outcome is unknown" in history(upstream.last)[-1]["content"]
    assert len(upstream.runs["count"]) == 1


@pytest.mark.parametrize("unavailable", ["refuse", "pass"])
async def test_a_redis_that_is_killed_and_comes_back(
    unavailable: str, redis: RedisServer, upstream: FakeUpstream, tmp_path: Path
) -> None:
    """What holds no call passes meanwhile; what would need the state is refused, unless the configuration lets it
    pass; and afterwards every batch that a client saw is put back."""
    tools, state = [upstream.tool("count", counting())], f"redis://127.0.0.1:{redis.port}"
    async with two(tmp_path, upstream, state=state, tools=tools, unavailable=unavailable) as (here, other):
        sent = body(*await first_turn(here, upstream), tools=TOOLS)
        redis.kill()
        assert (await here.post(body(tools=TOOLS))).message["content"] == "done"
        meanwhile = await here.post(sent)
        if unavailable == "refuse":
            assert (meanwhile.status, meanwhile.error["code"]) == (503, "state_unavailable")
        else:
            assert meanwhile.message["content"] == "done"
            assert history(upstream.last) == sent["messages"]
        upstream.script(answer(*BATCH))
        held = await other.post(body(tools=TOOLS))
        assert (held.status, held.error["code"]) == (503, "state_unavailable")
        redis.start()
        assert (await other.post(sent)).message["content"] == "done"
    assert history(upstream.last) == WHOLE


@dataclass
class OnePort:
    """A connection of its own for each request: whichever process the kernel gives it to."""

    url: str

    async def post(self, sent: Message) -> Got:
        try:
            async with aiohttp.ClientSession() as session:
                return await post(session, self.url, sent)
        except aiohttp.ClientError:
            return Got(0, {}, b"", broken=True)


async def served(here: Process) -> int:
    """How many requests a process has answered."""
    lines = (await here.metrics()).splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("sidecall_requests_total{"))


async def test_one_of_two_on_one_port_is_killed_under_load(upstream: FakeUpstream, tmp_path: Path) -> None:
    """What was under way in it breaks off, once for each client; the other answers everything else, and puts back what
    the dead one had split, also where that had begun to run it."""
    upstream.always(model)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        listen = {"port": taken.getsockname()[1], "reusePort": True}
        traffic = Traffic(upstream, [OnePort(f"http://127.0.0.1:{listen['port']}")])
        tools, state = [upstream.tool("count", traffic.count)], f"sqlite:{tmp_path / 'state.db'}"
        async with two(tmp_path, upstream, state=state, tools=tools, listen=listen) as (one, other):
            async with traffic.of(CLIENTS):
                while min(await served(one), await served(other)) < CLIENTS:
                    await asyncio.sleep(0.01)
                assert set(traffic.plain) | set(traffic.first) | set(traffic.second) == {DONE}
                await one.kill()
                traffic.begin()
                await traffic.until(lambda now: all(now[f"{kind} {DONE}"] >= 2 * CLIENTS for kind in KINDS))
            await traffic.every_batch_comes_back()
    broken = [count.pop(BROKEN, 0) for count in (traffic.plain, traffic.first, traffic.second)]
    assert 1 <= sum(broken) <= CLIENTS
    assert set(traffic.plain) == set(traffic.first) == set(traffic.second) == {DONE}
    assert set(map(len, traffic.runs.values())) == {1}
