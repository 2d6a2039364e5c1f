"""What is loaded now, and loading it again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from proxy.errors import ConfigError, Problem
from proxy.metrics import Metrics
from proxy.server.loading import load
from proxy.server.logs import Log
from proxy.server.services import Loaded
from proxy.server.snapshots import Snapshots
from proxy.server.tasks import TaskOwner
from proxy.server.toolservers import ToolServerWatch
from proxy.tools.mcp import McpServers
from tests.server.proxied import BLOCK, configured
from tests.tools.mcp_fakes import Net, settle


class Sets:
    """Gives sets to load, or refuses to."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        self.closed: list[Loaded] = []
        self.net = Net()
        self.tools: list[dict[str, Any]] = []

    def load(self) -> Loaded:
        if self.problem is not None:
            raise ConfigError([self.problem])
        return load(configured("http://127.0.0.1:1/v1", tools=self.tools))


def made(sets: Sets, lines: list[dict[str, Any]]) -> tuple[Snapshots, Metrics, TaskOwner]:
    metrics = Metrics(max_tool_names=1, clock=lambda: 0.0)
    tasks = TaskOwner(lambda name, error: None)
    log = Log(clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    owner = TaskOwner(lambda name, error: None)
    servers = McpServers(partial(owner.start, name="s"), ToolServerWatch(metrics, log), open_session=sets.net)
    snapshots = Snapshots(
        sets.load(),
        load=sets.load,
        fingerprint=lambda: 1,
        metrics=metrics,
        log=log,
        tasks=tasks,
        servers=servers,
    )
    return snapshots, metrics, tasks


async def test_a_request_keeps_the_set_that_it_started_with() -> None:
    """A replaced set stays whole until the last one that keeps it has ended."""
    snapshots, metrics, tasks = made(Sets(), [])
    with snapshots.lease() as held:
        assert await snapshots.reload()
        assert snapshots.current is not held
        with snapshots.lease(held) as kept:
            assert kept is held
        assert len(tasks) == 0
    assert len(tasks) == 1  # its tools are being closed
    await tasks.drain(5)
    assert metrics.registry.get_sample_value("sidecall_policy_reloads_total", {"outcome": "ok"}) == 1
    await snapshots.close()


async def test_a_set_that_cannot_be_used_is_refused_whole() -> None:
    """The old set stays, and the log has every problem."""
    sets, lines = Sets(), list[dict[str, Any]]()
    snapshots, metrics, _ = made(sets, lines)
    before = snapshots.current
    sets.problem = Problem("p.yaml", 3, 5, "expected something else")
    assert not await snapshots.reload()
    assert snapshots.current is before
    assert lines[0]["problems"] == ["p.yaml:3:5: expected something else"]
    assert metrics.registry.get_sample_value("sidecall_policy_reloads_total", {"outcome": "refused"}) == 1


def test_a_set_with_a_rule_governs_and_an_empty_one_does_not(tmp_path: Path) -> None:
    """A rule, or a default that blocks, makes requests governed."""
    (tmp_path / "p.yaml").write_text(BLOCK)
    url = "http://127.0.0.1:1/v1"
    assert not load(configured(url)).governs
    assert load(configured(url, policies=[str(tmp_path / "p.yaml")])).governs
    assert load(configured(url, defaultAction="block")).governs


FILES = {"mcp": {"name": "files", "command": ["x"]}}


async def test_a_request_keeps_the_tools_that_it_started_with() -> None:
    """A server's new tools are for the requests that come then; the server stays as it is."""
    sets = Sets()
    sets.tools = [FILES]
    snapshots, _, tasks = made(sets, [])
    await snapshots.open()
    with snapshots.lease() as held:
        assert list(held.tools.specs) == ["search"]
        sets.net.names = ["read"]
        sets.net.sessions[0].change()
        await settle()
        assert (list(held.tools.specs), list(snapshots.current.tools.specs)) == (["search"], ["read"])
        assert snapshots.current.policies is held.policies
    await tasks.drain(5)
    assert (sets.net.open, len(sets.net.sessions)) == (1, 1)
    await snapshots.close()
    assert sets.net.open == 0


async def test_a_server_outlives_a_reload_that_keeps_it() -> None:
    """One that the new configuration does not have ends when the last request that may use it has ended."""
    sets = Sets()
    sets.tools = [FILES]
    snapshots, _, tasks = made(sets, [])
    await snapshots.open()
    with snapshots.lease() as held:
        assert await snapshots.reload()
        assert list(snapshots.current.tools.specs) == ["search"]
        assert len(sets.net.sessions) == 1
        sets.tools = []
        assert await snapshots.reload()
        assert (list(snapshots.current.tools.specs), list(held.tools.specs)) == ([], ["search"])
        await tasks.drain(5)
        assert sets.net.open == 1
    await tasks.drain(5)
    assert sets.net.open == 0
    await snapshots.close()


async def test_a_set_whose_server_is_away_is_used_without_its_tools() -> None:
    """They come by themselves. Requests are governed all the while."""
    sets = Sets()
    sets.tools, sets.net.failure = [FILES], OSError()
    snapshots, metrics, _ = made(sets, [])
    await snapshots.open()
    assert (list(snapshots.current.tools.specs), snapshots.current.governs) == ([], True)
    assert metrics.registry.get_sample_value("sidecall_mcp_up", {"server": "files"}) == 0
    await snapshots.close()
    assert metrics.registry.get_sample_value("sidecall_mcp_up", {"server": "files"}) is None
