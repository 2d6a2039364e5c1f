"""What is told of MCP servers: a gauge for each, and lines in the log.

Rules: a server that stays away is told of once, and again when the reason is another. What a command writes to its
standard error may quote anything, so that it is shown at the level `debug` only.
"""

from __future__ import annotations

from proxy.metrics import Metrics
from proxy.server.logs import Log


class ToolServerWatch:
    """Told by `McpServers`."""

    def __init__(self, metrics: Metrics, log: Log) -> None:
        self._metrics = metrics
        self._log = log
        self._reasons: dict[str, str] = {}

    def up(self, server: str, tools: int) -> None:
        self._reasons.pop(server, None)
        self._metrics.mcp_up(True, server=server)
        self._log.event("info", "MCP server answers", server=server, tools=tools)

    def down(self, server: str, reason: str) -> None:
        """`reason` is empty before the first try."""
        self._metrics.mcp_up(False, server=server)
        if reason and self._reasons.get(server) != reason:
            self._reasons[server] = reason
            self._log.event("warning", "MCP server is away", server=server, reason=reason)

    def gone(self, server: str) -> None:
        """It is not configured any more."""
        self._reasons.pop(server, None)
        self._metrics.mcp_gone(server=server)

    def left_out(self, server: str, tool: str, reason: str) -> None:
        self._log.event("warning", "a tool of an MCP server is left out", server=server, tool=tool[:100], reason=reason)

    def said(self, server: str, line: str) -> None:
        self._log.event("debug", "MCP server says", server=server, line=line)
