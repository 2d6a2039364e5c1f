"""A proxy under traffic and a Prometheus that watches it, both processes of their own on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.charts import NAMESPACE
from tests.kubernetes.rules import groups
from tests.kubernetes.tools import CHART, ROOT, tool

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
START_SECONDS = 60
HEAD = {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy"}
POLICIES = {
    "enforced.yaml": {
        **HEAD,
        "metadata": {"name": "orders"},
        "spec": {
            "rules": [
                {"name": "no-deletes", "match": {"tools": ["delete_*"]}, "block": {"message": "Not here."}},
                {"name": "few", "match": {"tools": ["search_*"]}, "rewrite": {"clamp": {"limit": {"max": 10}}}},
            ]
        },
    },
    "shadow.yaml": {
        **HEAD,
        "metadata": {"name": "calendars"},
        "spec": {"mode": "shadow", "rules": [{"name": "none", "match": {"tools": ["read_calendar"]}, "block": {}}]},
    },
    "broken.yaml": {
        **HEAD,
        "metadata": {"name": "broken"},
        "spec": {
            "failurePolicy": "Ignore",
            "rules": [{"name": "a", "match": {"tools": ["read_*"]}, "when": "args.missing > 1", "block": {}}],
        },
    },
}
ORDER_STATUS = {
    "name": "get_order_status",
    "description": "The status of an order.",
    "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    "python": "proxy.demo_tools:get_order_status",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(what: str, holds: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Ask again and again, until it holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"in {seconds} seconds it was not so: {what}"
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        OPENER.open(url, timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def process(*command: str, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SIDECALL_")}
    environment["PYTHONPATH"] = str(ROOT)
    with (cwd / f"{Path(command[0]).name}-{time.monotonic_ns()}.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
        try:
            yield running
        finally:
            running.terminate()
            running.wait(30)


@dataclass
class Watched:
    """The processes, by their addresses. `upstream` is one that may be ended, where there is one."""

    folder: Path
    upstream: subprocess.Popen[bytes] | None
    data: str
    admin: str
    prometheus: str

    def ask(self, prompt: str, *tools: str, stream: bool = False) -> None:
        """A conversation about something, until the model has said its last word."""
        declared = [{"type": "function", "function": {"name": name}} for name in tools]
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        for _ in range(3):
            sent = {"model": "demo", "messages": messages, "stream": stream, **({"tools": declared} if tools else {})}
            status, answer = self.post(sent)
            if status != 200 or stream:
                return
            message = json.loads(answer)["choices"][0]["message"]
            if not message.get("tool_calls"):
                return
            messages.append(message)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": "free after three"}
                for call in message["tool_calls"]
            ]

    def post(self, sent: dict[str, Any]) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"{self.data}/v1/chat/completions", json.dumps(sent).encode(), {"content-type": "application/json"}
        )
        try:
            with OPENER.open(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def traffic(self) -> None:
        """A bit of all that there is a metric for, save approvals and a store that fails."""
        self.ask("Tell me a story.", stream=True)
        self.ask("Please search for shoes.", "search_products")
        self.ask("Please delete order 7.", "delete_order")
        self.ask("Is my calendar free when order 7 comes?", "read_calendar")

    def change_policies(self) -> None:
        path = self.folder / "policies" / "enforced.yaml"
        path.write_text(path.read_text() + "# changed\n")

    def metrics(self) -> str:
        with OPENER.open(f"{self.admin}/metrics", timeout=30) as answer:
            text: bytes = answer.read()
        return text.decode()

    def query(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        """What Prometheus answers to `query` or `query_range`."""
        with OPENER.open(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def configuration(upstream: int, data: int, admin: int) -> dict[str, Any]:
    return {
        "apiVersion": "sidecall.io/v1",
        "kind": "Config",
        "listen": {"port": data},
        "admin": {"port": admin},
        "upstream": {"baseUrl": f"http://127.0.0.1:{upstream}/v1"},
        "policies": ["policies"],
        "tools": [ORDER_STATUS],
        "state": {"url": "sqlite:state.db"},
    }


def scraping(admin: int) -> dict[str, Any]:
    """As a PodMonitor makes it: the namespace and the pod are labels of the target."""
    labels = {"namespace": NAMESPACE, "pod": "a"}
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "sidecall", "static_configs": [{"targets": [f"127.0.0.1:{admin}"], "labels": labels}]}
        ],
    }


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """A scripted upstream, a proxy and a Prometheus, until the context is left."""
    upstream, data, admin, own = (free_port() for _ in range(4))
    (folder / "policies").mkdir()
    for name, policy in POLICIES.items():
        (folder / "policies" / name).write_text(yaml.safe_dump(policy))
    (folder / "sidecall.yaml").write_text(yaml.safe_dump(configuration(upstream, data, admin)))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(scraping(admin)))
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups()))
    here = f"127.0.0.1:{own}"
    server = [tool("prometheus"), "--config.file=prometheus.yaml", f"--web.listen-address={here}"]
    proxy = [sys.executable, "-m", "proxy"]
    with ExitStack() as stack:
        model = stack.enter_context(process(*proxy, "demo-upstream", "--listen", f"127.0.0.1:{upstream}", cwd=folder))
        stack.enter_context(process(*proxy, "serve", "--config", "sidecall.yaml", cwd=folder))
        stack.enter_context(process(*server, "--storage.tsdb.path=data", cwd=folder))
        addresses = [f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}", f"http://{here}"]
        until("the upstream answers", lambda: answers(f"http://127.0.0.1:{upstream}/v1/models"))
        until("the proxy is ready", lambda: answers(f"{addresses[1]}/readyz"))
        until("Prometheus is ready", lambda: answers(f"{addresses[2]}/-/ready"))
        yield Watched(folder, model, *addresses)


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard that show something."""
    found: list[dict[str, Any]] = json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def filled_in(expression: str) -> str:
    """A query of the dashboard as Grafana sends it for one namespace and all of its pods."""
    for variable, value in (("$namespace", NAMESPACE), ("$pod", ".*"), ("$__rate_interval", "1m")):
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression
