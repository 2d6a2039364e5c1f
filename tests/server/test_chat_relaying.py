"""Streams relayed: each event when it comes, calls when they are decided, and one end over all rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.errors import UpstreamError
from proxy.server.asking import error_event_of
from tests.e2e.chat import USAGE, A, B, C, answer, body, call, chunk, events, stream
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

TOOLS = ("search", "delete", "cap")


async def ask(here: Sidecall, **more: Any) -> Got:
    return await here.post(body(tools=TOOLS, stream=True, **more))


async def test_events_that_nothing_changes_are_their_own_bytes(here: Sidecall, upstream: FakeUpstream) -> None:
    """A call that goes ahead too; where a rule could have held one, the head says whose answer it is."""
    made = stream(call(A, "search", q="x"), text="Hello")
    upstream.script(made)
    got = await ask(here)
    assert got.data == made.data()
    assert got.headers["x-sidecall-request-id"] == here.requests()[0]["request_id"]
    assert here.requests()[0]["stream"]


async def test_without_rules_for_this_request_the_head_is_the_upstreams(upstream: FakeUpstream, tmp_path: Path) -> None:
    """A policy for other models changes nothing, headers included."""
    path = policy(tmp_path, rule("no", "delete", block={"message": "no"}), match={"models": ["other-*"]})
    made = stream(call(A, "delete"))
    made.headers["x-vendor"] = "1"
    upstream.script(made)
    async with sidecall(upstream.url, policies=[path]) as there:
        got = await ask(there)
    assert got.data == made.data()
    assert got.headers["x-vendor"] == "1"
    assert "x-sidecall-request-id" not in got.headers


async def test_rounds_are_one_stream(here: Sidecall, upstream: FakeUpstream) -> None:
    """One id, one role, usage once and added up, one end; metadata of every round gets through."""
    first = Events([*events(call(A, "delete"), text="One."), chunk(None, usage=USAGE, x_vendor={"a": 1})])
    renamed = [{**event, "id": "other", "created": 7} for event in events(text="Two.")]
    second = Events([*renamed, {"id": "other", "choices": [], "note": "kept"}, chunk(None, usage=USAGE)])
    upstream.script(first, second)
    got = await ask(here)
    assert {event["id"] for event in got.events} == {first.events[0]["id"]}
    assert sum("role" in c["delta"] for event in got.events for c in event["choices"]) == 1
    usages = [event["usage"] for event in got.events if event.get("usage")]
    assert usages == [{key: 2 * value for key, value in USAGE.items()}]
    assert got.data.count(b"[DONE]") == 1
    assert b'"kept"' in got.data
    assert got.assembled() == {"role": "assistant", "content": "One.\n\nTwo.", "finish": "stop"}
    assert here.requests()[0]["rounds"] == 1


async def test_usage_that_nobody_asked_for_is_not_made_up(here: Sidecall, upstream: FakeUpstream) -> None:
    """Where the upstream says nothing of usage, the client hears nothing of it."""
    upstream.script(Events(events(call(A, "delete"))), Events(events(text="Two.")))
    got = await ask(here)
    assert b"usage" not in got.data
    assert got.data.endswith(b"data: [DONE]\n\n")


async def test_a_changed_call_is_sent_in_one_piece(here: Sidecall, upstream: FakeUpstream) -> None:
    """Under its own id, numbered without gaps, between calls that stream as they came."""
    upstream.script(stream(call(A, "delete"), call(B, "cap", n=99), call(C, "search", q="x"), text="Hm."))
    got = await ask(here)
    assert got.assembled()["tool_calls"] == [
        {"id": B, "type": "function", "function": {"name": "cap", "arguments": '{"n":10}'}},
        call(C, "search", q="x"),
    ]


@pytest.mark.parametrize(
    "second",
    [
        Whole({"error": {"message": "no", "code": "x"}}, 400),
        Whole(b"<html/>", 502),
        answer(text="whole"),
        Events([chunk({"role": "assistant", "content": "It"})], break_after=1),
        Events([chunk({"content": "It"}), {"error": {"message": "overloaded"}}], done=False),
    ],
)
async def test_a_continuation_that_fails(second: Any, here: Sidecall, upstream: FakeUpstream) -> None:
    """The stream ends in one error event, and not as an answer does."""
    upstream.script(stream(call(A, "delete"), text="One."), second)
    got = await ask(here)
    assert got.status == 200
    assert not got.broken
    assert got.error["message"]
    assert sum("error" in event for event in got.events) == 1
    assert b"[DONE]" not in got.data
    assert got.assembled()["finish"] is None


async def test_an_error_event_of_the_upstream_passes(here: Sidecall, upstream: FakeUpstream) -> None:
    """As it came, with what came before; a call that waited goes no further."""
    failed = Events([*events(call(A, "cap", n=1))[:3], {"error": {"message": "overloaded"}}], done=False)
    upstream.script(failed)
    got = await ask(here)
    assert got.events[-1] == failed.events[-1]
    assert b"cap" not in got.data


async def test_a_stream_without_an_end_is_cut_short(here: Sidecall, upstream: FakeUpstream) -> None:
    """Nothing of it runs and nothing is continued; what else came reaches the client."""
    made = events(call(A, "search"), call(B, "delete"), text="Hm.")[:-1]
    upstream.script(Events(made, done=False))
    got = await ask(here)
    shown = got.assembled()
    assert ([c["id"] for c in shown["tool_calls"]], shown["content"], shown["finish"]) == ([A], "Hm.", None)
    assert len(upstream.requests) == 1


async def test_several_choices_in_one_event(here: Sidecall, upstream: FakeUpstream) -> None:
    """Each choice is settled by itself, whatever events it shares with others."""
    one, two = events(call(A, "delete")), events(call(B, "search"), index=1)
    merged = [{**a, "choices": [*a["choices"], *b["choices"]]} for a, b in zip(one, two, strict=True)]
    upstream.script(Events([*merged, chunk(None, usage=USAGE)]), stream(text="gone on"))
    got = await ask(here, n=2)
    assert got.assembled(0) == {"role": "assistant", "content": "gone on", "finish": "stop"}
    assert got.assembled(1)["tool_calls"] == [call(B, "search")]
    assert got.assembled(1)["finish"] == "tool_calls"
    assert got.data.count(b"[DONE]") == 1


def test_an_error_in_the_form_of_a_stream() -> None:
    """The upstream's own words where it has some; else it is an error of ours."""
    assert error_event_of(b'{"error": {"message": "no"}, "x": 1}') == b'data: {"error":{"message":"no"}}\n\n'
    for body_of_it in (b"", b"<html/>", b"[]", b'{"message": "no"}', b'{"error": null}'):
        with pytest.raises(UpstreamError):
            error_event_of(body_of_it)
