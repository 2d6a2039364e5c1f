"""What a client gets of an error."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.errors import BusyError, ProxyError, RequestError, StoreError, UpstreamError
from proxy.server.replies import REQUEST_ID, error_event
from proxy.server.services import ExchangeIn, Services
from tests.server.origin import answer, origin
from tests.server.proxied import Passing, proxied


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Failing(Passing):
    """Raises what it is told to, before or within an answer."""

    error: Exception = ProxyError("?")
    started: str = ""

    def __init__(self, services: Services) -> None:
        super().__init__(services)

    async def serve(self, exchange: ExchangeIn) -> None:
        if self.started:
            await exchange.client.start(200, (("content-type", self.started),))
            await exchange.client.write(b"data: 1\n\n")
        raise self.error


async def fail(
    client: aiohttp.ClientSession, folder: Path, error: Exception, started: str = ""
) -> tuple[Any, bytes, Any]:
    made = type("Made", (Failing,), {"error": error, "started": started})
    async with origin(answer(b"ok")) as there, proxied(there.url, policy=folder / "p.yaml", governor=made) as here:
        got = await client.post(f"{here.url}/v1/chat/completions", data=b"{}")
        try:
            return got, await got.read(), here
        finally:
            got.close()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestError("no", code="invalid_request_body"), 400, "invalid_request_body"),
        (UpstreamError("no", kind="timeout", status=504), 504, None),
        (StoreError("no"), 503, "state_unavailable"),
        (BusyError("no"), 503, "overloaded"),
        (RuntimeError("sk-secret"), 500, "internal_error"),
    ],
)
async def test_an_error_before_the_answer_is_a_reply(
    error: Exception, status: int, code: str | None, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A reply has OpenAI's four keys and the request's id, and nothing of what nobody foresaw."""
    got, body, here = await fail(client, tmp_path, error)
    told = json.loads(body)["error"]
    assert (got.status, told["code"]) == (status, code)
    assert told.keys() == {"message", "type", "param", "code"}
    assert got.headers[REQUEST_ID] == here.requests()[0]["request_id"]
    assert ("retry-after" in got.headers) is isinstance(error, BusyError)
    assert "sk-secret" not in str(here.lines) + body.decode()


async def test_an_error_within_a_stream_is_an_event(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """A governed stream ends with an error event, and ends well."""
    got, body, _ = await fail(client, tmp_path, StoreError("no"), "text/event-stream")
    first, last = body.split(b"\n\n")[:2]
    assert (got.status, first) == (200, b"data: 1")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "state_unavailable"


async def test_an_error_within_a_stream_of_numbered_events_has_the_next_number(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Whoever writes numbered events says which comes next, and the log's line does not show it."""

    class Numbering(Passing):
        async def serve(self, exchange: ExchangeIn) -> None:
            exchange.log.api, exchange.log.next_event = "responses", 7
            await exchange.client.start(200, (("content-type", "text/event-stream"),))
            raise StoreError("no")

    policy = tmp_path / "p.yaml"
    async with origin(answer(b"ok")) as there, proxied(there.url, policy=policy, governor=Numbering) as here:
        async with client.post(f"{here.url}/v1/chat/completions", data=b"{}") as got:
            event = json.loads((await got.read()).split(b"data: ")[1])
        (line,) = here.requests()
    assert (event["type"], event["sequence_number"]) == ("error", 7)
    assert event["error"]["code"] == event["code"] == "state_unavailable"
    assert "next_event" not in line


async def test_an_error_within_another_answer_breaks_it(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """What was sent must not be taken for the whole."""
    with pytest.raises(aiohttp.ClientPayloadError):
        await fail(client, tmp_path, StoreError("no"), "application/json")


def test_an_event_has_the_form_of_its_api() -> None:
    """The Responses API names its events."""
    assert error_event(StoreError("no"), "chat").startswith(b'data: {"error":')
    told = {"message": "no", "type": "server_error", "param": None, "code": "state_unavailable"}
    event = error_event(StoreError("no"), "responses")
    assert event.startswith(b"event: error\ndata: ")
    assert event.endswith(b"}\n\n")
    assert json.loads(event.split(b"data: ")[1]) == {**told, "type": "error", "error": told}
    numbered = error_event(StoreError("no"), "responses", number=0)
    assert json.loads(numbered.split(b"data: ")[1])["sequence_number"] == 0
