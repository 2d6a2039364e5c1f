"""From a configuration to what is used of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.server.loading import Source, load
from tests.server.proxied import BLOCK, configured
from tests.tools.mcp_processes import ROOT

URL = "http://127.0.0.1:1/v1"


def test_a_reload_reads_the_configuration_again(tmp_path: Path) -> None:
    """Policies, tools and clients come from the configuration as it is now, and its files are watched from then."""
    (tmp_path / "p.yaml").write_text(BLOCK)
    source = Source(configured(URL), lambda: configured(URL, policies=[str(tmp_path / "p.yaml")]))
    before = source.fingerprint()
    assert source.load().policies.policies == ("p",)
    after = source.fingerprint()
    assert after != before
    (tmp_path / "p.yaml").write_text(BLOCK + "\n")
    assert source.fingerprint() != after


def test_tools_are_loaded_by_name() -> None:
    """Each tool of the configuration is in the set."""
    tool = {"name": "price", "http": {"method": "POST", "url": "http://127.0.0.1:1/price"}}
    assert list(load(configured(URL, tools=[tool])).tools.specs) == ["price"]


def test_an_mcp_server_gives_tools_that_are_not_there_yet() -> None:
    """It is not asked while the configuration is loaded, and what it gives is governed all the same."""
    loaded = load(configured(URL, tools=[{"mcp": {"name": "docs", "url": "http://127.0.0.1:1/mcp"}}]))
    assert (list(loaded.tools.specs), loaded.governs) == ([], True)


@pytest.mark.parametrize(
    ("tools", "imported"), [("[]", "False"), ("[{'mcp': {'name': 'd', 'url': 'http://h'}}]", "True")]
)
def test_the_package_of_mcp_is_imported_for_a_server_only(tools: str, imported: str) -> None:
    """It takes a second, and may not be there."""
    code = f"""
import sys
from proxy.server.app import load
from tests.server.proxied import configured
load(configured("http://127.0.0.1:1/v1", tools={tools}))
print("mcp" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == imported
