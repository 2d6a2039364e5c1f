"""The bytes that all requests share."""

from __future__ import annotations

import pytest

from proxy.errors import BusyError
from proxy.server.budget import BufferBudget


def test_more_than_the_limit_is_refused_and_nothing_is_taken() -> None:
    """A refusal takes nothing."""
    budget = BufferBudget(10)
    budget.acquire(8)
    with pytest.raises(BusyError):
        budget.acquire(3)
    budget.acquire(2)
    assert budget.held == 10


def test_a_share_gives_back_all_it_took() -> None:
    """What a request took goes back when it ends, however it ends."""
    budget = BufferBudget(10)
    with budget.share() as share:
        share.take(6)
        share.give(2)
        assert budget.held == 4
        with pytest.raises(BusyError):
            share.take(7)
    assert budget.held == 0


def test_a_share_gives_back_no_more_than_it_took() -> None:
    """One request cannot give away what others hold."""
    budget = BufferBudget(10)
    budget.acquire(5)
    with budget.share() as share:
        share.take(2)
        share.give(9)
        assert budget.held == 5
