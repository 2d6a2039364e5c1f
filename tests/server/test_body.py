"""Bodies of the upstream's answers: decoded, bounded, timed, and told apart."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import zstandard

from proxy.errors import BusyError, UpstreamError
from proxy.server.body import BodyReader, is_events
from tests.server.parts import Clock, Given, Parts

TEXT = b'{"choices": []}' * 50
CODED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
    "": TEXT,
}


@dataclass
class Slow(Given):
    """Takes two seconds for each piece."""

    clock: Clock = field(default_factory=Clock)

    async def pieces(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            self.clock.now += 2
            assert isinstance(part, bytes)
            yield part


def reader(parts: Parts, *pieces: bytes | Exception, coding: str = "") -> BodyReader:
    headers = (("Content-Encoding", coding),) if coding else ()
    return BodyReader(Given(list(pieces), headers), parts.services, parts.exchange)


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("coding", CODED)
async def test_a_body_is_decoded(coding: str) -> None:
    """In one piece and as it comes, however it is cut; its own bytes are kept."""
    whole = reader(Parts(), *bytewise(CODED[coding]), coding=coding)
    assert whole.is_coded is bool(coding)
    assert await whole.peek() == TEXT[: len(await whole.peek())]
    assert await whole.read() == TEXT
    assert whole.sent == CODED[coding]
    found = [piece async for piece in reader(Parts(), *bytewise(CODED[coding]), coding=coding).pieces()]
    assert b"".join(found) == TEXT
    assert all(found)


async def test_a_peek_takes_nothing_away() -> None:
    """What was looked at is still to be read, blank lines before it too."""
    there = reader(Parts(), b"\r\n", b"\n", b"da", b"ta: 1\n\n", b"data: 2\n\n")
    assert (await there.peek()).strip().startswith(b"data:")
    assert b"".join([piece async for piece in there.pieces()]) == b"\r\n\ndata: 1\n\ndata: 2\n\n"
    assert await reader(Parts()).peek() == b""


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
async def test_an_encoding_that_cannot_be_read_is_refused(coding: str) -> None:
    """A broken one, and one that is unknown: never passed unread."""
    with pytest.raises(UpstreamError):
        await reader(Parts(), b"not coded at all", coding=coding).read()


async def test_a_coded_body_that_ends_early_is_refused() -> None:
    """What was not all there is no answer."""
    with pytest.raises(UpstreamError):
        await reader(Parts(), CODED["gzip"][:-9], coding="gzip").read()


async def test_a_long_body_is_refused() -> None:
    """Beyond the limit of bodies, also when it is small on the wire, and beyond the buffers of all requests."""
    parts = Parts(settings={"listen": {"maxBodyBytes": "1Ki"}})
    bomb = gzip.compress(b"\0" * 100_000)
    for there in (reader(parts, *[b"x" * 100] * 11), reader(parts, bomb, coding="gzip")):
        with pytest.raises(UpstreamError):
            await there.read()
    full = Parts()
    full.services.budget.acquire((1 << 20) - 100)
    with pytest.raises(BusyError):
        await reader(full, b"x" * 200).read()


async def test_what_is_read_is_held_until_the_request_ends() -> None:
    """It counts in the buffers of all requests, and all of it comes back."""
    parts = Parts()
    await reader(parts, b"x" * 100, b"x" * 100).read()
    assert parts.services.budget.held == 200
    with parts.exchange.share:
        pass
    assert parts.services.budget.held == 0


async def test_waiting_for_the_upstream_is_not_the_proxys_time() -> None:
    """Each piece is waited for on the upstream's account."""
    parts = Parts()

    there = BodyReader(Slow([b"a", b"b"], clock=parts.clock), parts.services, parts.exchange)
    assert await there.read() == b"ab"
    assert parts.exchange.log.waited == 4


async def test_an_upstream_that_breaks_off() -> None:
    """Its error comes through, behind what came before."""
    broken = UpstreamError("it broke", kind="reset")
    pieces = reader(Parts(), b"a", broken).pieces()
    assert await anext(pieces) == b"a"
    with pytest.raises(UpstreamError):
        await anext(pieces)


@pytest.mark.parametrize(
    ("kind", "start", "events"),
    [
        ("text/event-stream", b"", True),
        ("Text/Event-Stream; charset=utf-8", b"{}", True),
        ("application/json", b"data: {}", True),
        ("", b"\xef\xbb\xbfdata: {}", True),
        ("text/plain", b"\r\n: ping\n\n", True),
        ("text/plain", b"event: x\n", True),
        ("application/json", b'{"data:": 1}', False),
        ("text/html", b"<p>data:</p>", False),
        ("application/json", b"", False),
    ],
)
def test_events_are_told_by_type_or_by_how_they_begin(kind: str, start: bytes, events: bool) -> None:
    """A stream whose type says something else is a stream all the same."""
    assert is_events(kind, start) is events
