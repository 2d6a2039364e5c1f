"""Alive and ready."""

from __future__ import annotations

import pytest

from proxy.errors import StoreError
from proxy.server.health import Health
from proxy.stores.memory import MemoryStore


class Down(MemoryStore):
    async def ping(self) -> None:
        raise StoreError("down")


@pytest.mark.parametrize(
    ("needs_store", "draining", "ready"), [(False, False, True), (True, False, False), (False, True, False)]
)
async def test_readiness_follows_the_store_only_when_it_should(needs_store: bool, draining: bool, ready: bool) -> None:
    """A store that is down matters only with readyNeedsStore; draining always does."""
    health = Health(Down(clock=lambda: 0.0), needs_store=needs_store, draining=draining)
    assert (await health.problem() == "") is ready
    assert health.is_draining() is draining
