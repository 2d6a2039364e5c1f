"""Moments in whole microseconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.stores.moments import LAST, SECOND, deadline, micros


@given(st.integers(1_600_000_000, 2_500_000_000), st.integers(0, 999_999), st.integers(0, 10**9))
def test_edges_are_exact(seconds: int, fraction: int, ttl: int) -> None:
    """A moment that a clock gives as a float is the microsecond that it means; ends are exact sums."""
    now = micros(seconds + fraction / SECOND)
    assert now == seconds * SECOND + fraction
    assert deadline(now, float(ttl)) - now == ttl * SECOND


def test_no_life_is_longer_than_a_64_bit_integer() -> None:
    """Even an endless time to live can be written down."""
    assert deadline(micros(1.7e9), float("inf")) == LAST < 2**63
