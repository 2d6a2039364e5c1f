"""Hosted MCP servers: which have to ask, and whose answer it is."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.exchange.approvals import Approvals
from proxy.core.jsontext import parse_own, render
from tests.core.policy.engine import policies

RULE = {"name": "no", "match": {"tools": ["delete_*"]}, "block": {"message": "no"}}


def server(setting: Any = "never", **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "files", "server_url": "http://x", "require_approval": setting, **more}


def approvals(*tools: dict[str, Any], rules: Any = (RULE,)) -> Approvals:
    return Approvals.of(tools, policies(list(rules)).for_request(RequestFacts()))


def setting_of(found: Approvals, tool: dict[str, Any]) -> Any:
    return parse_own(found.asking(render(tool)))["require_approval"]


@pytest.mark.parametrize("setting", ["never", {"never": {"tool_names": ["delete_x"]}}, {"always": {}}])
def test_a_server_that_a_rule_could_hold_has_to_ask(setting: Any) -> None:
    """Whatever the client says of it; nothing else of the tool changes."""
    tool = server(setting)
    found = approvals(tool)
    assert parse_own(found.asking(render(tool))) == tool | {"require_approval": "always"}


@pytest.mark.parametrize(
    "tool",
    [
        server("always"),
        {"type": "mcp", "server_label": "files", "server_url": "http://x"},
        server(allowed_tools=["read"]),
        server(allowed_tools={"tool_names": ["read"]}),
        {"type": "function", "name": "delete_x"},
    ],
)
def test_other_tools_stay_as_they_are(tool: dict[str, Any]) -> None:
    """One that asks in any case, one whose tools no rule can hold, one that is no server: to the byte."""
    raw = render(tool)
    assert approvals(tool).asking(raw) is raw


def test_without_rules_nobody_has_to_ask() -> None:
    """Nothing could hold a call."""
    assert setting_of(approvals(server(), rules=()), server()) == "never"


@pytest.mark.parametrize(
    ("setting", "name", "own"),
    [
        ("never", "read", True),
        ("always", "read", False),
        (None, "read", False),
        ({"never": {"tool_names": ["read"]}}, "read", True),
        ({"never": {"tool_names": ["read"]}}, "write", False),
        ({"always": {"tool_names": ["write"]}}, "read", False),
    ],
)
def test_whose_approval_it_is(setting: Any, name: str, own: bool) -> None:
    """The proxy's where the client would not have been asked, and the client's else."""
    assert approvals(server(setting)).approves("files", name) is own


def test_a_server_that_nobody_named_is_the_clients_matter() -> None:
    """An approval for a server that the request does not have goes to the client."""
    assert not approvals(server()).approves("other", "read")
