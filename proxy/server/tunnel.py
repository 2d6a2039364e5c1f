"""An upgraded connection (WebSocket and the like): the handshake is the client's own, then bytes both ways.

Nothing is read of what passes: no frames, no messages. Ends when either side does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from proxy.server.wire import Wire


async def _copy(source: Wire, target: Wire) -> None:
    with suppress(OSError):  # one side broke off, which is how many tunnels end
        while data := await source.read():
            await target.write(data)


async def join(client: Wire, upstream: Wire) -> None:
    """Copy both ways until one side ends or breaks; then both end."""
    try:
        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(_copy(client, upstream)), group.create_task(_copy(upstream, client))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
    finally:
        client.close()
        upstream.close()
