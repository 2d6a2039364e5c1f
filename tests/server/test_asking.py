"""What a governed request asks of others."""

from __future__ import annotations

import pytest

from proxy.errors import UpstreamError
from proxy.server.asking import ask, changed_headers, has_id
from proxy.server.http import RequestHead
from tests.server.parts import Given, Parts
from tests.server.test_ledger import ID, batch
from tests.stores.failing import FailingStore

HEAD = RequestHead("POST", "/v1/chat/completions", ())


async def test_the_time_until_an_answers_head_is_not_the_proxys() -> None:
    """Whether an answer comes or an error; what is done with the answer is not part of it."""
    parts = Parts()
    parts.upstream.seconds = 5
    parts.upstream.answers = [Given([b"x"], status=418), UpstreamError("gone", kind="connect")]
    async with ask(parts.services, parts.exchange, HEAD, body=b"one") as answer:
        parts.clock.now += 7
        assert answer.status == 418
    assert parts.exchange.log.waited == 5
    with pytest.raises(UpstreamError):
        await ask(parts.services, parts.exchange, HEAD, body=b"two").__aenter__()
    assert parts.exchange.log.waited == 10
    assert parts.upstream.bodies == [b"one", b"two"]


async def test_an_id_that_the_ledger_has() -> None:
    """A store that cannot be asked has none, and an empty id is nobody's."""
    parts = Parts()
    await parts.ledger().save_batch(batch())
    assert [await has_id(parts.ledger(), name) for name in (ID, "other", "")] == [True, False, False]
    parts.store = FailingStore(parts.store, lambda operation, keys: True)
    assert not await has_id(parts.ledger(), ID)


def test_headers_of_the_old_body_go() -> None:
    """What says something of the bytes that were changed is gone, everything else stays, in order."""
    given = (
        ("X-Request-Id", "a"),
        ("Content-Length", "5"),
        ("ETag", "x"),
        ("Content-Encoding", "gzip"),
        ("Digest", "x"),
        ("Set-Cookie", "1"),
        ("Set-Cookie", "2"),
    )
    assert changed_headers(given, "me") == (
        ("X-Request-Id", "a"),
        ("Set-Cookie", "1"),
        ("Set-Cookie", "2"),
        ("x-sidecall-request-id", "me"),
    )
