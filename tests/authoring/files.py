"""Policies, tests and records for the tests of what authors use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: orders}
spec:
  rules:
    - name: no-deletes
      match: {tools: ["delete_*"]}
      block: {message: Not here.}
    - name: cap-limit
      match: {tools: [search]}
      when: has(args.limit) && args.limit > 10
      rewrite: {merge: {limit: 10}}
"""
CASES = """\
apiVersion: sidecall.io/v1
kind: ToolPolicyTest
metadata: {name: orders}
cases:
  - name: deleting is blocked
    call: {tool: delete_order, args: {id: 7}}
    expect: {decision: blocked, policy: orders, rule: no-deletes}
"""
CAPPED = """\
  - name: a high limit is capped
    call: {tool: search, args: {limit: 99}}
    expect: {decision: rewritten, rule: cap-limit, args: {limit: 10}}
"""
WRONG = """\
  - name: searching is blocked
    call: {tool: search, args: {limit: 1}}
    expect: {decision: blocked}
"""
CONFIG = "apiVersion: sidecall.io/v1\nkind: Config\npolicies: [policy.yaml]\ndefaultAction: block\n"


def write(**texts: str) -> None:
    """Files of the working directory; `a__b` is `a/b`."""
    for name, text in texts.items():
        path = Path(f"{name.replace('__', '/')}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def record(tool: str, args: Any = None, **more: Any) -> dict[str, Any]:
    """An audit record as it is written with `audit.arguments: full`."""
    return {
        "time": "2026-10-01T12:00:00.000Z",
        "record": "tool_call",
        "request_id": "req_1",
        "tenant": "team-a",
        "client": "team-a",
        "api": "chat",
        "model": "gpt-5",
        "call_id": "call_1",
        "tool": tool,
        "owner": "client",
        "decision": "allowed",
        "mode": "enforce",
        "declared": True,
        "arguments": "full",
        "args": {} if args is None else args,
        **more,
    }


def write_audit(path: str, *records: dict[str, Any]) -> str:
    """The path."""
    Path(path).write_text("".join(f"{json.dumps(one)}\n" for one in records))
    return path
