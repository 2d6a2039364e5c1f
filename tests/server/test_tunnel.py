"""Two wires joined."""

from __future__ import annotations

import asyncio

from proxy.server.tunnel import join
from tests.server.test_wire import Transport, made


async def test_bytes_pass_both_ways_until_one_side_ends() -> None:
    """What one side sends the other gets, and the end of one closes both."""
    to_client: list[bytes] = []
    to_upstream: list[bytes] = []
    closed: list[bool] = []
    client, upstream = made(Transport(), to_client, closed), made(Transport(), to_upstream, closed)
    joined = asyncio.ensure_future(join(client, upstream))
    client.feed_data(b"up")
    upstream.feed_data(b"down")
    upstream.feed_eof()
    await asyncio.wait_for(joined, 5)
    assert (to_client, closed) == ([b"down"], [True, True])
    assert to_upstream in ([b"up"], [])


async def test_a_side_that_breaks_off_ends_the_tunnel() -> None:
    """A write that fails is the end of it, and no error."""

    async def fail(data: bytes) -> None:
        raise ConnectionResetError

    client, upstream = made(Transport()), made(Transport())
    client._write = fail
    upstream.feed_data(b"down")
    await asyncio.wait_for(join(client, upstream), 5)
