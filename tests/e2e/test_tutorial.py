"""The tutorial, as a new user would follow it: in an empty folder, with the command and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_demonstration import OPENER, await_answer, free_address
from tests.test_docs import Block, blocks

SECONDS = 20
PORTS = {"15480": "SIDECALL_LISTEN", "15490": "SIDECALL_ADMIN", "15481": ""}
NOT_HERE = ("export ", "mkdir ")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


class Reader:
    """Does what each block of the page says, on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses = {port: free_address() for port in PORTS}
        program = Path(sys.executable).parent
        named = {name: self._addresses[port] for port, name in PORTS.items() if name}
        self._environment = {**os.environ, **named, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.told = ""

    def local(self, text: str) -> str:
        for port, address in self._addresses.items():
            text = text.replace(f"127.0.0.1:{port}", address)
        return text

    def do(self, block: Block) -> None:
        if block.language == "diff":
            self._change(block)
        elif block.file:
            (self._folder / block.file).write_text(self.local(block.text))
        elif block.language == "sh":
            for line in block.text.splitlines():
                self._run(self.local(line))
        elif block.language == "text":
            assert TIME.sub("TIME", self.told) == TIME.sub("TIME", block.text)

    def _change(self, block: Block) -> None:
        lines = block.text.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        path = self._folder / block.file
        before = self._reloads()
        path.write_text(path.read_text().replace(old, new))
        deadline = time.monotonic() + SECONDS
        while self._processes and self._reloads() == before:
            assert time.monotonic() < deadline, "the proxy did not take the policy up"
            time.sleep(0.05)

    def _run(self, line: str) -> None:
        if line.startswith(NOT_HERE):
            return
        serves = {"demo-upstream": ("15481", "/v1/models"), "serve": ("15490", "/readyz")}
        if line.startswith("sidecall ") and line.split()[1] in serves:
            port, path = serves[line.split()[1]]
            command = [str(Path(sys.executable).parent / "sidecall"), *line.removesuffix("&").split()[1:]]
            self._processes.append(subprocess.Popen(command, cwd=self._folder, env=self._environment))
            await_answer(f"http://{self._addresses[port]}{path}", self._processes[-1])
            return
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        self.told = done.stdout
        assert "Traceback" not in done.stderr

    def _reloads(self) -> str:
        if not self._processes:
            return ""
        text = OPENER.open(f"http://{self._addresses['15490']}/metrics", timeout=5).read().decode()
        return "".join(line for line in text.splitlines() if line.startswith("sidecall_policy_reloads_total"))

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=SECONDS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_tutorial_leads_where_it_says(reader: Reader) -> None:
    """A policy in shadow mode changes nothing and is counted; enforced, it blocks; the record tells the difference."""
    answers = []
    for block in blocks("tutorial"):
        reader.do(block)
        if "curl" in block.text and "completions" in block.text:
            answers.append(reader.told)
    shadowed, enforced = answers
    assert '"name":"delete_order"' in shadowed
    assert "Tool call blocked by policy shop/no-deletes: Deleting is not allowed here." in enforced
