"""Proxy tools in Python, for tests."""

from __future__ import annotations


async def add(a: int, b: int) -> str:
    return str(a + b)


def fail() -> str:
    raise LookupError("a secret text")
