from __future__ import annotations

from typing import Any

import pytest

from proxy.core.policy.quantities import parse_duration, parse_size, spelled_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("5s", 5), ("10m", 600), ("24h", 86400), ("1.5s", 1.5), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    """A duration is a number and a unit."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["250ms", "5s", "90s", "10m", "24h", "0s"])
def test_a_duration_is_spelled_as_it_is_read(text: str) -> None:
    """In the largest unit that leaves a whole number."""
    assert spelled_duration(parse_duration(text)) == text


@pytest.mark.parametrize(("text", "size"), [("512Ki", 1 << 19), ("64Mi", 64 << 20), ("1Gi", 1 << 30), ("7", 7), (7, 7)])
def test_sizes(text: Any, size: int) -> None:
    """A size is a number of bytes, with a unit or without."""
    assert parse_size(text) == size


@pytest.mark.parametrize("wrong", ["soon", "5", 5, "-1s", None, "1d", ""])
def test_what_is_no_duration(wrong: Any) -> None:
    """The message says what was expected."""
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration(wrong)


@pytest.mark.parametrize("wrong", ["lots", -1, True, None, "1K", 1.5])
def test_what_is_no_size(wrong: Any) -> None:
    """The message says what was expected."""
    with pytest.raises(ValueError, match="expected a size such as"):
        parse_size(wrong)


def test_a_duration_that_no_clock_holds_is_refused() -> None:
    """Ten years are enough."""
    assert parse_duration("87600h") == 315_360_000
    for text in ("87601h", "999999999999999h", "9" * 400 + "s"):
        with pytest.raises(ValueError, match="expected a duration of at most 87600h, got"):
            parse_duration(text)
