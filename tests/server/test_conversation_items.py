"""Items that are added to a conversation without a request for an answer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.flaky import Flaky
from tests.e2e.manners import Client
from tests.e2e.responses import A, B, C, approval, approved, call, message, output, server, user
from tests.e2e.sidecall import Got, Sidecall, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

ITEMS = "/v1/conversations/conv_0001/items"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(tmp_path, rule("no", "delete", block={"message": "not here"}))


async def add(here: Sidecall, *items: Any) -> Got:
    return await here.post({"items": items}, path=ITEMS)


async def test_a_result_for_a_call_that_was_held_is_refused(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The upstream hears nothing of it."""
    endpoint.says(call(A, "search"), call(B, "delete"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, "conversation").say(user())
        got = await add(here, user("more"), output(B, "deleted"))
    assert (got.status, got.error["message"]) == (400, f"items[1] answers a call that was not given out: {B!r}.")
    assert not endpoint.others


async def test_an_approval_of_what_a_rule_blocked_is_refused(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Also where the call that it approves comes along."""
    blocked, other = approval("delete", number=1), approval("delete", number=2)
    endpoint.says(blocked)
    endpoint.says(message("I may not."))
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, "conversation", tools=[server()]).say(user())
        assert (await add(here, approved(blocked))).status == 400
        assert (await add(here, other, approved(other))).status == 400
    assert not endpoint.others


async def test_results_go_up_under_the_ids_of_the_upstream(
    rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """All else stays as it was written, in whatever coding."""
    endpoint.says(call("call_1", "search"), call(C, "search"), call(B, "delete"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, "conversation").say(user())
        given = answer.calls[0]["call_id"]
        sent = b'{ "n":1.10, "items":[{"type":"function_call_output","call_id":"%s","output":"a"}] }' % given.encode()
        await here.post(sent, path=ITEMS)
        coded = {"content-encoding": "gzip"}
        await here.post(gzip.compress(sent), path=ITEMS, **coded)
        plain = json.dumps({"items": [output(C, "b")]}, indent=1).encode()
        await here.post(plain, path=ITEMS)
    assert given != "call_1"
    own = sent.replace(given.encode(), b"call_1")
    assert [asked.body for asked in endpoint.others] == [own, own, plain]
    assert "content-encoding" not in endpoint.others[1].headers


@pytest.mark.parametrize("body", [b'{"items": [], "items": []}', b'\xef\xbb\xbf{"items": []}'])
async def test_what_two_readers_could_read_differently_is_refused(
    body: bytes, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await here.post(body, path=ITEMS)
    assert (got.status, got.error["code"]) == (400, "invalid_request_body")


async def test_a_store_that_is_down(rules: str, upstream: FakeUpstream, endpoint: Endpoint) -> None:
    """Nobody can say whose results these are."""
    flaky = Flaky()
    endpoint.says(call(A, "search"), call(B, "delete"))
    async with sidecall(upstream.url, services=flaky, policies=[rules]) as here:
        await Client(here, "conversation").say(user())
        flaky.store.fails = lambda operation, keys: True
        got = await add(here, output(B, "x"))
    assert (got.status, got.error["code"]) == (503, "state_unavailable")
