"""Assertions of the contract are shown in full when they fail, as those of test modules are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.stores.contract")
