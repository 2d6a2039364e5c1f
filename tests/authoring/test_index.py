from __future__ import annotations

from pathlib import Path

import pytest

from proxy.authoring.index import index, read_library
from proxy.errors import ConfigError

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: NAME, title: "No | deleting", severity: high}
spec:
  mode: shadow
  batch: {maxParallel: 1}
  rules:
    - {name: a, match: {tools: [a]}, result: {truncate: {maxBytes: 1Ki}}}
    - {name: b, match: {tools: [b]}, block: {message: No.}}
    - {name: c, match: {tools: [c]}, block: {message: No.}}
"""
CASES = """\
apiVersion: sidecall.io/v1
kind: ToolPolicyTest
metadata: {name: NAME}
cases:
  - {name: b is refused, call: {tool: b}, expect: {shadows: [{policy: NAME, rule: b, decision: blocked}]}}
  - {name: known gap - d passes, call: {tool: d}, expect: {decision: allowed}}
"""


def put(folder: Path, *, policy: str = POLICY, cases: str = CASES) -> None:
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(policy.replace("NAME", folder.name))
    (folder / "cases.yaml").write_text(cases.replace("NAME", folder.name))


def test_the_page_says_what_each_policy_is_for_and_does(tmp_path: Path) -> None:
    """By category, in order; actions once each, in the order of the contract; cases and known gaps are counted."""
    for place in ("shell/stop-b", "files/stop-c", "files/stop-a"):
        put(tmp_path / place)
    page = index(read_library(tmp_path, {}))
    assert page.startswith("# Ready policies\n\n3 policies")
    assert page.endswith("|\n")
    rows = [line for line in page.splitlines() if line.startswith(("## ", "| ["))]
    assert [row[:12] for row in rows] == ["## files", "| [stop-a](f", "| [stop-c](f", "## shell", "| [stop-b](s"]
    assert rows[1] == (
        "| [stop-a](files/stop-a/policy.yaml) | No \\| deleting | block, result, maxParallel, shadow | high "
        "| [2](files/stop-a/cases.yaml) | 1 |"
    )


def test_a_library_with_a_mistake_has_no_page(tmp_path: Path) -> None:
    """What cannot be read is told, and not left out."""
    put(tmp_path / "files" / "stop-a", cases="kind: ToolPolicyTest\ncases: 7\n")
    with pytest.raises(ConfigError):
        read_library(tmp_path, {})
