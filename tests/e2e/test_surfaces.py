"""Every feature on every surface that is governed: what the table of `docs/surfaces.md` says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import chat, responses
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

A, B, C = chat.A, chat.B, chat.C
Asked = tuple[str, dict[str, Any]]
"""A call as a test asks for it: a tool, and its arguments; of a custom tool, its text under `input`."""


@dataclass(frozen=True)
class Shown:
    """What a client has of an answer: its calls, its text, whether it came as the upstream sent it."""

    calls: list[Asked]
    text: str
    got: Got


class Chat:
    """Chat completions; `legacy`: with functions in place of tools; `choices`: so many answers at once, all alike."""

    path, api = chat.PATH, "chat"

    def __init__(self, *, streams: bool = False, legacy: bool = False, custom: bool = False, choices: int = 1) -> None:
        self.streams, self.legacy, self.custom, self.choices = streams, legacy, custom, choices

    def call(self, call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.custom:
            return {"id": call_id, "type": "custom", "custom": {"name": name, "input": arguments["input"]}}
        return chat.call(call_id, name, **arguments)

    def answer(self, *calls: Asked, text: str = "") -> Whole | Events:
        made = [
            self.call(f"call_{at}{index:023}", *asked)
            for at in range(self.choices)
            for index, asked in enumerate(calls)
        ]
        per = len(calls)
        groups = [made[at * per : (at + 1) * per] for at in range(self.choices)]
        if self.streams:
            events = [e for at, group in enumerate(groups) for e in self._events(at, group, text)]
            return Events([*events, chat.chunk(None, usage=chat.USAGE)])
        found = [chat.choice(*group, text=text or None, index=at) for at, group in enumerate(groups)]
        for choice in found:
            self._as_legacy(choice)
        return chat.answers(*found)

    def _as_legacy(self, choice: dict[str, Any]) -> None:
        calls = choice["message"].get("tool_calls") if self.legacy else None
        if calls:
            assert len(calls) == 1, "a legacy answer has one call"
            choice["message"]["function_call"] = calls[0]["function"]
            choice["finish_reason"] = "function_call"
            del choice["message"]["tool_calls"]

    def _events(self, index: int, calls: list[dict[str, Any]], text: str) -> list[Any]:
        if self.custom:
            deltas = [{"tool_calls": [{"index": at, **made}]} for at, made in enumerate(calls)]
            first = chat.events(text=text, index=index)[:-1]
            finish = chat.chunk({}, "tool_calls" if calls else "stop", index)
            return [*first, *(chat.chunk(delta, index=index) for delta in deltas), finish]
        return chat.events(*calls, text=text, index=index)

    def body(self, *tools: str) -> dict[str, Any]:
        more: dict[str, Any] = {"stream": True} if self.streams else {}
        if self.choices > 1:
            more["n"] = self.choices
        if self.legacy:
            return chat.body(functions=[chat.tool(name)["function"] for name in tools], **more)
        if self.custom:
            return chat.body(**more) | {"tools": [{"type": "custom", "custom": {"name": name}} for name in tools]}
        return chat.body(tools=tools, **more)

    def read(self, got: Got) -> list[Shown]:
        """What the client has, one a choice."""
        if not self.streams:
            messages = [choice["message"] for choice in got.json["choices"]]
        else:
            messages = [got.assembled(at) if not self.custom else _custom(got) for at in range(self.choices)]
        return [Shown(self._calls(message), message.get("content") or "", got) for message in messages]

    @staticmethod
    def _calls(message: dict[str, Any]) -> list[Asked]:
        found: list[Asked] = []
        for made in message.get("tool_calls") or []:
            if "custom" in made:
                found.append((made["custom"]["name"], {"input": made["custom"]["input"]}))
            else:
                found.append((made["function"]["name"], json.loads(made["function"]["arguments"])))
        if legacy := message.get("function_call"):
            found.append((legacy["name"], json.loads(legacy["arguments"])))
        return found


def _custom(got: Got) -> dict[str, Any]:
    """A streamed message with custom calls, each in one piece."""
    deltas = [choice["delta"] for event in got.events for choice in event.get("choices", [])]
    calls = [entry for delta in deltas for entry in delta.get("tool_calls") or []]
    return {"content": "".join(delta.get("content") or "" for delta in deltas), "tool_calls": calls}


class Responses:
    """Responses; `custom`: with tools of free text."""

    path, api, choices = responses.PATH, "responses", 1

    def __init__(self, *, streams: bool = False, custom: bool = False) -> None:
        self.streams, self.custom = streams, custom
        self._number = 0

    def answer(self, *calls: Asked, text: str = "") -> Whole | Events:
        self._number += 1
        items = [responses.message(text, self._number)] if text else []
        for at, (name, arguments) in enumerate(calls):
            call_id = f"call_{self._number}{at:023}"
            made = responses.custom(call_id, name, arguments["input"]) if self.custom else None
            items.append(made or responses.call(call_id, name, **arguments))
        answer = responses.stream if self.streams else responses.whole
        return answer(*items, number=self._number)

    def body(self, *tools: str) -> dict[str, Any]:
        declared = [{"type": "custom", "name": name} if self.custom else name for name in tools]
        return responses.body("hello", tools=declared, stream=self.streams)

    def read(self, got: Got) -> list[Shown]:
        answer = responses.answer_of(got)
        calls: list[Asked] = [
            (c["name"], {"input": c["input"]} if "input" in c else json.loads(c["arguments"])) for c in answer.calls
        ]
        return [Shown(calls, "".join(answer.texts), got)]


Surface = Chat | Responses
SURFACES: dict[str, Surface] = {
    "chat": Chat(),
    "chat-stream": Chat(streams=True),
    "legacy": Chat(legacy=True),
    "custom": Chat(custom=True),
    "custom-stream": Chat(custom=True, streams=True),
    "choices": Chat(choices=2),
    "choices-stream": Chat(choices=2, streams=True),
    "responses": Responses(),
    "responses-stream": Responses(streams=True),
    "responses-custom": Responses(custom=True),
    "responses-custom-stream": Responses(custom=True, streams=True),
}
on_all = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)
RULES = [
    rule("no", "delete", block={"message": "no"}),
    rule("cap", "search", when="has(args.n)", rewrite={"clamp": {"n": {"max": 10}}}),
    rule("say", "search", when="has(args.input)", rewrite={"merge": {"input": "hidden"}}),
    rule("stop", "drop", block={"message": "Stopped.", "then": "stop"}),
    rule("fail", "wipe", block={"message": "Failed.", "then": "fail"}),
    rule("pong", "ping", answer={"content": "pong"}),
]
TOOLS = ("delete", "search", "show", "drop", "wipe", "ping")


@pytest.fixture
async def here(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Sidecall]:
    async with sidecall(
        upstream.url, policies=[policy(tmp_path, *RULES)], tools=[upstream.tool("count", "counted")]
    ) as running:
        yield running


def asked(surface: Surface, name: str) -> Asked:
    return name, {"input": "secret"} if surface.custom else {"n": 99}


async def ask(surface: Surface, here: Sidecall) -> list[Shown]:
    return surface.read(await here.post(surface.body(*TOOLS), path=surface.path))


@on_all
async def test_nothing_changes(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """Calls that no rule holds, and text: the answer is the upstream's to the byte."""
    for reply in (surface.answer(asked(surface, "show")), surface.answer(text="plain")):
        upstream.script(reply)
        assert (await here.post(surface.body(*TOOLS), path=surface.path)).data == reply.data()


@on_all
async def test_arguments_are_rewritten(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """And nothing of the model's own reaches the client."""
    upstream.script(surface.answer(asked(surface, "search")))
    for shown in await ask(surface, here):
        assert shown.calls == [("search", {"input": "hidden"} if surface.custom else {"n": 10})]
        assert b"99" not in shown.got.data
        assert b"secret" not in shown.got.data
    assert here.total("tool_calls_total", api=surface.api, decision="rewritten") == surface.choices


@on_all
async def test_a_batch_held_whole_is_continued(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """The model gets the results of a block and of an answer, the client one answer with the text alone."""
    single = isinstance(surface, Chat) and surface.legacy
    calls = [asked(surface, "delete"), asked(surface, "ping")][: 1 if single else 2]
    last = Chat(streams=surface.streams) if isinstance(surface, Chat) else surface
    upstream.script(surface.answer(*calls), *(last.answer(text="Well.") for _ in range(surface.choices)))
    for shown in await ask(surface, here):
        assert (shown.calls, shown.text) == ([], "Well.")
    for went_up in upstream.requests[1:]:
        assert b"Tool call blocked by policy p/no: no" in went_up.body
        assert (b"pong" in went_up.body) is not single
    assert here.total("continuations_total", api=surface.api, end="text") == surface.choices


@on_all
async def test_a_mixed_batch_is_split(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """The client gets its own calls, in order; nothing of the held ones. A legacy answer has one call, surfaced."""
    single = isinstance(surface, Chat) and surface.legacy
    calls = [asked(surface, "show"), asked(surface, "delete")][: 1 if single else 2]
    upstream.script(surface.answer(*calls))
    for shown in await ask(surface, here):
        assert shown.calls == calls[:1]
    assert here.total("batches_total", api=surface.api, kind="single" if single else "mixed") == surface.choices


@on_all
async def test_a_rule_ends_the_turn(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """With its message as the text, and no call."""
    upstream.script(surface.answer(asked(surface, "drop")))
    for shown in await ask(surface, here):
        assert (shown.calls, shown.text) == ([], "Stopped.")
    assert len(upstream.requests) == 1


@on_all
async def test_a_rule_fails_the_request(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """With 403 or an error event of the API's own form, and no call."""
    upstream.script(surface.answer(asked(surface, "wipe")))
    got = await here.post(surface.body(*TOOLS), path=surface.path)
    assert (got.error["code"], got.error["message"]) == ("tool_call_blocked", "Failed.")
    assert got.status == (200 if surface.streams else 403)
    assert b"secret" not in got.data


@on_all
async def test_a_proxy_tool_runs(surface: Surface, here: Sidecall, upstream: FakeUpstream) -> None:
    """Once a choice, and the client does not hear of it."""
    last = Chat(streams=surface.streams) if isinstance(surface, Chat) else surface
    upstream.script(
        surface.answer(asked(surface, "count")), *(last.answer(text="Six.") for _ in range(surface.choices))
    )
    for shown in await ask(surface, here):
        assert (shown.calls, shown.text) == ([], "Six.")
    assert len(upstream.runs["count"]) == surface.choices
    assert all(b"counted" in went_up.body for went_up in upstream.requests[1:])
