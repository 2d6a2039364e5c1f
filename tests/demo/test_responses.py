"""The scripted upstream's Responses API, as the package `openai` reads it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from proxy.demo import server
from proxy.demo.responses import Kept, respond

TOOLS: Any = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in ("read_calendar", "x")]


@pytest.fixture
async def client(aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[openai.AsyncOpenAI]:
    monkeypatch.setattr(server, "_WORD_PAUSE", 0)
    served: TestClient[Any, Any] = await aiohttp_client(server.build_app())
    async with openai.AsyncOpenAI(api_key="one", base_url=str(served.make_url("/v1")), max_retries=0) as found:
        yield found


@pytest.mark.parametrize("streams", [False, True])
async def test_two_turns(streams: bool, client: openai.AsyncOpenAI) -> None:
    """Calls, and then what the tools said; with what came before, or by the name of it."""

    async def ask(**asked: Any) -> Any:
        if not streams:
            return await client.responses.create(model="demo", tools=TOOLS, **asked)
        async with client.responses.stream(model="demo", tools=TOOLS, **asked) as stream:
            return await stream.get_final_response()

    first = await ask(input="Is my calendar free?")
    call = first.output[0]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "read_calendar", {"day": "Thursday"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "free"}
    second = await ask(input=[output], previous_response_id=first.id)
    question = {"role": "user", "content": [{"type": "input_text", "text": "Is my calendar free?"}]}
    same = await ask(input=[question, call.model_dump(exclude={"parsed_arguments"}), output], store=False)
    assert second.output_text == same.output_text == "The tools said: read_calendar: free"
    assert (await client.responses.retrieve(second.id)).output_text == second.output_text
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(same.id)


def test_it_keeps_the_latest_alone() -> None:
    """Memory stays bounded."""
    kept = Kept()
    ids = [respond({"input": "hello"}, kept)["id"] for _ in range(1001)]
    assert list(kept.responses) == ids[1:]
