"""What holds for every test: where many machines run them, property tests try the same examples each time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.e2e.endpoint import Endpoint
from tests.fake_upstream import FakeUpstream

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def endpoint(upstream: FakeUpstream) -> Iterator[Endpoint]:
    """A test's upstream as an endpoint that remembers responses; it never has to refuse what it is asked."""
    made = Endpoint.on(upstream)
    yield made
    assert not made.refused
    assert not made.turns, "an answer that nobody asked for"
