"""The `openai` package and `openai-agents` as clients of the Responses API that know nothing of Sidecall."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai.types.responses import Response

from tests.e2e.responses import A, B, C, Item, call, custom, message, output, reasoning, response, stream, tool, user
from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

TOOLS: list[Any] = [tool(name) for name in ("search", "show", "delete")]
NO = rule("no", "delete", block={"message": "not here"})
BLOCKED = "Tool call blocked by policy p/no: not here"
WAYS = [f"{kind} {how}" for kind in ("sync", "async") for how in ("whole", "stream", "helper")]
Opened = Callable[..., Any]


class Talk:
    """One way to use the SDK: `ask` gives the response as its user has it."""

    def __init__(self, url: str, way: str) -> None:
        kind, _, self.way = way.partition(" ")
        made: Any = openai.OpenAI if kind == "sync" else openai.AsyncOpenAI
        self.client: Any = made(base_url=f"{url}/v1", api_key="one", max_retries=0, timeout=20)

    async def ask(self, given: Any, **more: Any) -> Response:
        asked: dict[str, Any] = {"model": "gpt-test", "input": given, "tools": TOOLS, **more}
        if isinstance(self.client, openai.OpenAI):
            return await asyncio.to_thread(self._sync, asked)
        return await self._async(asked)

    def _sync(self, asked: dict[str, Any]) -> Response:
        found: Any
        match self.way:
            case "whole":
                found = self.client.responses.create(**asked)
            case "stream":
                found = last_of(list(self.client.responses.create(stream=True, **asked)))
            case _:
                with self.client.responses.stream(**asked) as events:
                    assert [event.type for event in events][-1] == "response.completed"
                    found = events.get_final_response()
        return checked(found)

    async def _async(self, asked: dict[str, Any]) -> Response:
        found: Any
        match self.way:
            case "whole":
                found = await self.client.responses.create(**asked)
            case "stream":
                found = last_of([e async for e in await self.client.responses.create(stream=True, **asked)])
            case _:
                async with self.client.responses.stream(**asked) as events:
                    assert [event.type async for event in events][-1] == "response.completed"
                    found = await events.get_final_response()
        return checked(found)

    async def close(self) -> None:
        if isinstance(self.client, openai.OpenAI):
            self.client.close()
        else:
            await self.client.close()


def last_of(events: list[Any]) -> Any:
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    return events[-1].response


def checked(found: Any) -> Response:
    assert isinstance(found, Response)
    return found


def items_of(found: Response) -> list[Item]:
    """The output as a client sends it back."""
    return [json.loads(item.to_json()) for item in found.output]


def plain(items: list[Item]) -> list[Item]:
    return [{k: v for k, v in item.items() if k not in ("id", "status", "parsed_arguments")} for item in items]


def scripted(way: str, *items: Item, **more: Any) -> Whole | Events:
    return Whole(response(*items, **more)) if way.endswith("whole") else stream(*items, **more)


@pytest.fixture
async def open_talk(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens a Sidecall with these rules and a conversation with it."""
    async with AsyncExitStack() as stack:

        async def opened(way: str, *rules: dict[str, Any], tools: list[Any] | None = None) -> tuple[Talk, Sidecall]:
            settings: dict[str, Any] = {"policies": [policy(tmp_path, *rules)] if rules else [], "tools": tools or []}
            here = await stack.enter_async_context(sidecall(upstream.url, **settings))
            talk = Talk(here.url, way)
            stack.push_async_callback(talk.close)
            return talk, here

        yield opened


@pytest.mark.parametrize("way", WAYS)
async def test_a_mixed_batch_with_full_input(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """The client gets its own calls alone, and the model a whole history: every call, every result, in order."""
    talk, _ = await open_talk(way, NO, tools=[upstream.tool("status", "shipped")])
    made = [reasoning(1, "enc"), call(A, "delete", id=7), call(B, "search", q="x"), call(C, "status", order="o1")]
    upstream.script(scripted(way, *made), scripted(way, message("Done."), number=2))
    first = await talk.ask([user()], store=False)
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    second = await talk.ask([user(), *items_of(first), output(B, "found")], store=False)
    assert second.output_text == "Done."
    sent = upstream.last.json["input"]
    assert [item.get("type") for item in sent[1:5]] == ["reasoning", *["function_call"] * 3]
    assert [item["call_id"] for item in sent[2:5]] == [A, B, C]
    assert plain(sent[5:]) == [output(A, BLOCKED), output(B, "found"), output(C, "shipped")]


@pytest.mark.parametrize("way", WAYS)
async def test_a_mixed_batch_with_state_upstream(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """The upstream has the calls: only the results of the held ones are added."""
    talk, _ = await open_talk(way, NO)
    upstream.script(
        scripted(way, call(A, "delete"), call(B, "search", q="x")), scripted(way, message("Done."), number=2)
    )
    first = await talk.ask("hello")
    second = await talk.ask([output(B, "found")], previous_response_id=first.id)
    assert second.output_text == "Done."
    assert upstream.last.json["previous_response_id"] == first.id
    assert upstream.last.json["input"] == [output(A, BLOCKED), output(B, "found")]


@pytest.mark.parametrize("way", WAYS)
async def test_hidden_rounds_are_one_response(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """Text of both rounds, one id for all events, usage of both; the next turn builds on the last."""
    talk, _ = await open_talk(way, NO)
    upstream.script(
        scripted(way, message("Let me see.", 1), call(A, "delete")),
        scripted(way, message("I may not.", 2), number=2),
        scripted(way, message("Well.", 3), number=3),
    )
    first = await talk.ask("hello")
    assert first.output_text == "Let me see.I may not."
    assert first.usage is not None
    assert first.usage.total_tokens == 30
    again = await talk.ask("and now?", previous_response_id=first.id)
    assert again.output_text == "Well."
    assert upstream.last.json["previous_response_id"] == response(number=2)["id"]


@pytest.mark.parametrize("way", WAYS)
async def test_changed_arguments(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """A function's and a custom tool's, wherever the SDK reads them."""
    rules = [
        rule("cap", "search", rewrite={"clamp": {"n": {"max": 10}}}),
        rule("say", "show", rewrite={"merge": {"input": "hidden"}}),
    ]
    talk, _ = await open_talk(way, *rules)
    upstream.script(scripted(way, call(A, "search", n=99), custom(B, "show", "secret")))
    found = await talk.ask("hello")
    assert [getattr(item, "arguments", getattr(item, "input", "")) for item in found.output] == ['{"n":10}', "hidden"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_a_rule_stops(way: str, open_talk: Opened, upstream: FakeUpstream) -> None:
    """A message that every reader has; the upstream gets results for the calls that nobody ran."""
    stop = rule("stop", "delete", block={"message": "Stopped.", "then": "stop"})
    talk, _ = await open_talk(way, stop)
    upstream.script(scripted(way, call(A, "delete")), scripted(way, message("Fine."), number=2))
    first = await talk.ask("hello")
    assert (first.output_text, first.status) == ("Stopped.", "completed")
    await talk.ask("why?", previous_response_id=first.id)
    text = "Tool call blocked by policy p/stop: Stopped."
    assert upstream.last.json["input"] == [output(A, text), user("why?")]


# ---------------------------------------------------------------- openai-agents


def agent(here: Sidecall, ran: list[str]) -> tuple[Agent[None], openai.AsyncOpenAI]:
    """An agent with two tools of its own, one of which a rule keeps from it."""

    @function_tool
    def search(q: str) -> str:
        """Look something up."""
        ran.append(f"search {q}")
        return f"found {q}"

    @function_tool
    def delete(number: int) -> str:
        """Delete something."""
        ran.append(f"delete {number}")
        return "deleted"

    client = openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key="one", max_retries=0, timeout=20)
    model = OpenAIResponsesModel(model="gpt-test", openai_client=client)
    settings = ModelSettings(parallel_tool_calls=True)
    return Agent(name="clerk", tools=[search, delete], model=model, model_settings=settings), client


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_an_agent_over_a_mixed_batch(
    streams: bool, upstream: FakeUpstream, tmp_path: Path, open_talk: Opened
) -> None:
    """It runs its own call alone and goes on; the model sees both results, on this turn and the next."""
    _, here = await open_talk("async whole", NO)
    ran: list[str] = []
    clerk, client = agent(here, ran)
    way = "async stream" if streams else "async whole"
    upstream.script(
        scripted(way, call(A, "delete", number=7), call(B, "search", q="x")),
        scripted(way, message("Done.", 1), number=2),
        scripted(way, message("Bye.", 2), number=3),
    )
    quiet = RunConfig(tracing_disabled=True)
    async with client:
        texts: list[Any] = []
        given: Any = [user()]
        for _ in range(2):
            if streams:
                running = Runner.run_streamed(clerk, given, run_config=quiet)
                assert [event async for event in running.stream_events()]
                texts.append(running.final_output)
                given = [*running.to_input_list(), user("bye")]
            else:
                done = await Runner.run(clerk, given, run_config=quiet)
                texts.append(done.final_output)
                given = [*done.to_input_list(), user("bye")]
    assert (texts, ran) == (["Done.", "Bye."], ["search x"])
    second, third = (asked.json["input"] for asked in upstream.requests[1:])
    assert plain(second[1:]) == [
        {"type": "function_call", "call_id": A, "name": "delete", "arguments": '{"number": 7}'},
        {"type": "function_call", "call_id": B, "name": "search", "arguments": '{"q": "x"}'},
        output(A, BLOCKED),
        output(B, "found x"),
    ]
    assert third[: len(second)] == second
