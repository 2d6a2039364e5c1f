"""What the parts of the server share: the services of the process, and one request as a governor meets it.

`Loaded` is replaced as a whole on a reload; a request keeps the one that it started with.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from proxy.config import Config
from proxy.core.calls import Tenant
from proxy.core.policy.decide import PolicySet
from proxy.metrics import Metrics
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.audit import Audit
from proxy.server.budget import BufferBudget, BufferShare
from proxy.server.callers import Callers
from proxy.server.deciders import Deciders
from proxy.server.http import ClientSide, RequestHead, Upstream
from proxy.server.logs import Log, RequestLog
from proxy.server.routing import Surface
from proxy.server.tasks import TaskOwner
from proxy.server.upstream import AioAnswer
from proxy.stores.base import Store
from proxy.tools.code import Code
from proxy.tools.run import ToolSet


class AnyUpstream(Upstream, Protocol):
    """The upstream with what passes unread: connections that switch protocols."""

    def upgrade(self, head: RequestHead) -> AbstractAsyncContextManager[AioAnswer]: ...


class Governor(Protocol):
    """Serves one governed request."""

    async def serve(self, exchange: ExchangeIn) -> None: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one load of policies, tools and clients gave; `code` are the Python objects that rules name."""

    policies: PolicySet
    tools: ToolSet
    clients: Callers
    code: Mapping[str, Code] = field(default_factory=dict)

    @property
    def governs(self) -> bool:
        """Whether anything could hold or change a call."""
        return not self.policies.is_empty or not self.tools.is_empty


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the process. `clock` is Unix seconds; `timer` only goes forward."""

    config: Config
    upstream: AnyUpstream
    store: Store
    metrics: Metrics
    audit: Audit
    log: Log
    clock: Callable[[], float]
    budget: BufferBudget
    tasks: TaskOwner
    deciders: Deciders
    desk: ApprovalDesk
    timer: Callable[[], float] = time.monotonic
    ping_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class ExchangeIn:
    """One request to govern. `share` is what it holds of the buffers; `client_name` is empty where callers are not
    listed; `tenant` may ask the store (StoreError), so it is asked only where something depends on it. What outlives
    the request keeps `loaded` usable with `keep`."""

    client: ClientSide
    share: BufferShare
    surface: Surface
    loaded: Loaded
    request_id: str
    client_name: str
    tenant: Callable[[], Awaitable[Tenant]]
    log: RequestLog
    keep: Callable[[], AbstractContextManager[Loaded]]
