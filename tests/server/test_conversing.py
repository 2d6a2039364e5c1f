"""What every governed conversation has, on whichever wire; each test runs on both."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.e2e import chat, responses
from tests.e2e.chat import A
from tests.e2e.flaky import Flaky, on
from tests.e2e.gate import Gate
from tests.e2e.sidecall import Got, Sidecall, pinging, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole


@dataclass(frozen=True)
class Wire:
    """One of the two APIs: how it is asked, what it answers."""

    path: str
    chat: bool

    def body(self, **more: Any) -> dict[str, Any]:
        return (chat.body if self.chat else responses.body)(tools=("search",), **more)

    def call(self, name: str) -> Whole:
        return chat.answer(chat.call(A, name)) if self.chat else responses.whole(responses.call(A, name))

    def says(self, text: str) -> Whole:
        return chat.answer(text=text) if self.chat else responses.whole(responses.message(text))

    def streams(self, text: str = "", call: str = "") -> Events:
        if self.chat:
            return chat.stream(*([chat.call(A, call)] if call else []), text=text)
        said = responses.call(A, call) if call else responses.message(text)
        return responses.stream(said)

    async def ask(self, here: Sidecall, sent: dict[str, Any] | bytes, **headers: str) -> Got:
        return await here.post(sent, path=self.path, **headers)


CHAT, RESPONSES = Wire(chat.PATH, True), Wire(responses.PATH, False)
wires = pytest.mark.parametrize("wire", [CHAT, RESPONSES], ids=["chat", "responses"])
CODINGS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(tmp_path, rule("no", "delete", block={"message": "not here"}))


@wires
@pytest.mark.parametrize("coding", CODINGS)
async def test_a_coding_goes_with_its_body(coding: str, wire: Wire, rules: str, upstream: FakeUpstream) -> None:
    """A request that came in one goes up in it; where something had to change, it goes up in none."""
    upstream.always(wire.says("ok"))
    data = CODINGS[coding](json.dumps(wire.body()).encode())
    headers = {"content-encoding": coding, "accept-encoding": "br, gzip"}
    async with sidecall(upstream.url, policies=[rules]) as here:
        await wire.ask(here, data, **headers)
        assert (upstream.last.body, upstream.last.headers["content-encoding"]) == (data, coding)
        assert upstream.last.headers["accept-encoding"] == "gzip", "nobody here reads the other"
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        await wire.ask(here, data, **headers)
        assert "content-encoding" not in upstream.last.headers
        assert len(upstream.last.json["tools"]) == 2


@wires
async def test_a_continuation_goes_up_without_the_coding_of_its_request(
    wire: Wire, rules: str, upstream: FakeUpstream
) -> None:
    """Its body is another, and in no coding."""
    upstream.script(wire.call("delete"), wire.says("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await wire.ask(here, gzip.compress(json.dumps(wire.body()).encode()), **{"content-encoding": "gzip"})
    assert b"I may not." in got.data
    assert "content-encoding" in upstream.requests[0].headers
    assert "content-encoding" not in upstream.last.headers
    assert upstream.last.json


@wires
async def test_tools_that_run_in_a_hidden_round_keep_a_stream_alive(wire: Wire, upstream: FakeUpstream) -> None:
    """With comments."""
    gate = Gate()
    upstream.script(wire.streams(call="count"), wire.streams("done"))
    async with sidecall(upstream.url, services=pinging(0.02), tools=[upstream.tool("count", gate)]) as here:
        asking = asyncio.ensure_future(wire.ask(here, wire.body(stream=True)))
        await upstream.until(lambda: len(upstream.runs["count"]) == 1)
        await asyncio.sleep(0.1)
        gate.open.set()
        got = await asking
    assert got.data.count(b": waiting\n") >= 2
    assert not got.broken


@wires
async def test_only_tools_make_an_earlier_try_worth_keeping(wire: Wire, rules: str, upstream: FakeUpstream) -> None:
    """Where nothing runs, a request that comes again is asked again."""
    flaky = Flaky()
    upstream.always(wire.says("ok"))
    upstream.script(wire.call("delete"))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        await wire.ask(here, wire.body())
    assert not [key for key in flaky.store.saved if key.startswith("resume/")]
    upstream.script(wire.call("count"))
    async with sidecall(upstream.url, services=flaky, tools=[upstream.tool("count")]) as here:
        await wire.ask(here, wire.body())
    assert [key for key in flaky.store.saved if key.startswith("resume/")]


@wires
async def test_an_earlier_try_that_cannot_be_looked_up_is_none(wire: Wire, upstream: FakeUpstream) -> None:
    """The request is served as a new one."""
    flaky = Flaky()
    upstream.always(wire.says("ok"))
    async with sidecall(upstream.url, services=flaky, tools=[upstream.tool("count")]) as here:
        flaky.store.fails = on("load", "resume")
        got = await wire.ask(here, wire.body())
    assert b"ok" in got.data


@wires
async def test_an_answer_that_was_seen_leaves_no_try_behind(wire: Wire, upstream: FakeUpstream) -> None:
    """The same body again is a new question."""
    upstream.script(wire.call("count"), wire.says("one"), wire.call("count"), wire.says("two"))
    async with sidecall(upstream.url, tools=[upstream.tool("count")]) as here:
        found = [(await wire.ask(here, wire.body())).data for _ in range(2)]
    assert b"one" in found[0]
    assert b"two" in found[1]
    assert len(upstream.runs["count"]) == 2


@wires
async def test_what_a_tool_is_told_of_its_caller(wire: Wire, upstream: FakeUpstream) -> None:
    """The client's name and trace, never its credential."""
    upstream.script(wire.call("count"), wire.says("ok"))
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    clients = [{"name": "team-a", "keySha256": hashlib.sha256(b"secret").hexdigest()}]
    async with sidecall(upstream.url, tools=[upstream.tool("count")], clients=clients) as here:
        got = await here.post(wire.body(), path=wire.path, key="secret", traceparent=trace)
    assert got.status == 200
    headers = upstream.runs["count"][0].headers
    assert headers["x-sidecall-client"] == "team-a"
    assert headers["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert "authorization" not in headers
    assert "secret" not in str(headers)
