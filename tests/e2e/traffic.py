"""Clients that keep asking while something is broken and mended, and a count of what each of them saw."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tests.e2e.chat import Message, answer, blocked, body, call, follow, history, result, said, stream, user
from tests.e2e.sidecall import Got
from tests.fake_upstream import Asked, FakeUpstream, Reply

TOOLS = ("search", "delete")
KINDS = ("plain", "first", "second")
DONE, REFUSED, AS_SENT, BROKEN = "done", "refused", "as sent", "broken"
CUT_OFF = "its outcome is unknown"


def batch(number: int) -> list[Message]:
    """A mixed batch that no other conversation has: one call is blocked, one is the client's, one the proxy's."""
    made = (("delete", {"id": number}), ("search", {"q": number}), ("count", {"n": number}))
    return [call(f"call_{number:020}{name[:4]:x>4}", name, **arguments) for name, arguments in made]


def model(asked: Asked) -> Reply:
    """A model without a memory: text to who only talks, a batch to who asks for one, `done` once it has results."""
    last = asked.messages[-1]
    whole = not asked.json.get("stream")
    if last["role"] == "tool":
        return answer(text=DONE) if whole else stream(text=DONE)
    _, _, number = last["content"].partition("batch ")
    if number:
        return answer(*batch(int(number))) if whole else stream(*batch(int(number)))
    return answer(text=last["content"]) if whole else stream(text=last["content"])


class Way(Protocol):
    """How a client reaches a proxy."""

    async def post(self, sent: Message) -> Got: ...


@dataclass
class Conversation:
    """A batch that a client has seen: what the client sends next, and what the model has to see then."""

    number: int
    sent: Message

    def whole(self, runs: dict[int, list[str]]) -> list[list[Message]]:
        """The histories that hold every call and every result: that of the one run, or that it was cut off."""
        deleted, searched, counted = (made["id"] for made in batch(self.number))
        told = [f"run of {self.number}" for _ in runs.get(self.number, ())]
        cut = f"Error: the run of count was cut off; {CUT_OFF}, and it was not repeated."
        return [
            [
                user(f"batch {self.number}"),
                said(*batch(self.number)),
                result(deleted, blocked("no", "no")),
                result(searched, "found"),
                result(counted, text),
            ]
            for text in (*told, cut)
        ]


@dataclass
class Traffic:
    """What clients do, each for itself, over several ways: a plain request, then a mixed batch in two turns, and so on;
    every other one is a stream. `plain`, `first` and `second` count what came of each kind of request, `now` the same
    since `begin`."""

    upstream: FakeUpstream
    ways: Sequence[Way]
    plain: Counter[str] = field(default_factory=Counter)
    first: Counter[str] = field(default_factory=Counter)
    second: Counter[str] = field(default_factory=Counter)
    seen: list[Conversation] = field(default_factory=list)
    runs: dict[int, list[str]] = field(default_factory=dict)
    now: Counter[str] = field(default_factory=Counter)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _moved: asyncio.Condition = field(default_factory=asyncio.Condition)
    _over: bool = False

    async def count(self, asked: Asked) -> str:
        """The proxy tool: it knows its own runs."""
        number = int(asked.json["n"])
        self.runs.setdefault(number, []).append(f"run of {number}")
        return f"run of {number}"

    def begin(self) -> None:
        """Count anew what comes from now on."""
        self.now = Counter()

    async def until(self, holds: Callable[[Counter[str]], bool]) -> None:
        async with asyncio.timeout(20), self._moved:
            await self._moved.wait_for(lambda: holds(self.now))

    @asynccontextmanager
    async def of(self, count: int) -> AsyncIterator[None]:
        """So many clients, until the end of the block; each comes to an end by itself, and none may have failed."""
        clients = [asyncio.ensure_future(self._client()) for _ in range(count)]
        try:
            yield
            self._over = True
            await asyncio.gather(*clients)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.wait(clients)

    async def every_batch_comes_back(self) -> None:
        """What any client has seen is put back whole, whichever way it comes."""
        back = (self.come_back(one, self._at(number)) for number, one in enumerate(self.seen))
        assert set(await asyncio.gather(*back)) == {DONE}

    async def _client(self) -> None:
        while not self._over:
            number = next(self._numbers)
            await self._plain(number)
            conversation = await self._first(number)
            if conversation is not None:
                await self._second(conversation)

    # -- requests

    def _at(self, number: int) -> Way:
        return self.ways[number % len(self.ways)]

    async def _plain(self, number: int) -> None:
        """No call in its history, none in its answer."""
        sent = body(user(f"word {number}"), tools=TOOLS, stream=bool(number % 2))
        await self._note("plain", self.plain, _outcome(await self._at(number).post(sent), f"word {number}"))

    async def _first(self, number: int) -> Conversation | None:
        """A batch that is split; None: the client did not see it end."""
        streams = bool(number // 2 % 2)
        got = await self._at(number).post(body(user(f"batch {number}"), tools=TOOLS, stream=streams))
        if (refused := _refusal(got)) is not None:
            await self._note("first", self.first, refused)
            return None
        message = got.assembled() if streams else got.message
        message.pop("finish", None)
        assert message["tool_calls"] == batch(number)[1:2], message
        sent = body(*follow(message, "found", before=(user(f"batch {number}"),)), tools=TOOLS, stream=streams)
        self.seen.append(conversation := Conversation(number, sent))
        await self._note("first", self.first, DONE)
        return conversation

    async def _second(self, conversation: Conversation) -> None:
        await self._note("second", self.second, await self.come_back(conversation, self._at(conversation.number + 1)))

    async def come_back(self, conversation: Conversation, way: Way) -> str:
        """Send the second turn of a conversation; what came of it, or what is wrong with it."""
        outcome = _outcome(await way.post(conversation.sent), DONE)
        if outcome != DONE:
            return outcome
        name = f"batch {conversation.number}"
        shown = next(found for asked in reversed(self.upstream.requests) if (found := _behind(asked, name)))
        if shown in conversation.whole(self.runs):
            return DONE
        return AS_SENT if shown == conversation.sent["messages"] else f"the model saw {shown}"

    async def _note(self, kind: str, to: Counter[str], outcome: str) -> None:
        to[outcome] += 1
        async with self._moved:
            self.now[f"{kind} {outcome}"] += 1
            self._moved.notify_all()


def _behind(asked: Asked, name: str) -> list[Message] | None:
    """The history of a second turn of a conversation."""
    shown = history(asked)
    return shown if shown[0]["content"] == name and len(shown) > 1 else None


def _refusal(got: Got) -> str | None:
    """Refused for want of the state: by its status, or by the last event of a stream; what else is wrong with it."""
    if got.broken:
        return BROKEN
    if got.status == 200 and b'"error"' not in got.data:
        return None
    return REFUSED if got.error["code"] == "state_unavailable" else f"{got.status} {got.data!r}"


def _outcome(got: Got, text: str) -> str:
    if (refused := _refusal(got)) is not None:
        return refused
    shown = got.assembled() if got.data.startswith((b"data:", b":")) else got.message
    return DONE if shown["content"] == text else f"{shown['content']!r}"
