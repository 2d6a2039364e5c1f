"""From a configuration to what is used of it: policies, tools and clients as one set, the store, the upstream."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

from proxy.config import Config
from proxy.policyfiles import fingerprint, load_policies
from proxy.server.callers import Callers
from proxy.server.services import Loaded
from proxy.tools.run import ToolSet

_HERE = Path()
"""Paths of a configuration are located already."""


def load(config: Config) -> Loaded:
    """Policies, tools and clients of a configuration. Blocks. Raises ConfigError with every problem."""
    policies = load_policies(config.policies, _HERE, config.default_action)
    specs = [spec for entry in config.tools if (spec := entry.spec()) is not None]
    return Loaded(policies=policies, tools=ToolSet(specs), clients=Callers(config.clients))


class Source:
    """Where loads after the first come from. `reread` reads the configuration again; settings other than policies,
    tools and clients stay as they were at the start."""

    def __init__(self, config: Config, reread: Callable[[], Config]) -> None:
        self._policies = config.policies
        self._reread = reread

    def load(self) -> Loaded:
        """Blocks. Raises ConfigError."""
        config = self._reread()
        loaded = load(config)
        self._policies = config.policies
        return loaded

    def fingerprint(self) -> Hashable:
        """Blocks; never raises."""
        return fingerprint(self._policies, _HERE)
