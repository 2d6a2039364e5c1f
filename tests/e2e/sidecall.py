"""A Sidecall in the test's own event loop, as `serve` makes it, and a client for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from proxy.server.app import Running, run
from proxy.server.governing import Governor
from proxy.server.loading import load
from proxy.server.logs import Log
from proxy.server.services import Services
from tests.e2e.chat import PATH, Message
from tests.server.proxied import configured


def policy(folder: Path, *rules: dict[str, Any], name: str = "p", **spec: Any) -> str:
    """A file with one policy; its path."""
    path = folder / f"{name}.json"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "sidecall.io/v1",
                "kind": "ToolPolicy",
                "metadata": {"name": name},
                "spec": {**({"rules": list(rules)} if rules else {}), **spec},
            }
        )
    )
    return str(path)


def rule(name: str, *tools: str, **action: Any) -> dict[str, Any]:
    return {"name": name, "match": {"tools": list(tools)}, **action}


@dataclass
class Got:
    """An answer: whole, or a stream as it was read to its end (`broken`: it had none)."""

    status: int
    headers: dict[str, str]
    data: bytes
    broken: bool = False

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.data)
        return value

    @property
    def message(self) -> Message:
        message: Message = self.json["choices"][0]["message"]
        return message

    @property
    def error(self) -> dict[str, Any]:
        """The error of a reply, or of the last event of a stream."""
        found = self.json if not self.data.startswith((b"data:", b":", b"event:")) else self.events[-1]
        error: dict[str, Any] = found["error"]
        return error

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = (line.removeprefix(b"data: ") for line in self.data.split(b"\n") if line.startswith(b"data: "))
        return [json.loads(line) for line in lines if line != b"[DONE]"]

    def assembled(self, index: int = 0) -> Message:
        """The message that a reader of the stream has at its end, with its finish reason."""
        text, calls, finish = "", list[Message](), None
        for event in self.events:
            for found in event.get("choices", []):
                if found["index"] != index:
                    continue
                text += found["delta"].get("content") or ""
                for entry in found["delta"].get("tool_calls") or []:
                    if entry["index"] == len(calls):
                        calls.append({"id": entry["id"], "type": "function", "function": {"name": "", "arguments": ""}})
                    for key, value in entry.get("function", {}).items():
                        calls[entry["index"]]["function"][key] += value
                finish = found["finish_reason"] or finish
        message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        return {**message, "finish": finish}


@dataclass
class Sidecall:
    """`session` is the client; its credential is that of one tenant."""

    running: Running
    session: aiohttp.ClientSession
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.running.data.port}"

    async def post(self, sent: Message | bytes, *, key: str = "one", path: str = PATH, **headers: str) -> Got:
        return await post(self.session, self.url, sent, key=key, path=path, headers=headers)

    async def get(self, path: str, *, method: str = "GET", key: str = "one", sent: bytes | None = None) -> Got:
        """Read, change or delete what the upstream keeps."""
        return await request(self.session, method, f"{self.url}{path}", key=key, data=sent)

    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["message"] == "request"]

    def audit(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["message"] == "tool_call"]

    def value(self, name: str, **labels: str) -> float:
        return self.running.services.metrics.registry.get_sample_value(f"sidecall_{name}", labels) or 0.0

    def total(self, name: str, **labels: str) -> float:
        """The sum of all series of a metric that have these labels."""
        families = self.running.services.metrics.registry.collect()
        samples = (s for family in families for s in family.samples if s.name == f"sidecall_{name}")
        return sum(s.value for s in samples if labels.items() <= s.labels.items())


async def post(
    session: aiohttp.ClientSession,
    url: str,
    sent: Message | bytes,
    *,
    key: str = "one",
    path: str = PATH,
    headers: dict[str, str] | None = None,
) -> Got:
    """Ask for a chat completion, or what else is asked for by its path, and read the answer to its end."""
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    given = {"content-type": "application/json", **(headers or {})}
    return await request(session, "POST", f"{url}{path}", key=key, data=data, headers=given)


async def request(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    key: str,
    data: bytes | None,
    headers: dict[str, str] | None = None,
) -> Got:
    """Ask, and read the answer to its end."""
    given = {"authorization": f"Bearer {key}", **(headers or {})}
    async with session.request(method, url, data=data, headers=given) as answer:
        found, broken = b"", False
        try:
            async for piece in answer.content.iter_any():
                found += piece
        except aiohttp.ClientError:
            broken = True
        return Got(answer.status, {k.lower(): v for k, v in answer.headers.items()}, found, broken)


@asynccontextmanager
async def sidecall(
    upstream: str, *, services: Callable[[Services], Services] | None = None, **settings: Any
) -> AsyncIterator[Sidecall]:
    """A running Sidecall. `services` may put something in the place of what the governor works with."""
    config = configured(upstream, **settings)
    lines: list[dict[str, Any]] = []
    log = Log(level="info", clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))

    def build(given: Services) -> Governor:
        return Governor(services(given) if services else given)

    async with (
        run(config, load(config), lambda: config, log=log, environ={}, build_governor=build) as running,
        aiohttp.ClientSession() as session,
    ):
        yield Sidecall(running, session, lines)


def pinging(seconds: float) -> Callable[[Services], Services]:
    """Comments in a stream that waits come so often."""
    return lambda services: replace(services, ping_seconds=seconds)
