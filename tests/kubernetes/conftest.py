"""Tests of the chart with real tools. `make test-kubernetes` fetches the tools and names their folder in
SIDECALL_TOOLS; without it only what needs no tool is collected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kubernetes.tools import TOOLS

WITHOUT_TOOLS = {"test_reference.py", "test_metric_names.py"}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    named = collection_path.name
    if named == "test_image.py":  # of an image that `make test-image` has built
        return None if os.environ.get("SIDECALL_IMAGE") else True
    return True if TOOLS is None and named.startswith("test_") and named not in WITHOUT_TOOLS else None


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubernetes")
