"""A Sidecall whose store fails when a test says so, or whose time a test moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.server.services import Services
from proxy.stores.memory import MemoryStore
from tests.server.parts import Clock
from tests.stores.failing import FailingStore


class Flaky:
    """Puts a failing store in the place of the services' own."""

    store: FailingStore

    def __call__(self, services: Services) -> Services:
        self.store = FailingStore(services.store)
        return replace(services, store=self.store)


def on(operation: str, kind: str) -> Callable[[str, Any], bool]:
    """Fails an operation on keys of a kind."""
    return lambda name, keys: name == operation and any(key.startswith(f"{kind}/") for key in keys)


@dataclass
class Timed:
    """Puts a store with a clock of the test in the place of the services' own."""

    clock: Clock = field(default_factory=Clock)

    def __call__(self, services: Services) -> Services:
        return replace(services, store=MemoryStore(clock=self.clock))
