"""What middleware of a policy is given, and what it may give back: the one module that such code imports.

A middleware is a Python object that a rule names (`middleware: "package.module:attr"`) and that has one or both of

    def on_call(self, call: Call) -> Allow | Block | Answer | Rewrite | None
    def on_result(self, call: Call, result: str) -> str | None

Either may be async. None leaves the call to the next rule, or the result as it is. `on_result` sees a result each time
that the conversation is sent: it must give the same text for the same result, or no prompt cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with what earlier rules made of it, and the request that it came by.

    `args` is a copy of the arguments object, None where what the model wrote is none; `raw_args` is their text.
    `call_id` is for correlation only. `owner` is `client`, `proxy` or `upstream`, `declared` whether the request
    declares the tool. `user` and `metadata` are the client's word; `client` is a configured client's name, or empty.
    """

    name: str
    call_id: str
    args: dict[str, Any] | None
    raw_args: str
    owner: str
    declared: bool
    namespace: str
    model: str
    api: str
    client: str
    tenant: str
    user: str
    metadata: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Allow:
    """The call goes ahead; no later rule is asked."""


@dataclass(frozen=True, slots=True)
class Block:
    """The call is held, and the model told why."""

    message: str = "This call is not allowed."


@dataclass(frozen=True, slots=True)
class Answer:
    """The call is held; this is its result."""

    content: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The call goes on to the next rule with these arguments."""

    args: Mapping[str, Any]


Decision = Allow | Block | Answer | Rewrite | None
"""What `on_call` may give."""
