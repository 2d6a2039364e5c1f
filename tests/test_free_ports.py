"""What `make run` asks before it starts anything."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


def asked(*addresses: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPTS / "free_ports.py"), *addresses]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_port_that_is_taken_is_told_with_what_names_another(taken: str) -> None:
    """All of them at once; whoever answers there is not the demonstration."""
    told = f"{taken} cannot be listened on (Address already in use); give another one"
    assert asked(f"SIDECALL_LISTEN={taken}", "SIDECALL_ADMIN=127.0.0.1:0", f"SIDECALL_DEMO_PORT={taken}") == (
        1,
        f"SIDECALL_LISTEN: {told}\nSIDECALL_DEMO_PORT: {told}\n",
    )


def test_free_ports_are_nothing_to_tell() -> None:
    """By number and by name."""
    assert asked("A=127.0.0.1:0", "B=localhost:0") == (0, "")


@pytest.mark.parametrize("address", ["25480", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":1", "127.0.0.1:65536"])
def test_what_is_no_address_is_told(address: str) -> None:
    """Before a program is started by it."""
    assert asked(f"SIDECALL_LISTEN={address}") == (
        1,
        "SIDECALL_LISTEN: expected HOST:PORT, such as 127.0.0.1:15480\n",
    )


def test_the_demonstration_asks_before_it_starts_anything() -> None:
    """And asks for each of its addresses."""
    script = (SCRIPTS / "run").read_text()
    before, found, _ = script.partition(".venv/bin/sidecall demo-upstream")
    assert found
    assert '.venv/bin/python scripts/free_ports.py "${addresses[@]}" || exit 1' in before
