"""Clients of the Responses API, one for each manner of keeping a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.responses import PATH, Answer, Item, answer_of, body
from tests.e2e.sidecall import Got, Sidecall

MANNERS = ("full", "stateless", "previous", "conversation")
TOOLS = ("search", "delete", "cap", "count", "send", "stop")

both = pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
all_manners = pytest.mark.parametrize("manner", MANNERS)
remembered = pytest.mark.parametrize("manner", ["previous", "conversation"])


@dataclass
class Client:
    """A client: it sends its whole history (`full`; `stateless`: and nothing is to be stored), or what is new, with
    the response before (`previous`) or in a conversation."""

    here: Sidecall
    manner: str = "full"
    streams: bool = False
    tools: Sequence[str | Item] = TOOLS
    key: str = "one"
    path: str = PATH
    more: dict[str, Any] = field(default_factory=dict)
    history: list[Item] = field(default_factory=list)
    previous: str | None = None

    def request(self, *items: Item, **more: Any) -> dict[str, Any]:
        """What it would send next."""
        kept: dict[str, Any] = {}
        match self.manner:
            case "stateless":
                kept = {"store": False}
            case "previous" if self.previous is not None:
                kept = {"previous_response_id": self.previous}
            case "conversation":
                kept = {"conversation": "conv_0001"}
        before = self.history if self.manner in ("full", "stateless") else []
        stream = {"stream": True} if self.streams else {}
        return body(*before, *items, tools=self.tools, **stream, **kept, **self.more, **more)

    async def send(self, *items: Item, **more: Any) -> Got:
        """Send, and take the answer as it is; nothing is kept of it."""
        return await self.post(self.request(*items, **more))

    async def say(self, *items: Item, **more: Any) -> Answer:
        """Send what is new, and keep what comes."""
        answer = answer_of(await self.send(*items, **more))
        self.history += [*items, *answer.items]
        self.previous = answer.id
        return answer

    async def post(self, sent: dict[str, Any] | bytes) -> Got:
        data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        return await self.here.post(data, key=self.key, path=self.path)

    async def read(self, answer: Answer | str, behind: str = "", *, method: str = "GET") -> Got:
        """A response, or what belongs to it, as the client finds it later."""
        name = answer if isinstance(answer, str) else answer.id
        return await self.here.get(f"{self.path}/{name}{behind}", method=method, key=self.key)
