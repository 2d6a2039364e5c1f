"""Whether the process is alive and ready: alive says that the loop turns, ready that requests should come here."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.errors import StoreError
from proxy.stores.base import Store


@dataclass(slots=True)
class Health:
    """`draining`: the process is about to end; connections are not kept, and it is not ready."""

    store: Store
    needs_store: bool
    draining: bool = False

    def is_draining(self) -> bool:
        return self.draining

    async def problem(self) -> str:
        """Why the process is not ready; empty when it is."""
        if self.draining:
            return "draining"
        if self.needs_store:
            try:
                await self.store.ping()
            except StoreError:
                return "the store does not answer"
        return ""
