"""The scripted upstream of the demonstration."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from proxy.demo import script, server


@pytest.fixture
async def client(aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch) -> TestClient[Any, Any]:
    monkeypatch.setattr(server, "_WORD_PAUSE", 0)
    return await aiohttp_client(server.build_app())


def asked(*messages: dict[str, Any], tools: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    declared = [{"type": "function", "function": {"name": name}} for name in tools]
    return {"model": "demo", "messages": list(messages), **({"tools": declared} if tools else {}), **more}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(client: TestClient[Any, Any], body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status == 200
    choice: dict[str, Any] = (await answer.json())["choices"][0]
    return choice


@pytest.mark.parametrize(
    ("said", "tools"),
    [
        ("Please DELETE order 7.", ["delete_order"]),
        ("search for shoes", ["search_products"]),
        ("Is my calendar free when order 7 comes?", ["get_order_status", "read_calendar"]),
    ],
)
async def test_a_word_of_the_user_chooses_the_calls(said: str, tools: list[str], client: TestClient[Any, Any]) -> None:
    """Each scene calls its tools, in an answer that ends with tool_calls."""
    choice = await ask(client, asked(user("other"), user(said), tools=(*tools, "unused")))
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == tools
    assert all(json.loads(call["function"]["arguments"]) for call in choice["message"]["tool_calls"])


async def test_only_declared_tools_are_called(client: TestClient[Any, Any]) -> None:
    """A tool that the request does not declare is left out; where none is left, a text says which were wanted."""
    some = await ask(client, asked(user("my calendar"), tools=("read_calendar",)))
    assert [call["function"]["name"] for call in some["message"]["tool_calls"]] == ["read_calendar"]
    none = await ask(client, asked(user("delete it")))
    assert none["message"]["content"] == "I would call delete_order, but the request declares no such tool."


async def test_results_are_quoted_by_the_names_of_their_calls(client: TestClient[Any, Any]) -> None:
    """When tools have answered since the last user message, the text quotes every result."""
    first = await ask(client, asked(user([{"type": "text", "text": "calendar"}]), tools=("get_order_status", "x")))
    call = first["message"]["tool_calls"][0]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "on its way"},
        {"role": "tool", "tool_call_id": "strange", "content": [{"type": "text", "text": "free"}]},
    ]
    last = await ask(client, asked(user("calendar"), first["message"], *results, tools=("get_order_status",)))
    assert last["message"]["content"] == "The tools said: get_order_status: on its way ?: free"
    assert last["finish_reason"] == "stop"


def test_ids_are_such_that_clients_get_them_unchanged() -> None:
    """Ids are unique, long, and no name with a counter."""
    ids = [call.call_id for scene in script.SCENES for call in scene.calls]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"call_[A-Za-z]{16,}", call_id) for call_id in ids)


async def test_a_stream_says_what_the_whole_answer_says(client: TestClient[Any, Any]) -> None:
    """Words and arguments come in pieces; put together they are the same turn."""
    body = asked(user("calendar"), tools=("get_order_status", "read_calendar"))
    for request in (body, asked(user("hello"))):
        whole = await ask(client, request)
        answer = await client.post("/v1/chat/completions", json={**request, "stream": True})
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [part.removeprefix("data: ") for part in (await answer.text()).split("\n\n")]
        assert events[-2:] == ["[DONE]", ""]
        choices = [json.loads(event)["choices"][0] for event in events[:-2]]
        deltas = [choice["delta"] for choice in choices]
        assert choices[-1]["finish_reason"] == whole["finish_reason"]
        assert "".join(delta.get("content") or "" for delta in deltas) == (whole["message"]["content"] or "")
        pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
        calls = [
            {"id": p[0]["id"], "name": p[0]["function"]["name"], "a": "".join(x["function"]["arguments"] for x in p)}
            for p in (list(some) for _, some in groupby(pieces, key=lambda piece: piece["index"]))
        ]
        assert calls == [
            {"id": c["id"], "name": c["function"]["name"], "a": c["function"]["arguments"]}
            for c in whole["message"].get("tool_calls", [])
        ]


async def test_a_stream_gives_usage_when_asked(client: TestClient[Any, Any]) -> None:
    """`stream_options` brings one more chunk, with usage and no choice."""
    body = asked(user("hello"), stream=True, stream_options={"include_usage": True})
    events = (await (await client.post("/v1/chat/completions", json=body)).text()).split("\n\n")
    last = json.loads(events[-3].removeprefix("data: "))
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > last["usage"]["prompt_tokens"]
