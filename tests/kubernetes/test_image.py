"""The image as it was built: what it may do when it runs, how large it is, and the rendered pod with it.

`make test-image` builds it and names it in SIDECALL_IMAGE; podman runs it, with nothing that the chart does not give.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.charts import documents, of_kind, of_values, proxies
from tests.kubernetes.tools import ROOT
from tests.kubernetes.watched import POLICIES, Watched, answers, free_port, process, until

IMAGE = os.environ.get("SIDECALL_IMAGE", "")
REST_MIB = 80
"""What a proxy at rest may have in memory."""
LOCK = "requirements-image.lock"
SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("own")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


server.run()
"""
"""A server that the image itself can run; it finds it beside the policies."""
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


def podman(*arguments: str, env: dict[str, str] | None = None, given: str = "") -> str:
    done = subprocess.run(
        ["podman", "--runtime", "runc", *arguments],
        env={**os.environ, **(env or {})},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"podman {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def config(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sidecall.io/v1",
        "kind": "Config",
        "policies": ["/etc/sidecall/policies"],
        "state": {"url": "sqlite:/var/lib/sidecall/state.db"},
        **more,
    }


@contextmanager
def contained(folder: Path, upstream: int, **more: Any) -> Iterator[tuple[str, str, str]]:
    """A running container, and the addresses of its two ports."""
    data, admin = free_port(), free_port()
    (folder / "policies").mkdir()
    for name, policy in POLICIES.items():
        (folder / "policies" / name).write_text(yaml.safe_dump(policy))
    (folder / "policies" / "server.py").write_text(SERVER)
    ports = {"listen": {"port": data}, "admin": {"port": admin}}
    whole = config(**ports, upstream={"baseUrl": f"http://127.0.0.1:{upstream}/v1"}, **more)
    (folder / "sidecall.yaml").write_text(yaml.safe_dump(whole))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    rights = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges")
    mounts = (
        *("--volume", f"{folder}/sidecall.yaml:/etc/sidecall/config/sidecall.yaml:ro"),
        *("--volume", f"{folder}/policies:/etc/sidecall/policies:ro"),
        *("--mount", "type=volume,destination=/var/lib/sidecall"),
    )
    name = podman(
        *("run", "--detach", "--network", "host", "--pull", "never", "--user", "10001:10001"),
        *rights,
        *LIMITS,
        *mounts,
        *(IMAGE, "serve", "--config", "/etc/sidecall/config/sidecall.yaml"),
    )
    try:
        until("the container is ready", lambda: answers(f"http://127.0.0.1:{admin}/readyz"))
        yield name, f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}"
    finally:
        podman("rm", "--force", "--volumes", name)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The scripted upstream, out of the same image."""
    port, folder = free_port(), tmp_path_factory.mktemp("upstream")
    command = ("podman", "--runtime", "runc", "run", "--rm", "--network", "host", "--pull", "never")
    with process(*command, *LIMITS, IMAGE, "demo-upstream", "--listen", f"127.0.0.1:{port}", cwd=folder):
        until("the upstream answers", lambda: answers(f"http://127.0.0.1:{port}/v1/models"))
        yield port


@pytest.fixture(scope="module")
def running(upstream: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    with contained(tmp_path_factory.mktemp("container"), upstream) as found:
        yield found


def test_it_runs_with_no_rights_at_all(running: tuple[str, str, str]) -> None:
    """Its uid is not root's, it has no capability and can get none."""
    pid = podman("inspect", "--format", "{{.State.Pid}}", running[0])
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Uid"].split() == 4 * ["10001"]
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def resident(name: str) -> float:
    """What a container's proxy has in memory, in MiB."""
    pid = podman("inspect", "--format", "{{.State.Pid}}", name)
    [kib] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


def test_it_is_small_at_rest(running: tuple[str, str, str]) -> None:
    """With policies loaded and its store open."""
    mib = resident(running[0])
    print(f"RSS at rest: {mib:.1f} MiB")
    assert mib < REST_MIB


def test_it_governs(running: tuple[str, str, str], tmp_path: Path) -> None:
    """A conversation with a held call comes to its end, and a blocked call is counted."""
    _, data, admin = running
    client = Watched(tmp_path, None, data, admin, "")
    client.ask("Please delete order 7.", "delete_order")
    client.ask("Is my calendar free when order 7 comes?", "read_calendar")
    text = client.metrics()
    assert re.search(r'sidecall_tool_calls_total\{.*decision="blocked".*tool="delete_order"\} 1.0', text)
    assert "sidecall_store_up 1.0" in text


def test_it_runs_mcp_servers(upstream: int, tmp_path: Path) -> None:
    """The package is there, and works without a folder to write to."""
    command = ["python3", "/etc/sidecall/policies/server.py"]
    tools = [{"mcp": {"name": "own", "command": command, "timeout": "30s"}}]
    with contained(tmp_path, upstream, tools=tools) as (name, data, admin):
        client = Watched(tmp_path, None, data, admin, "")
        until("the server is there", lambda: 'sidecall_mcp_up{server="own"} 1.0' in client.metrics())
        print(f"RSS with an MCP server: {resident(name):.1f} MiB")


def test_it_ends_in_order(upstream: int, tmp_path: Path) -> None:
    """On SIGTERM, at once when nothing runs, and well."""
    with contained(tmp_path, upstream) as (name, _, _):
        podman("stop", "--time", "20", name)
        assert podman("inspect", "--format", "{{.State.ExitCode}}", name) == "0"


def test_it_says_what_it_is() -> None:
    """Labels, user and entry point."""
    [found] = json.loads(podman("image", "inspect", IMAGE))
    labels = found["Config"]["Labels"]
    said = podman("run", "--rm", "--network", "host", *LIMITS, IMAGE, "--version")
    assert said == f"sidecall {labels['org.opencontainers.image.version']}"
    assert len(labels["org.opencontainers.image.revision"]) == 40
    assert found["Config"]["User"] == "10001:10001"
    print(f"size: {found['Size'] / 1e6:.0f} MB")


def test_the_bill_of_materials_names_every_package() -> None:
    """Each with its version and the hashes that the lock file holds."""
    found = json.loads((ROOT / "build" / "sbom.json").read_text())
    named = {(part["name"].lower(), part["version"]) for part in found["components"]}
    locked = set(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", (ROOT / LOCK).read_text(), re.MULTILINE))
    assert locked <= named


def test_the_rendered_pod_runs(upstream: int, tmp_path: Path) -> None:
    """The plain form, as podman understands no native sidecars; with the host's network, as no other is to be had."""
    data, admin = free_port(), free_port()
    values = {
        "mode": "sidecar",
        "image": {"repository": IMAGE.partition(":")[0], "tag": IMAGE.partition(":")[2], "pullPolicy": "Never"},
        "upstream": {"baseUrl": f"http://127.0.0.1:{upstream}/v1"},
        "listen": {"address": "127.0.0.1", "port": data, "adminPort": admin},
        "policies": {"orders": POLICIES["enforced.yaml"]},
        "sidecar": {"native": False},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    found = documents(of_values("helm4", tmp_path / "values.yaml", app=True))
    [(pod, container)] = proxies(found)
    # Its probes need systemd's timers, and its ports a network of its own.
    container = {key: value for key, value in container.items() if key != "ports" and not key.endswith("Probe")}
    pod = {**pod, "containers": [container], "hostNetwork": True}
    played = [
        *of_kind(found, "ConfigMap"),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sidecall-test"}, "spec": pod},
    ]
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump_all(played))
    settings = '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
    (tmp_path / "containers.conf").write_text(settings)
    env = {"CONTAINERS_CONF": str(tmp_path / "containers.conf")}
    try:
        podman("kube", "play", str(tmp_path / "pod.yaml"), env=env)
        until("the pod is ready", lambda: answers(f"http://127.0.0.1:{admin}/readyz"))
        client = Watched(tmp_path, None, f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}", "")
        client.ask("Please delete order 7.", "delete_order")
        assert 'decision="blocked"' in client.metrics()
        pid = podman("inspect", "--format", "{{.State.Pid}}", "sidecall-test-sidecall")
        assert re.search(r"^Uid:\s+10001\s", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    finally:
        podman("pod", "rm", "--force", "--ignore", "sidecall-test", env=env)
        # ConfigMaps become volumes, which would be found again by the next run.
        podman("volume", "rm", "--force", *(document["metadata"]["name"] for document in of_kind(found, "ConfigMap")))
