"""What the parts of the server share."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from proxy.server.loading import load
from tests.server.proxied import configured


def test_a_set_is_not_changed_once_it_is_loaded() -> None:
    """A request can rely on the set that it started with."""
    loaded = load(configured("http://127.0.0.1:1/v1"))
    with pytest.raises(FrozenInstanceError):
        loaded.policies = loaded.policies  # type: ignore[misc]  # what is tested
