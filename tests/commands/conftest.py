from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy import cli

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("SIDECALL_POLICIES", "SIDECALL_UPSTREAM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: its exit status, and what it told on standard output and on standard error."""

    def ran(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(arguments)
        told = capsys.readouterr()
        return status, told.out, told.err

    return ran
