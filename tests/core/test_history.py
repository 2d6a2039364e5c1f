from __future__ import annotations

import dataclasses

import pytest

from proxy.core.calls import CallId, ToolCall
from proxy.core.history import Entry, EntryKind


def test_an_entry_needs_a_place_and_a_kind_only() -> None:
    """What an entry does not say is empty."""
    assert Entry(3, EntryKind.USER) == Entry(3, EntryKind.USER, text="", calls=(), call_id="", name="")
    assert str(EntryKind.CALLS) == "calls"


def test_an_entry_is_a_value() -> None:
    """Equal parts make an equal entry, which cannot be changed."""
    call = ToolCall(CallId("c"), "t", "{}")
    entry = Entry(0, EntryKind.CALLS, calls=(call,))
    assert entry == Entry(0, EntryKind.CALLS, calls=(dataclasses.replace(call),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.index = 1  # type: ignore[misc]  # what must not work
