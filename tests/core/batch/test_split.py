from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.batch.split import Standing, given_ids, is_weak_id, stages
from proxy.core.calls import CallId, ToolCall

LANES = {"one": 1, "two": 2, "five": 5}

lanes = st.lists(st.sampled_from(sorted(LANES)), unique=True, max_size=2)
standings = st.builds(
    Standing, st.booleans(), st.booleans(), lanes.map(lambda names: tuple((n, LANES[n]) for n in names))
)


def call(call_id: str, name: str = "search") -> ToolCall:
    return ToolCall(CallId(call_id), name, "{}")


# ---------------------------------------------------------------- stages


@given(st.lists(standings, max_size=8))
def test_stages(batch: list[Standing]) -> None:
    """Held calls never come; lanes are kept; deferred calls come behind the others; no stage is empty."""
    found = stages(batch)
    assert [stage is None for stage in found] == [s.held for s in batch]
    for stage, name in itertools.product(range(len(batch)), LANES):
        together = [s for s, at in zip(batch, found, strict=True) if at == stage and (name, LANES[name]) in s.lanes]
        assert len(together) <= LANES[name]
    at_once = [s for s, b in zip(found, batch, strict=True) if s is not None and not b.deferred]
    later = [s for s, b in zip(found, batch, strict=True) if s is not None and b.deferred]
    assert not at_once or not later or max(at_once) < min(later)
    used = {s for s in found if s is not None}
    assert used == set(range(len(used)))


@given(st.lists(standings, max_size=8))
def test_calls_of_one_lane_keep_their_order(batch: list[Standing]) -> None:
    """A call never comes before an earlier one with the same lanes, and two with no lanes come together."""
    found = stages(batch)
    for (one, first), (two, second) in itertools.combinations(zip(batch, found, strict=True), 2):
        if first is not None and second is not None and one == two:
            assert first <= second
            assert first == second or one.lanes


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ([], []),
        ([Standing(True)], [None]),
        ([Standing(False), Standing(True), Standing(False)], [0, None, 0]),
        ([Standing(False, True), Standing(False)], [1, 0]),
        ([Standing(False, True), Standing(False, True)], [0, 0]),
        ([Standing(False, True), Standing(True)], [0, None]),
        ([Standing(True, True), Standing(False)], [None, 0]),
        ([Standing(False, lanes=(("p", 1),))] * 3, [0, 1, 2]),
        ([Standing(False, lanes=(("p", 2),))] * 3, [0, 0, 1]),
        ([Standing(False, lanes=(("p", 1),)), Standing(False, True), Standing(False, lanes=(("p", 1),))], [0, 2, 1]),
        ([Standing(False, True, (("p", 1),)), Standing(False, True, (("p", 1),)), Standing(False)], [1, 2, 0]),
        ([Standing(False, lanes=(("p", 1), ("q", 2))), Standing(False, lanes=(("q", 1),))], [0, 1]),
    ],
)
def test_when_calls_are_surfaced(batch: list[Standing], expected: list[int | None]) -> None:
    """Examples: deferred calls alone wait for nothing, held calls take no place, each lane counts by itself."""
    assert stages(batch) == expected


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    "call_id",
    [
        "",
        "0",
        "123",
        "call_1",
        "abcdefghi",
        "functions.search:0",
        "functions.search:12",
        "search:0",
        "search_search_search_1",
        "functions.search#3",
        "mcp/server/search-4",
        "default_api.something_else:7",
        "search_documents_0",
    ],
)
def test_an_id_that_may_come_again_is_weak(call_id: str) -> None:
    """Empty and short ids, and names with a counter, come again in another turn."""
    assert is_weak_id(call(call_id))


@pytest.mark.parametrize(
    "call_id",
    [
        "call_AbCdEfGhIjKlMnOpQrStUvWx",
        "call_1234567890abcdef12345678",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-tool-8d1b2c3d4e5f60718293a4b5c6d7e8f9",
        "0123456789abcdef",
        "call_a|fc_0123456789abcdef",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    ],
)
def test_an_id_that_was_drawn_is_strong(call_id: str) -> None:
    """What servers draw at random can be told from every other."""
    assert not is_weak_id(call(call_id))


@given(st.text(string.ascii_letters + string.digits, min_size=24, max_size=24))
def test_ids_of_our_own_are_strong(drawn: str) -> None:
    """An id that the proxy gave out is never taken for a counter."""
    assert not is_weak_id(call(f"call_{drawn}", "weather"))


ids = st.sampled_from(["", "call_1", "call_AbCdEfGhIjKlMnOpQrStUvWx", "call_ZbCdEfGhIjKlMnOpQrStUvWx", "search:0"])


@given(st.lists(ids, max_size=6), st.sets(ids))
def test_given_ids(own: list[str], taken: set[str]) -> None:
    """Every call gets an id of its own that nobody has; its own stays where that can be told from every other."""
    fresh = (f"call_fresh{n:020}x" for n in itertools.count())
    found = given_ids([call(i) for i in own], taken, lambda: next(fresh))
    assert len(set(found)) == len(found)
    assert not set(found) & taken
    for number, (was, now) in enumerate(zip(own, found, strict=True)):
        strong = not is_weak_id(call(was)) and was not in taken and was not in own[:number]
        assert (was == now) is strong
        assert not is_weak_id(call(now))
