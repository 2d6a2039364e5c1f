"""A governed chat completion on its way up: its tools, its results, and what its history brings back."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import A, B, C, answer, blocked, body, call, follow, history, result, said, tool, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

ODD = (
    b'{ "model":"gpt-test", "temperature": 1.10 ,"seed":9007199254740993,"messages":[ {"role":"user",'
    b'"content":"\\u00e9","x":1} ],"tools":[{"type":"function","function":{"name":"search"}}] }'
)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("hidden", "secret_*", hide={}),
        rule("no", "delete", block={"message": "no"}),
        rule("redact", "search", result={"redact": [{"pattern": "[0-9]{4}", "with": "****"}]}),
        rule("late", "send", defer={}),
    )


async def test_only_what_changes_of_a_request_changes(rules: str, upstream: FakeUpstream) -> None:
    """Proxy tools are told of; everything else stays as it was spelled, and a coding goes."""
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        await here.post(gzip.compress(ODD), **{"content-encoding": "gzip"})
    declared = upstream.last.json["tools"]
    assert [t["function"]["name"] for t in declared] == ["search", "count"]
    assert upstream.last.body[: ODD.index(b'"tools"')] == ODD[: ODD.index(b'"tools"')]
    assert "content-encoding" not in upstream.last.headers


@pytest.mark.parametrize(
    ("advertise", "more", "expected"),
    [
        ("withTools", {"tools": [tool("search")]}, ["search", "count"]),
        ("withTools", {}, []),
        ("always", {}, ["count"]),
        ("never", {"tools": [tool("search")]}, ["search"]),
        ("always", {"tools": [tool("search")], "tool_choice": "none"}, ["search"]),
        ("withTools", {"tools": [tool("count")]}, ["count"]),
        ("always", {"tools": [tool(f"t{n}") for n in range(128)]}, [f"t{n}" for n in range(128)]),
        ("withTools", {"tools": [tool("secret_a"), tool("search")]}, ["search", "count"]),
        ("never", {"tools": [tool("secret_a")], "tool_choice": "auto"}, []),
    ],
)
async def test_the_tools_of_a_request(
    advertise: str, more: Any, expected: list[str], rules: str, upstream: FakeUpstream
) -> None:
    """Hidden tools go, proxy tools come where they are wanted, the client's own of the same name wins."""
    upstream.always(answer(text="ok"))
    count = upstream.tool("count", advertise=advertise)
    async with sidecall(upstream.url, policies=[rules], tools=[count]) as here:
        await here.post({"model": "gpt-test", "messages": [user()], **more})
    sent = upstream.last.json
    assert [t["function"]["name"] for t in sent.get("tools", [])] == expected
    assert ("tools" in sent) is bool(expected)
    if not expected:
        assert "tool_choice" not in sent


async def test_a_client_tool_of_a_proxy_tools_name_is_the_clients(rules: str, upstream: FakeUpstream) -> None:
    """It is surfaced, and nothing runs."""
    upstream.script(answer(call(A, "count", n=1)))
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count")]) as here:
        got = await here.post(body(tools=("count",)))
        assert got.message["tool_calls"] == [call(A, "count", n=1)]
    assert not upstream.runs["count"]


async def test_a_choice_of_a_hidden_tool_is_refused(rules: str, upstream: FakeUpstream) -> None:
    """A request that insists on what it may not have is told so; one that allows it among others loses it."""
    named = {"type": "function", "function": {"name": "secret_a"}}
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [named, {"type": "function", "function": {"name": "search"}}]},
    }
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body(tools=("secret_a", "search"), tool_choice=named))
        assert got.status == 400
        assert not upstream.requests
        await here.post(body(tools=("secret_a", "search"), tool_choice=allowed))
    assert [t["function"]["name"] for t in upstream.last.json["tool_choice"]["allowed_tools"]["tools"]] == ["search"]


async def test_results_are_judged_on_their_way_up(rules: str, upstream: FakeUpstream) -> None:
    """Of every result of the history, the same on every request, and counted when it first comes."""
    upstream.always(answer(text="ok"))
    sent = [user(), said(call(A, "search"), call(B, "other")), result(A, "card 1234"), result(B, "card 1234")]
    async with sidecall(upstream.url, policies=[rules]) as here:
        for later in ([], [said(text="ok"), user("more")]):
            await here.post(body(*sent, *later, tools=("search", "other")))
            assert upstream.last.messages == [*sent[:2], result(A, "card ****"), sent[3], *later]
        assert here.value("tool_results_total", tool="search", owner="client", outcome="redacted") == 1
        assert here.value("tool_results_total", tool="other", owner="client", outcome="ok") == 1
        assert here.total("tool_results_total") == 2


async def test_a_batch_of_two_stages(rules: str, upstream: FakeUpstream) -> None:
    """Calls that are due come without the upstream; a conversation that went on without them is told so."""
    batch = [call(A, "send"), call(B, "search"), call(C, "delete")]
    upstream.script(answer(*batch))
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        first = (await here.post(body(tools=("send", "search")))).message
        sent = follow(first, "found")
        second = (await here.post(body(*sent, tools=("send", "search")))).message
        assert second["tool_calls"] == [batch[0]]
        assert len(upstream.requests) == 1
        assert here.total("tool_calls_total") == 3
        went_on = [*sent, said(text="never mind"), user("next")]
        await here.post(body(*went_on, tools=("send", "search")))
    assert history(upstream.last) == [
        user(),
        said(*batch),
        result(A, "(not run: the conversation went on without it)"),
        result(B, "found"),
        result(C, blocked("no", "no")),
        said(text="never mind"),
        user("next"),
    ]
