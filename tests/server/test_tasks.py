"""Background tasks have an owner."""

from __future__ import annotations

import asyncio

from proxy.server.tasks import TaskOwner


async def test_a_failure_is_told_with_the_tasks_name() -> None:
    """What a task raises reaches whoever looks after failures."""
    failed: list[tuple[str, BaseException]] = []
    owner = TaskOwner(lambda name, error: failed.append((name, error)))

    async def fail() -> None:
        raise ValueError("no")

    owner.start(fail(), name="failing")
    await owner.drain(5)
    assert [(name, type(error)) for name, error in failed] == [("failing", ValueError)]
    assert len(owner) == 0


async def test_draining_waits_and_then_cancels() -> None:
    """A task that ends in time ends well; one that does not is cancelled."""
    owner = TaskOwner(lambda name, error: None)
    gate = asyncio.Event()
    quick = owner.start(asyncio.sleep(0), name="quick")
    stuck = owner.start(gate.wait(), name="stuck")
    await owner.drain(0.01)
    assert quick.done()
    assert not quick.cancelled()
    assert stuck.cancelled()
    assert len(owner) == 0
