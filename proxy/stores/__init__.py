"""Where state is kept: one back end a module, chosen by `state.url`.

This module reads the URL and puts the encryption around the back end; it must not know what is kept. The Redis store
and its driver are loaded when a Redis address is chosen, and not before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proxy.errors import StoreError
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.redis_address import Trust, parse_redis_address
from proxy.stores.sealed import SealedStore
from proxy.stores.sqlite import SqliteStore, default_path


async def open_store(
    url: str, *, keys: Sequence[bytes], trust: Trust | None = None, clock: Callable[[], float] | None = None
) -> Store:
    """The store of a `state.url`; sealed when there are keys (the first writes, all read).

    `trust` is for TLS to Redis. Without a clock, each store takes its own: this machine's, or Redis'. Nothing is
    touched yet: the first operation that needs a file or a connection opens it. Raises StoreError for a URL that names
    no store (the message leaves it out, since it may carry a password), and for files of `trust` that cannot be read.
    """
    store = _back_end(url, trust, clock)
    return SealedStore(store, keys) if keys else store


def _back_end(url: str, trust: Trust | None, clock: Callable[[], float] | None) -> Store:
    scheme, _, rest = url.partition(":")
    if scheme.startswith("redis"):
        return _redis(url, trust, clock)
    if url == "memory:":
        return MemoryStore(clock=clock or time.time)
    if url == "sqlite:":
        return SqliteStore(default_path(os.environ), clock=clock or time.time, make_folder=True)
    if scheme == "sqlite" and rest:
        return SqliteStore(Path(rest), clock=clock or time.time)
    raise StoreError(
        "The state URL names no store that is known here: expected memory:, sqlite:, sqlite:PATH or redis://HOST."
    )


def _redis(url: str, trust: Trust | None, clock: Callable[[], float] | None) -> Store:
    try:
        address = parse_redis_address(url)
    except ValueError as error:  # its own words only: a cause could show the URL
        raise StoreError(f"The state URL cannot be used: {error}.") from None
    from proxy.stores.redis import RedisStore

    return RedisStore(address, trust=trust, clock=clock)
