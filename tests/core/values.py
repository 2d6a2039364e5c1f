"""Made-up JSON values, and numbers in spellings that a reader may lose."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SPELLINGS = ["0", "-0", "1.10", "1e2", "1E+2", "-0.0", "9007199254740993", "1" * 40, "0.1000", "5e-324", "-12"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=4)
