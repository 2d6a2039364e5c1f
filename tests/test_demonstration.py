"""What `make run` promises: the requests that it prints give what it says beside them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
REQUESTS = re.findall(r"^curl .* -d '(.*)'(?:; echo)?$", (ROOT / "scripts" / "try.txt").read_text(), re.MULTILINE)
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
START_SECONDS = 30


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            OPENER.open(url, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "it ended before it was ready"
            assert time.monotonic() < deadline, f"no answer from {url}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    """The base URL of a proxy in front of the scripted upstream, as `make run` starts them."""
    upstream, listen, admin = (free_address() for _ in range(3))
    environment = {
        **os.environ,
        "SIDECALL_UPSTREAM": f"http://{upstream}/v1",
        "SIDECALL_LISTEN": listen,
        "SIDECALL_ADMIN": admin,
    }
    command = [sys.executable, "-m", "proxy"]
    processes = [
        subprocess.Popen([*command, "demo-upstream", "--listen", upstream], cwd=ROOT),
        subprocess.Popen([*command, "serve", "--config", "proxy/demo.yaml"], cwd=ROOT, env=environment),
    ]
    try:
        await_answer(f"http://{upstream}/v1/models", processes[0])
        await_answer(f"http://{admin}/readyz", processes[1])
        yield f"http://{listen}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(20)


def send(proxy: str, body: str, path: str = "/v1/chat/completions") -> str:
    request = urllib.request.Request(
        f"{proxy}{path}", body.encode(), {"content-type": "application/json"}, method="POST"
    )
    with OPENER.open(request, timeout=20) as answer:
        text: bytes = answer.read()
    return text.decode()


def choice(proxy: str, body: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(send(proxy, body))["choices"][0]
    return found


def test_there_are_the_requests_that_are_promised() -> None:
    """Six requests are printed, each of them JSON."""
    assert len(REQUESTS) == 6
    assert all(json.loads(body)["model"] == "demo" for body in REQUESTS)


def test_a_blocked_call_is_told_to_the_model(proxy: str) -> None:
    """The client gets a text and no call; the text quotes what the model was told."""
    got = choice(proxy, REQUESTS[0])
    assert got["finish_reason"] == "stop"
    assert "tool_calls" not in got["message"]
    assert "Tool call blocked by policy deny-deleting/deny-deleting-tools:" in got["message"]["content"]


def test_arguments_are_clamped(proxy: str) -> None:
    """The client is asked for ten results."""
    (call,) = choice(proxy, REQUESTS[1])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"query": "shoes", "limit": 10}


def test_a_mixed_batch_is_split_and_put_back_together(proxy: str) -> None:
    """The client sees its own call; with its result, the model sees both, in the order of its calls."""
    (call,) = choice(proxy, REQUESTS[2])["message"]["tool_calls"]
    assert call["function"]["name"] == "read_calendar"
    assert call["id"] in REQUESTS[3]
    told = choice(proxy, REQUESTS[3])["message"]["content"]
    assert told.startswith("The tools said: get_order_status: ")
    assert "on its way" in told
    assert told.endswith("read_calendar: free after 3 pm")


def test_text_streams_through(proxy: str) -> None:
    """A stream of text comes to its end."""
    events = send(proxy, REQUESTS[4]).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert len(events) > 20


def test_responses_are_governed_too(proxy: str) -> None:
    """The stream shows no call, and quotes what the model was told of it."""
    events = send(proxy, REQUESTS[5], "/v1/responses").split("\n\n")
    response = json.loads(events[-2].partition("data: ")[2])["response"]
    (item,) = response["output"]
    assert "Tool call blocked by policy deny-deleting/deny-deleting-tools:" in item["content"][0]["text"]
    assert "function_call" not in "".join(events)
