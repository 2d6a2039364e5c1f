"""Hosted MCP servers, which the upstream calls by itself: where a rule could hold a call, it has to ask first.

A client that lets a server run without asking gets no question: what the rules allow is approved in its place. Who
wants to be asked still is, for what the rules allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from proxy.core import jsontext
from proxy.core.policy.decide import Chain
from proxy.core.protocol.response_request import ResponseRequest


@dataclass(frozen=True, slots=True)
class Approvals:
    """`labels` are the servers whose calls the proxy wants to be asked for; `unasked` says for each which tools the
    client lets run without asking (None: all of them)."""

    labels: frozenset[str]
    unasked: dict[str, frozenset[str] | None]

    @classmethod
    def of(cls, tools: Iterable[Any], chain: Chain) -> Approvals:
        """What the tools of a request, or of a response that shows them, make of the rules."""
        servers = [t for t in tools if isinstance(t, dict) and t.get("type") == "mcp"]
        labels = {
            label for t in servers if chain.may_hold_upstream(label := _label(t), _tool_names(t.get("allowed_tools")))
        }
        return cls(frozenset(labels), {_label(t): _unasked(t.get("require_approval")) for t in servers})

    def asking(self, tool: bytes) -> bytes:
        """A tool of the request, as the upstream gets it."""
        value = jsontext.parse_own(tool) if b'"mcp"' in tool else None
        if not isinstance(value, dict) or value.get("type") != "mcp" or _label(value) not in self.labels:
            return tool
        if value.get("require_approval") in (None, "always"):  # what an upstream does when nothing is said
            return tool
        return jsontext.edit(tool, {("require_approval",): b'"always"'})

    def asking_item(self, item: bytes) -> bytes:
        """An item of the input, which may bring tools along."""
        value = jsontext.parse_own(item) if b'"mcp"' in item else None
        tools = value.get("tools") if isinstance(value, dict) and value.get("type") in BRING_TOOLS else None
        if not isinstance(tools, list):
            return item
        raws = jsontext.elements(item, ("tools",))
        asking = [self.asking(raw) for raw in raws]
        return item if asking == raws else jsontext.edit(item, {("tools",): jsontext.array(asking)})

    def approves(self, label: str, name: str) -> bool:
        """Whether an approval is the proxy's to give: the client would not have been asked."""
        if label not in self.labels or label not in self.unasked:
            return False
        unasked = self.unasked[label]
        return unasked is None or name in unasked


BRING_TOOLS = ("additional_tools", "tool_search_output")
"""Items of an input that add tools to a request's own."""


def all_tools(request: ResponseRequest) -> list[Any]:
    """The tools of a request, and those that its input brings along."""
    items = (item for item in request.items if isinstance(item, dict) and item.get("type") in BRING_TOOLS)
    brought = (tool for item in items if isinstance(item.get("tools"), list) for tool in item["tools"])
    return [*request.tools, *brought]


def _label(tool: dict[str, Any]) -> str:
    label = tool.get("server_label")
    return label if isinstance(label, str) else ""


def _tool_names(filtered: Any) -> Collection[str] | None:
    """The names of a filter, which is a list or an object with one; None where it may let in any."""
    if isinstance(filtered, dict):
        filtered = filtered.get("tool_names")
    return [name for name in filtered if isinstance(name, str)] if isinstance(filtered, list) else None


def _unasked(setting: Any) -> frozenset[str] | None:
    """The tools that a client's `require_approval` lets run without asking; None: all."""
    if setting == "never":
        return None
    names = _tool_names(setting.get("never")) if isinstance(setting, dict) else []
    return frozenset(names or ())
