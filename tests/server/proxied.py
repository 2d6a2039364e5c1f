"""A whole proxy in the test's own event loop, in front of an origin."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.config import Config
from proxy.server.app import Running, run
from proxy.server.loading import load
from proxy.server.logs import Log
from proxy.server.services import ExchangeIn, Services

BLOCK = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: p}
spec:
  rules:
    - {name: r, match: {tools: [delete]}, block: {message: "no"}}
"""


class Passing:
    """A governor that passes what it is given, and keeps what it was asked."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.exchanges: list[ExchangeIn] = []

    async def serve(self, exchange: ExchangeIn) -> None:
        self.exchanges.append(exchange)
        body = await exchange.client.read(self.services.config.listen.max_body_bytes)
        async with self.services.upstream.request(exchange.client.head, body, governed=True) as answer:
            await exchange.client.start(answer.status, answer.headers)
            async for piece in answer.pieces():
                await exchange.client.write(piece)
            await exchange.client.finish()


@dataclass
class Proxied:
    running: Running
    governor: Passing
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.running.data.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.running.admin.port}"

    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["message"] == "request"]

    def value(self, name: str, **labels: str) -> float:
        found = self.running.services.metrics.registry.get_sample_value(f"sidecall_{name}", labels)
        return 0.0 if found is None else found


def configured(base_url: str, **settings: Any) -> Config:
    given: dict[str, Any] = {
        "listen": {"port": 0, **settings.pop("listen", {})},
        "admin": {"port": 0, **settings.pop("admin", {})},
        "upstream": {"baseUrl": base_url, **settings.pop("upstream", {})},
        "state": {"url": "memory:"},
        **settings,
    }
    return Config.model_validate_json(json.dumps(given), by_alias=True, by_name=False)


@asynccontextmanager
async def proxied(
    base_url: str,
    *,
    policy: Path | None = None,
    governor: Callable[[Services], Passing] = Passing,
    **settings: Any,
) -> AsyncIterator[Proxied]:
    """`policy`, when given, is a file that gets one rule, so that something is governed."""
    if policy is not None:
        policy.write_text(BLOCK)
        settings["policies"] = [str(policy)]
    config = configured(base_url, **settings)
    lines: list[dict[str, Any]] = []
    log = Log(level=config.log.level, clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    made: list[Passing] = []

    def build(services: Services) -> Passing:
        made.append(governor(services))
        return made[0]

    async with run(config, load(config), lambda: config, log=log, environ={}, build_governor=build) as running:
        yield Proxied(running, made[0], lines)
