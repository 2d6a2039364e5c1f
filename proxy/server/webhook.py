"""Telling a webhook of each new approval: signed, tried a few times, and never in the way of a request.

What is told is what the admin API lists. The signature is an HMAC-SHA256 of the body under the configured secret, in
hex, in `x-sidecall-signature: sha256=…`. A webhook that does not answer loses what it is told; the list of pending
approvals has it all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence

import aiohttp
from yarl import URL

from proxy.server.logs import Log
from proxy.server.tasks import TaskOwner
from proxy.tools.http import open_session

SIGNATURE = "x-sidecall-signature"
_SECONDS = 10.0
_AT_ONCE = 8
_MOST = 1000
_DELAYS = (1.0, 5.0)


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Webhook:
    """`url` and `secret` are read anew each time. `delays` are the seconds before each further try."""

    def __init__(
        self,
        url: Callable[[], str],
        secret: Callable[[], str],
        *,
        tasks: TaskOwner,
        log: Log,
        delays: Sequence[float] = _DELAYS,
    ) -> None:
        self._url = url
        self._secret = secret
        self._tasks = tasks
        self._log = log
        self._delays = tuple(delays)
        self._session: aiohttp.ClientSession | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._under_way = 0

    def tell(self, about: str, body: bytes) -> None:
        """Send a body in the background; `about` names it in the log, and tells it from others."""
        if self._under_way >= _MOST:
            self._log.event("warning", "the webhook was not told", about=about, reason="too much is to be told")
            return
        self._under_way += 1
        self._tasks.start(self._deliver(about, body), name="tell a webhook")

    async def _deliver(self, about: str, body: bytes) -> None:
        problem = ""
        try:
            for delay in (0.0, *self._delays):
                if delay:
                    await asyncio.sleep(delay)
                async with self._places:
                    problem = await self._problem(about, body)
                if not problem:
                    return
            self._log.event("warning", "the webhook was not told", about=about, reason=problem)
        finally:
            self._under_way -= 1

    async def _problem(self, about: str, body: bytes) -> str:
        """Send it once; why it did not get there, empty when it did."""
        if self._session is None:
            self._session = open_session()
        headers = {
            "content-type": "application/json",
            "idempotency-key": about,
            SIGNATURE: signature(self._secret(), body),
        }
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._session.post(
                    URL(self._url(), encoded=True), data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                return "" if 200 <= answer.status < 300 else f"HTTP status {answer.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
