"""The CEL library is there, and its command line is not in memory."""

from __future__ import annotations

import subprocess
import sys

from proxy.core.policy.cel_library import cel

LOADED = """
import sys
import proxy.core.policy.expressions
print(sorted({name.partition(".")[0] for name in sys.modules} & {"prompt_toolkit", "pygments", "rich", "typer"}))
print("cel.cli" in sys.modules)
import cel.cli
print(cel.cli.evaluate("1 + 1"))
"""


def test_expressions_are_evaluated() -> None:
    """What is imported is the library itself."""
    assert cel.evaluate("1 + 1") == 2


def test_its_command_line_is_not_loaded_and_can_still_be() -> None:
    """A process that only serves has none of it; whoever asks for it gets the real one."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "2"]
