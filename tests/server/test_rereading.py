"""Stored completions that are read again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import PATH, USAGE, A, B, C, answer, answers, body, call, choice, result, said, stream, user
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, Whole, fake_upstream

TOOLS = ("search", "delete", "cap")
STORED = "chatcmpl-0001"


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as running:
        yield running


@pytest.fixture
async def proxy(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Sidecall]:
    rules = [
        rule("no", "delete", block={"message": "not here"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        {"name": "mini", "match": {"tools": ["search"], "models": ["*-mini"]}, "block": {"message": "too small"}},
    ]
    async with sidecall(upstream.url, policies=[policy(tmp_path, *rules)]) as running:
        yield running


async def read(proxy: Sidecall, path: str = f"/{STORED}") -> Got:
    headers = {"authorization": "Bearer one"}
    async with proxy.session.get(f"{proxy.url}{PATH}{path}", headers=headers) as found:
        return Got(found.status, dict(found.headers), await found.read())


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_split_answer_shows_the_ids_that_it_showed_first(
    proxy: Sidecall, upstream: FakeUpstream, streamed: bool
) -> None:
    """A client that was given a fresh id finds it again, also when the answer was a stream."""
    calls = [call(A, "delete"), call("call_1", "search", q="x")]
    upstream.script(stream(*calls) if streamed else answer(*calls), answer(*calls))
    first = await proxy.post(body(tools=TOOLS, store=True, stream=streamed))
    shown = first.assembled()["tool_calls"] if streamed else first.message["tool_calls"]
    again = (await read(proxy)).message["tool_calls"]
    assert [c["id"] for c in again] == [c["id"] for c in shown] != ["call_1"]
    assert [c["function"]["name"] for c in again] == ["search"]


async def test_an_answer_without_held_calls_passes_byte_for_byte(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """Nothing changes, so nothing is written anew, and nothing is counted."""
    upstream.script(Whole(b'{ "id":"c", "choices":[ {"index":0,"message":{"content":"hi"},"finish_reason":"stop"}] }'))
    found = await read(proxy)
    assert found.data.startswith(b'{ "id":"c",')
    assert proxy.total("tool_calls_total") == 0


async def test_what_was_held_whole_shows_as_a_turn_that_a_rule_ended(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """No call, the text with the rule's message behind it, and a finish reason that fits."""
    upstream.script(answer(call(A, "delete"), text="Well."))
    found = await read(proxy)
    assert found.message == said(text="Well.\n\nnot here")
    assert found.json["choices"][0]["finish_reason"] == "stop"
    assert "x-sidecall-request-id" in found.headers


async def test_a_rewritten_call_is_rewritten_again(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """Rules decide as they did."""
    upstream.script(answer(call(A, "cap", limit=99)))
    assert '"limit":10' in (await read(proxy)).message["tool_calls"][0]["function"]["arguments"]


async def test_each_completion_of_a_list_is_judged_by_its_own_model(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """A list shows no held call, and leaves the others as they are."""
    entries: list[Any] = [
        {"id": "c1", "model": "big", "choices": [choice(call(A, "search"))], "usage": USAGE},
        {"id": "c2", "model": "a-mini", "choices": [choice(call(B, "search"), text="Hm.")]},
        "odd",
    ]
    upstream.script(Whole({"object": "list", "data": entries}))
    data = (await read(proxy, "?limit=2")).json["data"]
    assert [data[0], data[2]] == [entries[0], "odd"]
    assert data[1]["choices"][0]["message"] == said(text="Hm.\n\ntoo small")


async def test_the_messages_of_a_completion_show_no_held_call_and_no_result_of_one(
    proxy: Sidecall, upstream: FakeUpstream
) -> None:
    """What the upstream was asked holds what was put back; a reader sees what the client sent."""
    messages = [
        user(),
        said(call(A, "delete"), call(B, "search")),
        result(A, "blocked"),
        result(B, "found"),
        said(call(C, "delete")),
        result(C, "blocked"),
        {"role": "assistant", "content": "x", "function_call": {"name": "delete", "arguments": "{}"}},
    ]
    upstream.script(Whole({"object": "list", "data": messages}), answer(text="x"))
    data = (await read(proxy, f"/{STORED}/messages")).json["data"]
    assert data == [user(), said(call(B, "search")), result(B, "found"), {"role": "assistant", "content": "x"}]
    assert [r.path for r in upstream.requests][1:] == [f"{PATH}/{STORED}"]


async def test_messages_whose_completion_cannot_be_read_are_refused(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """Without the model nobody can say which rules hold."""
    upstream.script(Whole({"data": [said(call(A, "search"))]}), Whole({"error": {}}, 404))
    assert (await read(proxy, f"/{STORED}/messages")).status == 502


async def test_errors_of_the_upstream_pass(proxy: Sidecall, upstream: FakeUpstream) -> None:
    """An error is not read for calls."""
    upstream.script(Whole(b'{ "error": {"message": "gone"} }', 404))
    found = await read(proxy)
    assert (found.status, found.data) == (404, b'{ "error": {"message": "gone"} }')


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"<html>", 200), (b'\xef\xbb\xbf{"choices":[{"message":{"tool_calls":[{}]}}]}', 502), (b"[1]", 200)],
)
async def test_what_is_no_plain_json_passes_unless_it_holds_a_call(
    proxy: Sidecall, upstream: FakeUpstream, data: bytes, status: int
) -> None:
    """A text that another reader could find a call in is not passed unread."""
    upstream.script(Whole(data))
    assert (await read(proxy)).status == status


async def test_a_limit_that_is_used_up_hides_nothing_afterwards(upstream: FakeUpstream, tmp_path: Path) -> None:
    """A call was counted when it was made; reading it again asks nobody."""
    rules = [rule("once", "search", limit={"max": 1, "per": "1h"})]
    async with sidecall(upstream.url, policies=[policy(tmp_path, *rules)]) as proxy:
        upstream.always(answers(choice(call(A, "search"))))
        assert (await proxy.post(body(tools=TOOLS, store=True))).message["tool_calls"]
        for _ in range(2):
            assert (await read(proxy)).message["tool_calls"]
