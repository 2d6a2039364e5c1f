"""What tests of governed requests have: an upstream with a script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fake_upstream import FakeUpstream, fake_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with fake_upstream() as running:
        yield running
