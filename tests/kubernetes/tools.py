"""The tools that were fetched, and running them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
CHART = ROOT / "helm" / "sidecall"
TOOLS = Path(os.environ["SIDECALL_TOOLS"]) if os.environ.get("SIDECALL_TOOLS") else None


def tool(name: str) -> str:
    """The path of a tool; the test is skipped where it could not be had."""
    folders = [] if TOOLS is None else [TOOLS / "bin", TOOLS / "python" / "bin"]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        pytest.skip(f"{name} could not be had")
    return found


def run(name: str, *arguments: str | Path, cwd: Path = ROOT, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool with no more of the environment than it needs. Says nothing of how it ended."""
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        cwd=cwd,
        input=given,
        env={"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def ran(name: str, *arguments: str | Path, cwd: Path = ROOT, given: str = "") -> str:
    """What a tool writes; it must end well."""
    done = run(name, *arguments, cwd=cwd, given=given)
    assert done.returncode == 0, f"{name} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    return done.stdout
