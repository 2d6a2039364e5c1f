"""Moments and spans of time as whole microseconds: sums and comparisons at an edge are then exact.

A float of seconds since 1970 is good to a quarter of a microsecond, so nothing is lost on the way. This module
must not know any store.
"""

from __future__ import annotations

SECOND = 1_000_000
LAST = 2**62
"""Later than anything that happens, and small enough for a 64-bit integer."""


def micros(seconds: float) -> int:
    """A moment or span in microseconds."""
    return round(seconds * SECOND)


def deadline(now: int, ttl: float) -> int:
    """When something ends that lives for `ttl` seconds from now; it is gone at that very moment."""
    return min(now + micros(min(ttl, LAST / SECOND)), LAST)
