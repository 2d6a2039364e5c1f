"""The vocabulary: what a tool call is, who owns it, and what a rule may know of the request around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from proxy.core.jsontext import Json

CallId = NewType("CallId", str)
"""Names a call inside one conversation: for correlation only, never authority; empty where the upstream left it so."""
BatchId = NewType("BatchId", str)
Tenant = NewType("Tenant", str)
"""The caller that a ledger entry belongs to; never a credential itself."""


class Api(StrEnum):
    CHAT = "chat"
    RESPONSES = "responses"


class Owner(StrEnum):
    """Who runs a call."""

    CLIENT = "client"
    PROXY = "proxy"
    UPSTREAM = "upstream"


class Kind(StrEnum):
    """How a call stands on the wire: a function with JSON arguments, a custom tool with free text, a legacy function;
    in the Responses API also an item whose type names the tool (`shell_call`), and an approval that is asked for."""

    FUNCTION = "function"
    CUSTOM = "custom"
    LEGACY = "legacy"
    ACTION = "action"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call as the model made it.

    `text` is the arguments as they came: JSON text, or the free text of a custom tool. `unwrapped` says that
    they came as a JSON object in place of a string; `text` is then that object's text. `namespace` is what a rule
    may name the tool behind, as `namespace.name`: its namespace, or the label of its MCP server.
    """

    call_id: CallId
    name: str
    text: str
    kind: Kind = Kind.FUNCTION
    unwrapped: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a call may know of its batch."""

    size: int
    index: int
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What rules may know of a request. Header names are lower case; `declared` maps a declared tool's name to its
    parameter schema (None: it has none). `user` and `metadata` are the client's word, no authority. `unknown` names
    what nobody knows any more, when a request is read from a record: variables of rules, and `schemas`."""

    model: str = ""
    api: Api = Api.CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    client: str = ""
    tenant: Tenant = Tenant("")
    declared: Mapping[str, Json] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()


_CONTROL_TOKEN = re.compile(r"<\|.*", re.DOTALL)
_PREFIX = re.compile(r"(?:functions|default_api)\s*[.:]\s*")
PARALLEL_WRAPPER = "multi_tool_use.parallel"


def run_name(name: str) -> str:
    """A tool's name as it would be run: without white space around it, server prefixes and leaked control tokens."""
    name = _CONTROL_TOKEN.sub("", name).strip()
    while found := _PREFIX.match(name):
        name = name[found.end() :]
    return name
