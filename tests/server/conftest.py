"""What tests of governed requests have: an upstream with a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
from tests.fake_upstream import FakeUpstream, fake_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as running:
        yield running


@pytest.fixture
async def here(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Sidecall]:
    path = policy(
        tmp_path,
        rule("no", "delete", block={"message": "no"}),
        rule("cap", "cap", rewrite={"clamp": {"n": {"max": 10}}}),
        rule("pong", "ping", answer={"content": "pong"}),
    )
    async with sidecall(upstream.url, policies=[path]) as running:
        yield running
