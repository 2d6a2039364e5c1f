"""Wiring and lifetimes: the services of the process, two listeners, signals, and an orderly end.

`serve` is the whole life of a process; `run` is the same without signals and without taking over the log of
other libraries, for tests. Knows nothing of what is governed, and how.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from proxy.config import Config
from proxy.core.batch.approval import Approval
from proxy.errors import ConfigError, Problem, StoreError
from proxy.metrics import Metrics, without_creation_times
from proxy.server.admin import AdminPlane
from proxy.server.approvalapi import announcement
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.audit import Audit
from proxy.server.budget import BufferBudget
from proxy.server.deciders import Deciders
from proxy.server.governing import Governor
from proxy.server.health import Health
from proxy.server.listeners import Listener, listen
from proxy.server.loading import Source, load
from proxy.server.logs import Log, adopt_libraries
from proxy.server.measured import MeasuredStore
from proxy.server.proxying import DataPlane
from proxy.server.services import Governor as Governs
from proxy.server.services import Loaded, Services
from proxy.server.snapshots import Snapshots
from proxy.server.tasks import TaskOwner
from proxy.server.toolservers import ToolServerWatch
from proxy.server.upstream import AioUpstream
from proxy.server.webhook import Webhook
from proxy.settings import reader
from proxy.stores import open_store
from proxy.tools.mcp import McpServers

EXIT_OK = 0
EXIT_FAILED = 1
_CUT_SECONDS = 0.2
"""How long a request that outlasted the drain has for its clean-up, once it is cancelled."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that serves."""

    data: Listener
    admin: Listener
    health: Health
    plane: DataPlane
    snapshots: Snapshots
    services: Services
    watchers: TaskOwner


def serve(config: Config, *, reread: Callable[[], Config]) -> int:
    """Serve until a signal ends it; the exit status. Raises ConfigError when what is configured cannot be used."""
    without_creation_times()
    log = Log(level=config.log.level, clock=time.time)
    loaded = load(config)
    adopt_libraries(log)
    return asyncio.run(_serve(config, loaded, reread, log=log))


async def _serve(config: Config, loaded: Loaded, reread: Callable[[], Config], *, log: Log) -> int:
    end = asyncio.Event()
    cut = asyncio.Event()
    again = asyncio.Event()
    _on_signals(end, cut, again)
    try:
        async with run(config, loaded, reread, log=log) as running:
            log.event("info", "serving", port=running.data.port, admin_port=running.admin.port)
            running.watchers.start(_reload_on(again, running.snapshots), name="reload")
            await end.wait()
            log.event("info", "shutting down")
            await _shut_down(config, running, cut)
    except OSError as error:
        log.event("error", "cannot listen", error=error.strerror or type(error).__name__)
        return EXIT_FAILED
    log.event("info", "ended")
    return EXIT_OK


def _on_signals(end: asyncio.Event, cut: asyncio.Event, again: asyncio.Event) -> None:
    """SIGTERM and SIGINT end it in order, a second one at once; SIGHUP loads again."""

    def stop() -> None:
        if end.is_set():
            cut.set()
        end.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, again.set)


async def _reload_on(again: asyncio.Event, snapshots: Snapshots) -> None:
    while True:
        await again.wait()
        again.clear()
        await snapshots.reload()


async def _shut_down(config: Config, running: Running, cut: asyncio.Event) -> None:
    """Not ready at once; connections for `delay` more; then what runs has until `drain`."""
    running.health.draining = True
    if config.shutdown.delay:
        await _first(cut.wait(), asyncio.sleep(config.shutdown.delay))
    running.data.stop()  # without a delay in the very step in which it stops to be ready
    loop = asyncio.get_running_loop()
    until = loop.time() + config.shutdown.drain
    await _first(cut.wait(), running.plane.idle(), asyncio.sleep(config.shutdown.drain))
    await running.services.tasks.drain(0 if cut.is_set() else max(0.0, until - loop.time()))


async def _first(*works: Coroutine[None, None, object]) -> None:
    """Until one of them is done; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def run(
    config: Config,
    loaded: Loaded,
    reread: Callable[[], Config],
    *,
    log: Log,
    environ: Mapping[str, str] = os.environ,
    build_governor: Callable[[Services], Governs] = Governor,
) -> AsyncIterator[Running]:
    """Everything open and listening; closed again when the context is left. Raises OSError, ConfigError."""
    async with AsyncExitStack() as stack:
        watchers = _task_owner(log)
        metrics = Metrics(max_tool_names=config.metrics.max_tool_names, clock=time.time, held_ttl=config.state.ttl)
        store = await _open_store(config, metrics)
        stack.push_async_callback(store.close)
        services = _open_services(config, store, metrics, stack=stack, log=log, environ=environ)
        source = Source(config, reread)
        snapshots = Snapshots(
            loaded,
            load=source.load,
            fingerprint=source.fingerprint,
            metrics=metrics,
            log=log,
            tasks=services.tasks,
            servers=_mcp_servers(metrics, log, stack),
        )
        stack.push_async_callback(snapshots.close)
        stack.push_async_callback(services.tasks.drain, 0)
        stack.push_async_callback(watchers.drain, 0)
        health = Health(store, needs_store=config.admin.ready_needs_store)
        plane = DataPlane(services, build_governor(services), snapshots, health=health, timer=time.perf_counter)
        admin = _admin_plane(config, services, snapshots, health)
        await snapshots.open()
        await _prepare(store, loaded, log)
        data_listener, admin_listener = await _listen(config, plane, admin, stack=stack)
        watchers.start(snapshots.watch(), name="watch policies")
        watchers.start(store.watch(lambda: snapshots.current.governs), name="watch the store")
        yield Running(data_listener, admin_listener, health, plane, snapshots, services, watchers)


def _open_services(
    config: Config,
    store: MeasuredStore,
    metrics: Metrics,
    *,
    stack: AsyncExitStack,
    log: Log,
    environ: Mapping[str, str],
) -> Services:
    upstream = AioUpstream(config.upstream, on_error=metrics.upstream_error, environ=environ)
    stack.push_async_callback(upstream.close)
    audit = Audit(config.audit.path, shown=config.audit.arguments, clock=time.time, log=log)
    stack.callback(audit.close)
    deciders, tasks = Deciders(log), _task_owner(log)
    stack.push_async_callback(deciders.close)
    announce = _announcing(config, tasks, stack=stack, log=log)
    return Services(
        config=config,
        upstream=upstream,
        store=store,
        metrics=metrics,
        audit=audit,
        log=log,
        clock=time.time,
        budget=BufferBudget(config.limits.buffered_bytes),
        tasks=tasks,
        deciders=deciders,
        desk=ApprovalDesk(store, clock=time.time, metrics=metrics, log=log, tasks=tasks, announce=announce),
    )


def _announcing(config: Config, tasks: TaskOwner, *, stack: AsyncExitStack, log: Log) -> Callable[[Approval], None]:
    """What tells the configured webhook, if there is one, of a new approval."""
    settings = config.approvals.webhook
    if settings is None:
        return lambda _approval: None
    webhook = Webhook(reader(settings.url), settings.secret.read, tasks=tasks, log=log)
    stack.push_async_callback(webhook.close)
    return lambda approval: webhook.tell(approval.id, announcement(approval))


async def _listen(
    config: Config, plane: DataPlane, admin: AdminPlane, *, stack: AsyncExitStack
) -> tuple[Listener, Listener]:
    """The clients' port is opened last: by then everything that they need is there."""
    admin_listener = await listen(admin.handle, config.admin.host, config.admin.port)
    stack.push_async_callback(admin_listener.close, _CUT_SECONDS)
    listening = config.listen
    data_listener = await listen(
        plane.handle, listening.host, listening.port, tls=listening.tls, reuse_port=listening.reuse_port
    )
    stack.push_async_callback(data_listener.close, _CUT_SECONDS)
    return data_listener, admin_listener


def _mcp_servers(metrics: Metrics, log: Log, stack: AsyncExitStack) -> McpServers:
    """Their tasks have no end of their own, so that nobody waits for it; calls end before their servers do."""
    tasks = _task_owner(log)
    stack.push_async_callback(tasks.drain, 0)
    return McpServers(partial(tasks.start, name="keep an MCP server"), ToolServerWatch(metrics, log))


def _task_owner(log: Log) -> TaskOwner:
    return TaskOwner(lambda name, error: log.event("error", "task failed", task=name, error=type(error).__name__))


async def _open_store(config: Config, metrics: Metrics) -> MeasuredStore:
    try:
        state = config.state
        store = await open_store(state.address(), keys=state.keys(), trust=state.trust())
    except StoreError as error:
        raise ConfigError([Problem("state.url", 0, 0, error.message)]) from error
    return MeasuredStore(store, metrics, timer=time.perf_counter)


async def _prepare(store: MeasuredStore, loaded: Loaded, log: Log) -> None:
    """Make the store before the first call needs it. One that is down keeps nothing from passing."""
    if loaded.governs:
        try:
            await store.ping()
        except StoreError as error:
            log.event("error", "the store does not answer", error=error.message)


def _admin_plane(config: Config, services: Services, snapshots: Snapshots, health: Health) -> AdminPlane:
    token = config.admin.token
    return AdminPlane(
        health=health,
        metrics=services.metrics,
        snapshots=snapshots,
        audit=services.audit,
        desk=services.desk,
        token=token.read if token is not None else None,
        insecure=config.admin.insecure,
        clock=services.clock,
    )
