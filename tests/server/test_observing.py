"""Calls that pass ungoverned are counted all the same."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from proxy.server.observing import Observer
from tests.e2e.chat import A, B, answer, body, call, chunk, events, tool
from tests.e2e.sidecall import sidecall
from tests.fake_upstream import Events, Whole, fake_upstream

JSON = (("content-type", "application/json"),)
SSE = (("content-type", "text/event-stream"),)


def names(observer: Observer) -> list[list[str]]:
    return [[c.name for c in batch] for batch in observer.batches() if batch]


def passed(data: bytes, headers: Any = JSON, status: int = 200, step: int = 7) -> Observer:
    observer = Observer()
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
    observer = Observer()
    for piece in (b'{"tools": [', json.dumps(tool("search")).encode(), b"]}"):
        observer.asked(piece)
    assert list(observer.declared("")) == ["search"]
    observer.asked(b" " * (5 << 20))
    assert observer.declared("") == {} == observer.declared("gzip")


async def test_a_proxy_without_rules_counts_and_changes_nothing() -> None:
    """The bytes are the upstream's, and the calls are counted once."""
    async with fake_upstream() as upstream, sidecall(upstream.url) as proxy:
        upstream.script(Whole(WHOLE), Events(events(call(A, "search"))))
        assert (await proxy.post(body(tools=("search",)))).data == WHOLE
        await proxy.post(body(tools=("search",), stream=True))
        counted = {"api": "chat", "decision": "allowed", "mode": "enforce", "owner": "client"}
        assert proxy.total("tool_calls_total", tool="search", **counted) == 2
        assert proxy.total("tool_calls_total", tool="other", **counted) == 1
