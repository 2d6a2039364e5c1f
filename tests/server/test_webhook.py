"""Telling a webhook: signed, tried a few times, in nobody's way."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp.test_utils
import pytest
from aiohttp import web

from proxy.server.logs import Log
from proxy.server.tasks import TaskOwner
from proxy.server.webhook import SIGNATURE, Webhook, signature


@dataclass
class Receiver:
    """A webhook of a test; it answers with these statuses, the last one for good."""

    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()
        self.tasks = TaskOwner(lambda name, error: self.lines.append({"task": name, "error": repr(error)}))

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.got.append((await request.read(), {k.lower(): v for k, v in request.headers.items()}))
        await self.gate.wait()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(status=status, headers={"location": "/elsewhere"} if status == 302 else {})

    def webhook(self, **more: Any) -> Webhook:
        log = Log(level="info", clock=lambda: 0.0, write=lambda line: self.lines.append(json.loads(line)))
        given = {"delays": (0.0, 0.0), **more}
        return Webhook(lambda: self.url, lambda: "hush", tasks=self.tasks, log=log, **given)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    async with aiohttp.test_utils.RawTestServer(found) as server:
        found.url = str(server.make_url("/hook?key=%20"))
        yield found
        found.gate.set()
        await found.tasks.drain(5)


async def told(receiver: Receiver, webhook: Webhook) -> None:
    await receiver.tasks.drain(5)
    await webhook.close()


async def test_what_is_told_is_signed(receiver: Receiver) -> None:
    """Whoever knows the secret can see that the body is the proxy's, to the byte."""
    webhook = receiver.webhook()
    webhook.tell("apr_1", b'{"a":1}')
    await told(receiver, webhook)
    ((body, headers),) = receiver.got
    assert body == b'{"a":1}'
    assert headers[SIGNATURE] == "sha256=" + hmac.new(b"hush", b'{"a":1}', hashlib.sha256).hexdigest()
    assert headers[SIGNATURE] != signature("other", body)
    assert (headers["content-type"], headers["idempotency-key"]) == ("application/json", "apr_1")
    assert receiver.lines == []


@pytest.mark.parametrize(
    ("statuses", "tries", "logged"),
    [([500, 429, 204], 3, []), ([503], 3, ["HTTP status 503"]), ([302], 3, ["HTTP status 302"]), ([201], 1, [])],
)
async def test_it_is_tried_a_few_times(statuses: list[int], tries: int, logged: list[str], receiver: Receiver) -> None:
    """Any answer but a good one is tried again; then the log says that it was not told. Redirects are not followed."""
    receiver.statuses = statuses
    webhook = receiver.webhook()
    webhook.tell("apr_1", b"{}")
    await told(receiver, webhook)
    assert len(receiver.got) == tries
    assert [line["reason"] for line in receiver.lines] == logged


async def test_a_webhook_that_is_not_there(receiver: Receiver, unused_tcp_port: int) -> None:
    """Its address is not logged: it may hold a secret."""
    receiver.url = f"http://127.0.0.1:{unused_tcp_port}/hook?key=secret"
    webhook = receiver.webhook(delays=())
    webhook.tell("apr_1", b"{}")
    await told(receiver, webhook)
    assert [(line["about"], line["reason"]) for line in receiver.lines] == [("apr_1", "ClientConnectorError")]
    assert "secret" not in json.dumps(receiver.lines)


async def test_nobody_waits_for_it(receiver: Receiver) -> None:
    """So many are told at once; what is too much is dropped, and that is logged."""
    receiver.gate.clear()
    webhook = receiver.webhook()
    for number in range(1001):
        webhook.tell(f"apr_{number}", b"{}")
    assert [line["about"] for line in receiver.lines] == ["apr_1000"]
    while len(receiver.got) < 8:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert len(receiver.got) == 8
    receiver.gate.set()
    await told(receiver, webhook)
    assert len(receiver.got) == 1000
