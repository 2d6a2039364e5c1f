"""Where state is kept: one back end a module, chosen by `state.url`.

This module reads the URL and puts the encryption around the back end; it must not know what is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proxy.errors import StoreError
from proxy.stores.base import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.sealed import SealedStore
from proxy.stores.sqlite import SqliteStore, default_path


async def open_store(url: str, *, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> Store:
    """The store of a `state.url`; sealed when there are keys (the first writes, all read).

    Nothing is touched yet: a file is opened by the first operation that needs it. Raises StoreError for a URL
    that names no store; the message leaves the URL out, since it may carry a password.
    """
    store = _back_end(url, clock)
    return SealedStore(store, keys) if keys else store


def _back_end(url: str, clock: Callable[[], float]) -> Store:
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        return MemoryStore(clock=clock)
    if url == "sqlite:":
        return SqliteStore(default_path(os.environ), clock=clock, make_folder=True)
    if scheme == "sqlite" and rest:
        return SqliteStore(Path(rest), clock=clock)
    raise StoreError("The state URL names no store that is known here: expected memory:, sqlite: or sqlite:PATH.")
