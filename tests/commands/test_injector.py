"""`sidecall injector` as a command: what stops it, and that it serves as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Run
from tests.server.certificates import Authority

TEMPLATE = "container: {name: sidecall}\nconfig: '{apiVersion: sidecall.io/v1, kind: Config}'\n"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A template and a certificate that can be used."""
    files = Authority(tmp_path).issue("127.0.0.1")
    (tmp_path / "sidecar.yaml").write_text(TEMPLATE)
    return ["injector", "--template", "sidecar.yaml", "--cert", str(files.cert), "--key", str(files.key)]


def test_a_mistake_in_the_template_is_told_where_it_stands(run: Run, arguments: list[str], tmp_path: Path) -> None:
    """As of every other file."""
    (tmp_path / "sidecar.yaml").write_text(TEMPLATE + "nativ: true\n")
    status, _, told = run(*arguments)
    assert status == 2
    assert told.startswith("sidecar.yaml:3:1: unknown key 'nativ'")


def test_an_address_that_cannot_be_read_is_told(run: Run, arguments: list[str]) -> None:
    """With what was expected."""
    assert run(*arguments, "--listen", "8443") == (2, "", "--listen: expected HOST:PORT, such as 127.0.0.1:15480\n")


def test_it_serves_until_it_is_told_to_end(arguments: list[str]) -> None:
    """Its log is JSON, on standard error."""
    command = [sys.executable, "-m", "proxy", *arguments, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=None) as process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["message"] == "serving"
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stderr.readline())["message"] == "ended"
        assert process.wait(30) == 0


def test_a_certificate_that_is_not_there_is_told(arguments: list[str]) -> None:
    """In one line, without a traceback."""
    arguments[-1] = "missing.key"
    command = [sys.executable, "-m", "proxy", *arguments, "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "cannot serve: No such file or directory\n")
