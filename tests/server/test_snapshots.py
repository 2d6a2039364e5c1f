"""What is loaded now, and loading it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxy.errors import ConfigError, Problem
from proxy.metrics import Metrics
from proxy.server.loading import load
from proxy.server.logs import Log
from proxy.server.services import Loaded
from proxy.server.snapshots import Snapshots
from proxy.server.tasks import TaskOwner
from tests.server.proxied import BLOCK, configured


class Sets:
    """Gives sets to load, or refuses to."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        self.closed: list[Loaded] = []

    def load(self) -> Loaded:
        if self.problem is not None:
            raise ConfigError([self.problem])
        return load(configured("http://127.0.0.1:1/v1"))


def made(sets: Sets, lines: list[dict[str, Any]]) -> tuple[Snapshots, Metrics, TaskOwner]:
    metrics = Metrics(max_tool_names=1, clock=lambda: 0.0)
    tasks = TaskOwner(lambda name, error: None)
    log = Log(clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line)))
    snapshots = Snapshots(sets.load(), load=sets.load, fingerprint=lambda: 1, metrics=metrics, log=log, tasks=tasks)
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
