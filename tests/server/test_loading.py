"""From a configuration to what is used of it."""

from __future__ import annotations

from pathlib import Path

from proxy.server.loading import Source, load
from tests.server.proxied import BLOCK, configured

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
