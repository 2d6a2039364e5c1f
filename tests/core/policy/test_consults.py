"""Questions of a judgement are plain values."""

from __future__ import annotations

from proxy.core.policy.consults import Course, Word


def test_closed_sets_are_their_words() -> None:
    """What services may say, and what becomes of a question to a person."""
    assert list(Course) == ["allow", "block", "answer", "rewrite", "next"]
    assert list(Word) == ["approved", "denied", "pending", "unasked"]
