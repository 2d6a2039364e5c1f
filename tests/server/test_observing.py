"""Calls that pass ungoverned are counted all the same."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from proxy.core.calls import Api, Kind
from proxy.server.observing import Observer
from tests.e2e.chat import A, B, answer, body, call, chunk, events, tool
from tests.e2e.sidecall import sidecall
from tests.fake_upstream import Events, Whole, fake_upstream, framed

JSON = (("content-type", "application/json"),)
SSE = (("content-type", "text/event-stream"),)


def names(observer: Observer) -> list[list[str]]:
    return [[c.name for c in batch] for batch in observer.batches() if batch]


def passed(
    data: bytes, headers: Any = JSON, status: int = 200, *, step: int = 7, api: Api = Api.CHAT, asked: bytes = b""
) -> Observer:
    observer = Observer(api)
    observer.asked(asked)
    observer.began(status, headers)
    for at in range(0, len(data), step):
        observer.passed(data[at : at + step])
    return observer


WHOLE = answer(call(A, "search"), call(B, "show")).data()
STREAM = Events([chunk({"content": "tool_calls"}), *events(call(A, "search"), call(B, "show"))]).data()


TEXT = (("content-type", "text/plain"),)


@pytest.mark.parametrize(("data", "headers"), [(WHOLE, JSON), (STREAM, SSE), (STREAM, TEXT)])
def test_calls_of_both_kinds_of_answers_are_found(data: bytes, headers: Any) -> None:
    """Whole or streamed, whatever the pieces."""
    assert names(passed(data, headers)) == [["search", "show"]]
    assert names(passed(gzip.compress(data), (*headers, ("content-encoding", "gzip")))) == [["search", "show"]]


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (WHOLE, JSON, 500),
        (WHOLE, (*JSON, ("content-encoding", "odd")), 200),
        (WHOLE, (*JSON, ("content-encoding", "gzip")), 200),
        (WHOLE[:-3], JSON, 200),
        (b'data: {"tool_calls": [1]}\n\ndata: {"choices": [1, {"delta": {"tool_calls": 5}}]}\n\n', SSE, 200),
        (b"data: " + b"x" * (5 << 20), SSE, 200),
        (b'{"tool_calls":' + b" " * (5 << 20) + b"[]}", JSON, 200),
    ],
)
def test_what_cannot_be_read_or_grows_too_large_is_let_go(data: bytes, headers: Any, status: int) -> None:
    """Nothing that passes can make the observer fail, or hold more than its bound."""
    assert names(passed(data, headers, status, step=1 << 16)) == []


def test_tools_that_the_request_declares_are_known() -> None:
    """Names of the request may be labels; a request that is too large or unreadable has none."""
    observer = Observer(Api.CHAT)
    for piece in (b'{"tools": [', json.dumps(tool("search")).encode(), b"]}"):
        observer.asked(piece)
    assert list(observer.declared("")) == ["search"]
    observer.asked(b" " * (5 << 20))
    assert observer.declared("") == {} == observer.declared("gzip")


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": f"{kind}_1", "status": "completed", **more}


ITEMS = [
    item("message", content=[{"type": "output_text", "text": 'a "function_call" in a response.output_item.done'}]),
    item("function_call", call_id=A, name="search", arguments='{"a": 1}'),
    item("custom_tool_call", call_id=B, name="patch", input="text", namespace="fs"),
    item("shell_call", call_id="call_shell", action={"commands": ["ls"]}),
    item("web_search_call", action={"type": "search"}),
    item("mcp_approval_request", server_label="docs", name="find", arguments="{}"),
    item("mcp_call", server_label="docs", name="read", arguments="{}", output="x"),
    item("mcp_call", server_label="docs", name="asked", arguments="{}", approval_request_id="mcpr_0"),
]
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "output": ITEMS, "parallel_tool_calls": True}


def numbered(*events: dict[str, Any]) -> bytes:
    named = (f"event: {e['type']}\n".encode() + framed({**e, "sequence_number": n}) for n, e in enumerate(events))
    return b"".join(named)


def added_and_done(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": f"response.output_item.{state}", "output_index": index, "item": one}
        for index, one in enumerate(items)
        for state in ("added", "done")
    ]


def ended(*items: dict[str, Any], end: str = "completed") -> dict[str, Any]:
    return {"type": f"response.{end}", "response": {**RESPONSE, "status": end, "output": list(items)}}


CREATED = {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}
TEXT_DELTA = {"type": "response.output_text.delta", "delta": '"function_call" response.output_item.done'}
RESPONSE_WHOLE = json.dumps(RESPONSE, indent=1).encode()


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (RESPONSE_WHOLE, JSON),
        (numbered(CREATED, TEXT_DELTA, *added_and_done(*ITEMS), ended(*ITEMS)), SSE),
        (numbered(CREATED, *added_and_done(*ITEMS), ended(end="failed")), SSE),
        (numbered(CREATED, *added_and_done(*ITEMS)), SSE),
        (numbered(CREATED, TEXT_DELTA, ended(*ITEMS)), SSE),
        (numbered(CREATED, *added_and_done(ITEMS[0]), ended(*ITEMS, end="incomplete")), TEXT),
    ],
)
def test_calls_of_a_response_are_found_once(data: bytes, headers: Any) -> None:
    """Whole or streamed, with or without an event for each item; what the upstream has run stands apart."""
    for sent, more in ((data, headers), (gzip.compress(data), (*headers, ("content-encoding", "gzip")))):
        observer = passed(sent, more, api=Api.RESPONSES)
        assert names(observer) == [["search", "patch", "shell", "find"]]
        assert [(one.name, one.namespace) for one in observer.records()] == [("read", "docs")]
    (calls,) = passed(data, headers, api=Api.RESPONSES).batches()
    assert [c.kind for c in calls] == [Kind.FUNCTION, Kind.CUSTOM, Kind.ACTION, Kind.APPROVAL]
    assert [c.text for c in calls][:2] == ['{"a": 1}', "text"]
    assert json.loads(calls[2].text) == {"commands": ["ls"]}


def test_a_shell_that_the_upstream_runs_is_no_call_of_the_clients() -> None:
    """The request says where it runs."""
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}, {"type": "function", "name": "search"}]
    asked = json.dumps({"model": "m", "input": "x", "tools": tools}).encode()
    observer = passed(RESPONSE_WHOLE, api=Api.RESPONSES, asked=asked)
    assert names(observer) == [["search", "patch", "find"]]
    assert "search" in observer.declared("")


@pytest.mark.parametrize("asked", [b"", b"[]", b"not json", b'{"model": "m", "model": "n", "input": "x"}'])
def test_calls_are_found_whatever_was_asked(asked: bytes) -> None:
    """Of a request that cannot be read nothing is known, and the answer's calls count all the same."""
    observer = passed(RESPONSE_WHOLE, api=Api.RESPONSES, asked=asked)
    for coding in ("", "gzip", "odd"):
        assert [[c.name for c in batch] for batch in observer.batches(coding)] == [["search", "patch", "shell", "find"]]
        assert observer.declared(coding) == {}


@pytest.mark.parametrize(
    "data",
    [
        b'{"output": [{"type": "function_call"',
        b'{"output": {"type": "function_call"}}',
        b'["function_call"]',
        b'{"output": [1, null, {"type": 5, "x": "function_call"}, {"type": "message", "x": "function_call"}]}',
        numbered({"type": "response.output_item.done", "item": "function_call"}),
        b'data: {"type": 1, "item": {"type": "function_call"}, "x": "response.output_item.done"}\n\n',
        b'data: ["function_call", "response.output_item.done"]\n\n',
        b'data: {"type": "response.completed", "response": [{"type": "function_call"}]}\n\n',
        numbered({**added_and_done(ITEMS[1])[1], "item": {**ITEMS[1], "arguments": "x" * (5 << 20)}}),
    ],
    ids=lambda data: repr(data)[:40],
)
def test_what_is_no_response_is_let_go(data: bytes) -> None:
    """Nothing that passes can make the observer fail."""
    observer = passed(data, SSE if data.startswith((b"data", b"event")) else JSON, step=1 << 16, api=Api.RESPONSES)
    assert names(observer) == [] == observer.records()
    assert observer.declared("") == {}


async def test_a_proxy_without_rules_counts_and_changes_nothing() -> None:
    """The bytes are the upstream's, and the calls are counted once."""
    async with fake_upstream() as upstream, sidecall(upstream.url) as proxy:
        upstream.script(Whole(WHOLE), Events(events(call(A, "search"))))
        assert (await proxy.post(body(tools=("search",)))).data == WHOLE
        await proxy.post(body(tools=("search",), stream=True))
        counted = {"api": "chat", "decision": "allowed", "mode": "enforce", "owner": "client"}
        assert proxy.total("tool_calls_total", tool="search", **counted) == 2
        assert proxy.total("tool_calls_total", tool="other", **counted) == 1


async def test_responses_without_rules_are_counted_and_not_changed() -> None:
    """The upstream's own calls are told apart, and an approval counts once."""
    asked = {"model": "m", "input": "x", "tools": [{"type": "function", "name": "search"}]}
    stream = numbered(CREATED, *added_and_done(*ITEMS), ended(*ITEMS))
    async with fake_upstream() as upstream, sidecall(upstream.url) as proxy:
        upstream.script(Whole(RESPONSE_WHOLE), Events([stream], done=False))
        for expected, more in ((RESPONSE_WHOLE, {}), (stream, {"stream": True})):
            async with proxy.session.post(f"{proxy.url}/v1/responses", json={**asked, **more}) as got:
                assert await got.read() == expected
        counted = {"api": "responses", "decision": "allowed", "mode": "enforce"}
        assert proxy.total("tool_calls_total", tool="search", owner="client", **counted) == 2
        assert proxy.total("tool_calls_total", owner="client", **counted) == 6
        assert proxy.total("tool_calls_total", owner="upstream", **counted) == 4
        assert proxy.total("batches_total", api="responses", kind="parallel") == 2
        assert {(line["tool"], line["owner"]) for line in proxy.audit()} >= {("find", "upstream"), ("read", "upstream")}
        assert [line["calls"] for line in proxy.requests()] == [5, 5]
