"""What the parts of the server share: the services of the process, and one request as a governor meets it.

`Loaded` is replaced as a whole on a reload; a request keeps the one that it started with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.core.calls import Tenant
from proxy.metrics import Metrics
from proxy.server.audit import Audit
from proxy.server.budget import BufferBudget
from proxy.server.http import ClientSide, Upstream
from proxy.server.logs import Log, RequestLog
from proxy.server.routing import Surface
from proxy.server.tasks import TaskOwner
from proxy.stores.base import Store

PolicySet = Any
ToolSet = Any
Config = Any


class Governor(Protocol):
    """Serves one governed request."""

    async def serve(self, exchange: ExchangeIn) -> None: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one load of policies, tools and clients gave."""

    policies: PolicySet
    tools: ToolSet
    clients: Any


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the process."""

    config: Config
    upstream: Upstream
    store: Store
    metrics: Metrics
    audit: Audit
    log: Log
    clock: Callable[[], float]
    budget: BufferBudget
    tasks: TaskOwner


@dataclass(frozen=True, slots=True)
class ExchangeIn:
    """One request to govern. `client_name` is empty where callers are not listed; `tenant` may ask the store
    (StoreError), so it is asked only where something depends on it."""

    client: ClientSide
    surface: Surface
    loaded: Loaded
    request_id: str
    client_name: str
    tenant: Callable[[], Awaitable[Tenant]]
    log: RequestLog
