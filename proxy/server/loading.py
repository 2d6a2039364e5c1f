"""From a configuration to what is used of it: policies, tools and clients as one set, the store, the upstream."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

from proxy.config import Config
from proxy.policyfiles import fingerprint, load_policies
from proxy.server.callers import Callers
from proxy.server.services import Loaded
from proxy.tools.code import load_code
from proxy.tools.mcp import import_mcp
from proxy.tools.run import ToolSet

_HERE = Path()
"""Paths of a configuration are located already."""


def load(config: Config, *, can_approve: bool | None = None) -> Loaded:
    """Policies, tools and clients of a configuration; MCP servers are not asked yet. `can_approve`: whether there is a
    way to approve calls, where the configuration does not say so itself. Blocks. Raises ConfigError with every
    problem."""
    approvable = config.admin.can_approve if can_approve is None else can_approve
    policies = load_policies(config.policies, _HERE, config.default_action, can_approve=approvable)
    specs = [spec for entry in config.tools if (spec := entry.spec()) is not None]
    sources = [source for entry in config.tools if (source := entry.source()) is not None]
    if sources:
        import_mcp()
    code = {target: load_code(target) for target in policies.middleware}
    return Loaded(policies, ToolSet(specs, sources), Callers(config.clients), code)


class Source:
    """Where loads after the first come from. `reread` reads the configuration again; settings other than policies,
    tools and clients stay as they were at the start."""

    def __init__(self, config: Config, reread: Callable[[], Config]) -> None:
        self._policies = config.policies
        self._can_approve = config.admin.can_approve
        self._reread = reread

    def load(self) -> Loaded:
        """Blocks. Raises ConfigError."""
        config = self._reread()
        loaded = load(config, can_approve=self._can_approve)
        self._policies = config.policies
        return loaded

    def fingerprint(self) -> Hashable:
        """Blocks; never raises."""
        return fingerprint(self._policies, _HERE)
