"""The webhook over TLS: reviews, health, a certificate that is renewed, and an orderly end."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.injector.serving import MAX_BODY, Certificate, Webhook, follow, listening, serve
from proxy.server.logs import Log
from tests.injector.recorded import NAMES, TEMPLATE, review
from tests.server.certificates import Authority, Files


@dataclass
class Served:
    """A webhook that listens, its log, and a client that trusts its authority."""

    url: str
    lines: list[dict[str, Any]]
    session: aiohttp.ClientSession
    trust: ssl.SSLContext

    async def post(self, body: bytes) -> tuple[int, bytes]:
        async with self.session.post(f"{self.url}/inject", data=io.BytesIO(body), ssl=self.trust) as answer:
            return answer.status, await answer.read()


def logged() -> tuple[Log, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    return Log(clock=lambda: 0.0, write=lambda line: lines.append(json.loads(line))), lines


def issued(folder: Path) -> tuple[Files, ssl.SSLContext, Authority]:
    """A certificate, a client's context that trusts it, and who signed it."""
    authority = Authority(folder)
    return authority.issue("127.0.0.1"), ssl.create_default_context(cafile=str(authority.file)), authority


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    files, trust, _ = issued(folder)
    certificate = Certificate(files.cert, files.key)
    log, lines = logged()
    app = Webhook(TEMPLATE, log).build_app()
    async with (
        listening(app, "127.0.0.1", 0, context=certificate.context) as port,
        aiohttp.ClientSession() as session,
    ):
        yield Served(f"https://127.0.0.1:{port}", lines, session, trust)


async def test_every_recorded_review_is_answered(tmp_path: Path) -> None:
    """With a line in the log that tells the pod and what became of it."""
    async with served(tmp_path) as found:
        for name in NAMES:
            status, body = await found.post(review(name))
            assert status == 200
            assert json.loads(body)["response"]["uid"] == json.loads(review(name))["request"]["uid"]
        assert [line["message"] for line in found.lines] == ["review"] * len(NAMES)
        outcomes = {line["outcome"] for line in found.lines}
        assert outcomes == {"injected", "left alone", "refused"}


async def test_what_is_no_review_gets_400(tmp_path: Path) -> None:
    """The API server then does as failurePolicy says."""
    async with served(tmp_path) as found:
        assert await found.post(b"{") == (400, b"the body is not JSON\n")
        assert found.lines[0]["level"] == "warning"


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Memory is bounded."""
    async with served(tmp_path) as found:
        status, _ = await found.post(b" " * (MAX_BODY + 1))
        assert status == 413


async def test_health_is_on_the_same_port(tmp_path: Path) -> None:
    """The kubelet asks over TLS too."""
    async with served(tmp_path) as found:
        for path in ("livez", "readyz"):
            async with found.session.get(f"{found.url}/{path}", ssl=found.trust) as answer:
                assert answer.status == 200


async def test_nothing_is_served_without_tls(tmp_path: Path) -> None:
    """Nor with a version of it that is out of use."""
    async with served(tmp_path) as found:
        with pytest.raises(aiohttp.ClientError):
            await found.session.get(found.url.replace("https", "http") + "/livez")
        found.trust.maximum_version = ssl.TLSVersion.TLSv1_2
        async with found.session.get(f"{found.url}/livez", ssl=found.trust) as answer:
            assert answer.status == 200


async def test_a_renewed_certificate_is_served_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    """Without a restart; what cannot be used is told once a look."""
    files, trust, authority = issued(tmp_path)
    certificate = Certificate(files.cert, files.key)
    log, lines = logged()

    async def until(message: str) -> None:
        while not any(line["message"].startswith(message) for line in lines):
            await asyncio.sleep(0.01)

    app = Webhook(TEMPLATE, log).build_app()
    async with listening(app, "127.0.0.1", 0, context=certificate.context) as port, asyncio.timeout(30):

        async def serial() -> object:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            found = writer.get_extra_info("peercert")["serialNumber"]
            writer.close()
            return found

        first = await serial()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(certificate, log, every=0.01))
            key = files.key.read_bytes()
            Authority(tmp_path).issue("127.0.0.1")
            files.key.write_bytes(key)  # a certificate, and the key of another
            await until("the certificate cannot be used")
            assert await serial() == first
            authority.issue("127.0.0.1")
            await until("certificate loaded")
            following.cancel()
        assert await serial() != first


async def test_it_serves_until_sigterm(tmp_path: Path) -> None:
    """And ends in order."""
    files, _, _ = issued(tmp_path)
    certificate = Certificate(files.cert, files.key)
    log, lines = logged()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(serve(TEMPLATE, certificate, log, host="127.0.0.1", port=0))
        while not lines:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
    assert [line["message"] for line in lines] == ["serving", "ended"]


def test_a_certificate_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """One that is not there, and one with the key of another."""
    files, _, _ = issued(tmp_path)
    with pytest.raises(FileNotFoundError):
        Certificate(files.cert, tmp_path / "missing")
    with pytest.raises(ssl.SSLError):
        Certificate(files.cert, Authority(tmp_path).issue("other").key)
