"""The command line."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy import __version__, cli
from proxy.config import Config
from proxy.demo import server
from proxy.errors import ConfigError, Problem

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: orders}
spec:
  rules:
    - {name: all, block: {}}
"""
SECOND = "    - {name: never, allow: {}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("UPSTREAM", "LISTEN", "ADMIN", "POLICIES", "STATE"):
        monkeypatch.delenv(f"SIDECALL_{name}", raising=False)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


Output = pytest.CaptureFixture[str]


class Served:
    """Takes the place of the server, and keeps what it was given."""

    configs: list[Config]
    reread: Callable[[], Config]

    def __init__(self, error: Exception | None = None) -> None:
        self.configs = []
        self._error = error

    def __call__(self, config: Config, *, reread: Callable[[], Config]) -> int:
        self.configs.append(config)
        self.reread = reread
        if self._error is not None:
            raise self._error
        return 7


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    server = Served()
    monkeypatch.setattr(cli, "serve", server)
    return server


def test_version_and_help_are_told(capsys: Output) -> None:
    """The help shows every command, and examples."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"sidecall {__version__}\n"
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for word in (
        "serve",
        "check",
        "test",
        "explain",
        "replay",
        "schema",
        "demo-upstream",
        "examples:",
        "sidecall serve --upstream https://",
    ):
        assert word in told


def test_without_a_command_the_help_is_told_and_nothing_runs(capsys: Output) -> None:
    """It is a mistake all the same."""
    assert cli.main([]) == 2
    assert "examples:" in capsys.readouterr().err


def test_it_runs_as_a_module() -> None:
    """`python -m proxy` is the same command."""
    done = subprocess.run([sys.executable, "-m", "proxy", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sidecall {__version__}\n"


# ---------------------------------------------------------------- serve


def test_serve_without_anything_has_the_defaults(served: Served) -> None:
    """Its exit status is the server's."""
    assert cli.main(["serve"]) == 7
    assert served.configs == [Config()]


def test_serve_reads_file_environment_and_flags(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And reads all of it again when it is asked to."""
    file = folder / "sidecall.yaml"
    file.write_text("apiVersion: sidecall.io/v1\nkind: Config\nlisten: {port: 1}\nadmin: {port: 1}\n")
    monkeypatch.setenv("SIDECALL_ADMIN", "127.0.0.1:2")
    flags = ["--upstream", "http://h/v1", "--policies", "a", "b", "--policies", "c", "--state", "memory:"]
    cli.main(["serve", "--config", "sidecall.yaml", *flags])
    config = served.configs[0]
    assert (config.listen.port, config.admin.port, config.upstream.base_url) == (1, 2, "http://h/v1")
    assert config.policies == tuple(str(folder / name) for name in "abc")
    assert config.state.address() == "memory:"
    file.write_text(file.read_text().replace("port: 1", "port: 5"))
    assert (served.reread().listen.port, served.reread().admin.port) == (5, 2)


def test_problems_are_told_one_a_line_on_standard_error(served: Served, folder: Path, capsys: Output) -> None:
    """With exit status 2, and nothing is served."""
    (folder / "sidecall.yaml").write_text("apiVersion: sidecall.io/v1\nkind: Config\nlisten: {prot: 1}\nadmn: {}\n")
    assert cli.main(["serve", "--config", "sidecall.yaml"]) == 2
    told = capsys.readouterr()
    assert [line.partition(" ")[0] for line in told.err.splitlines()] == ["sidecall.yaml:3:10:", "sidecall.yaml:4:1:"]
    assert (told.out, served.configs) == ("", [])


def test_what_the_server_refuses_is_told_the_same_way(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """A message of several lines stays on one."""
    monkeypatch.setattr(cli, "serve", Served(ConfigError([Problem("policy.yaml", 3, 4, "one\ntwo")])))
    assert cli.main(["serve"]) == 2
    assert capsys.readouterr().err == "policy.yaml:3:4: one two\n"


# ---------------------------------------------------------------- check


def test_check_is_content_with_what_compiles(capsys: Output) -> None:
    """A line says how much was looked at."""
    assert cli.main(["check", "policy.yaml"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("0 configurations, 1 policy: no errors, 0 warnings\n", "")


def test_check_tells_errors_with_exit_status_2(folder: Path, capsys: Output) -> None:
    """Strict or not."""
    (folder / "policy.yaml").write_text(POLICY.replace("block", "blok"))
    for flags in ([], ["--strict"]):
        assert cli.main(["check", *flags, "policy.yaml"]) == 2
        told = capsys.readouterr()
        assert told.err.startswith("policy.yaml:6:19: unknown key 'blok'")
        assert told.out == ""


def test_warnings_are_errors_when_that_is_wanted(folder: Path, capsys: Output) -> None:
    """They are told either way."""
    (folder / "policy.yaml").write_text(POLICY + SECOND)
    for flags, status in (([], 0), (["--strict"], 1)):
        assert cli.main(["check", *flags, "policy.yaml"]) == status
        told = capsys.readouterr()
        assert told.err.startswith("policy.yaml:7:7: warning: the rule 'never' can never be reached")
        assert told.out.endswith("no errors, 1 warning\n")


# ---------------------------------------------------------------- demo-upstream


def test_the_demonstration_listens_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a port of its own by default."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(server, "run", lambda host, port: asked.append((host, port)))
    assert cli.main(["demo-upstream"]) == cli.main(["demo-upstream", "--listen", "[::1]:9"]) == 0
    assert asked == [("127.0.0.1", 15481), ("::1", 9)]


def test_an_address_that_is_none_or_taken_is_told_in_a_line(capsys: Output) -> None:
    """Without a traceback."""
    assert cli.main(["demo-upstream", "--listen", "here"]) == 2
    assert capsys.readouterr().err == "--listen: expected HOST:PORT, such as 127.0.0.1:15480\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["demo-upstream", "--listen", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on 127.0.0.1:{port}: ")
