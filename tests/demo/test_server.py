"""The server of the demonstration's upstream."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from proxy.demo import server


@pytest.fixture
async def client(aiohttp_client: AiohttpClient) -> TestClient[Any, Any]:
    return await aiohttp_client(server.build_app())


async def test_models_are_listed(client: TestClient[Any, Any]) -> None:
    """One model is there."""
    answer = await client.get("/v1/models")
    assert [model["id"] for model in (await answer.json())["data"]] == ["demo"]


async def test_what_it_does_not_have_is_an_openai_error(client: TestClient[Any, Any]) -> None:
    """Unknown paths are 404, and a body that is no JSON object is 400, in OpenAI's shape."""
    for answer, status in (
        (await client.post("/v1/embeddings", json={}), 404),
        (await client.get("/v1/responses/resp_1"), 404),
        (await client.post("/v1/responses", json={"previous_response_id": "resp_1"}), 400),
        (await client.post("/v1/responses", data=b"no"), 400),
        (await client.post("/v1/chat/completions", data=b"no"), 400),
        (await client.post("/v1/chat/completions", data=b"[]"), 400),
    ):
        assert answer.status == status
        assert (await answer.json())["error"].keys() == {"message", "type", "param", "code"}


def test_it_ends_on_a_signal(unused_tcp_port: int) -> None:
    """The process listens where it was told to, and ends well on SIGTERM."""
    code = (
        "import socket, sys, threading; from proxy.demo import server\n"
        "def tell():\n"
        "    while socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))): pass\n"
        "    print('up', flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "server.run('127.0.0.1', int(sys.argv[1]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(unused_tcp_port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 0
