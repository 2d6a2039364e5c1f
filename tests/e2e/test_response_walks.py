"""Long made-up conversations over the Responses API, in every manner: the model always sees what it said itself.

What holds of every request: it begins with all that the model was told and said before, and goes on with a result for
each of its calls, in their order. `Endpoint` refuses anything else.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners
from tests.e2e.responses import (
    Answer,
    Item,
    action,
    answer_of,
    approval,
    call,
    custom,
    message,
    output,
    plain,
    reasoning,
    server,
    user,
)
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import Asked, FakeUpstream

FUNCTIONS = ("search", "fetch", "delete", "ping", "count", "send", "cap")
ROOMY: dict[str, Any] = {
    "continuations": {"max": 1000, "maxConsecutiveErrors": 1000, "restoreBytes": "16Mi"},
    "denials": {"stopAfter": 1000},
}


@dataclass
class Model:
    """Says what comes to its mind."""

    mind: random.Random
    number: int = 0
    strong: bool = True
    told: list[list[Item]] = field(default_factory=list)

    def __call__(self) -> Sequence[Item]:
        said: list[Item] = []
        for _ in range(self.mind.choice((0, 0, 1, 1, 2, 3, 4))):
            if self.mind.random() < 0.4:
                said.append(reasoning(self._next(), "secret"))
            if self.mind.random() < 0.2:
                said.append(message(f"So {self.number}.", self._next()))
            said.append(self._call())
        if not said:
            said = [reasoning(self._next(), "secret")] if self.mind.random() < 0.5 else []
            said.append(message(f"Done {self.number}.", self._next()))
        self.told.append(said)
        return said

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _call(self) -> Item:
        number = self._next()
        call_id = f"call_{number:024}" if self.mind.random() < 0.7 else f"call_{number % 3}"
        match self.mind.random():
            case lucky if lucky < 0.12:
                made = custom(call_id, self.mind.choice(("note", "wipe")), f"it {number}")
            case lucky if lucky < 0.2:
                made = action(call_id, "shell", action={"commands": [str(number)]})
            case lucky if lucky < 0.3:
                return approval(self.mind.choice(("read", "delete")), number=number)
            case _:
                made = call(call_id, self.mind.choice(FUNCTIONS), n=number, limit=number)
        return {**made, "id": f"{made['id'].partition('_')[0]}_{number:032}"}


def as_given(items: Sequence[Item], *, rewritten: bool) -> list[Item]:
    """Items as a history has them: a client that keeps it itself has arguments as rules left them."""
    found = plain(items)
    for item in found:
        if rewritten and item.get("name") == "cap":
            arguments = json.loads(item["arguments"])
            item["arguments"] = json.dumps({**arguments, "limit": min(10, arguments["limit"])}, separators=(",", ":"))
        elif item.get("name") == "cap":
            item["arguments"] = json.dumps(json.loads(item["arguments"]), separators=(",", ":"))
    return found


def results_for(answer: Answer) -> list[Item]:
    found = []
    for made in answer.calls:
        kind = made["type"]
        text: Any = f"result {made['call_id'][-3:]}"
        found.append(output(made["call_id"], [{"stdout": text}] if kind == "shell_call" else text, kind))
    return found


@pytest.mark.parametrize("seed", range(4))
@all_manners
async def test_the_model_sees_what_it_said(
    manner: str, seed: int, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Whatever was split, hidden, put off, renamed, rewritten, approved or asked again."""
    mind = random.Random(seed)
    model = Model(random.Random(seed))
    rules = policy(
        tmp_path,
        rule("no", "delete", "wipe", block={"message": "not here"}),
        rule("pong", "ping", answer={"content": "pong"}),
        rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}),
        rule("late", "send", defer={}),
    )
    endpoint.turns = [(model, {})] * 300

    async def count(asked: Asked) -> str:
        return f"counted {asked.json['n']}"

    tools: list[Any] = [*FUNCTIONS[:4], *FUNCTIONS[5:], server(require_approval="never")]
    async with sidecall(upstream.url, policies=[rules], tools=[upstream.tool("count", count)], **ROOMY) as here:
        client = Client(here, manner, tools=tools)
        truth: list[Item] = []
        answer: Answer | None = None
        for number in range(14):
            words = results_for(answer) if answer is not None else []
            if not words or mind.random() < 0.1:
                words.append(user(f"word {number}"))
            client.streams = mind.random() < 0.5
            if manner != "conversation" and mind.random() < 0.2:
                asked = len(endpoint.seen)
                answer_of(await client.send(*words))
                check_asked(endpoint, model, asked, truth=truth, rewritten=manner in ("full", "stateless"))
            asked = len(endpoint.seen)
            answer = await client.say(*words)
            truth = check_asked(endpoint, model, asked, truth=truth, rewritten=manner in ("full", "stateless"))
            assert not any(item.get("name") in ("delete", "wipe", "ping", "count") for item in answer.items)
        assert here.value("deferred_calls") == 0 or answer is not None
    runs = [asked.json["n"] for asked in upstream.runs["count"]]
    assert len(runs) == len(set(runs)), "nothing runs twice"
    endpoint.turns.clear()


def check_asked(endpoint: Endpoint, model: Model, first: int, *, truth: list[Item], rewritten: bool) -> list[Item]:
    """The requests since `first` each begin with what was there before; what is there by now."""
    for number in range(first, len(endpoint.seen)):
        seen = as_given(endpoint.seen[number], rewritten=rewritten)
        assert seen[: len(truth)] == truth
        truth = [*seen, *as_given(model.told[number], rewritten=rewritten)]
    return truth
