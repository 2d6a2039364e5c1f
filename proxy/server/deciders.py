"""Those who decide elsewhere: services that speak Open Policy Agent's data API, and Python objects in this process.

Whatever goes wrong with them is one answer, `Unanswered`, and a line in the log; what follows is the rule's. Services
are asked over connections that are kept, without redirects and cookies, and their answers are bounded. Functions that
are not async run in threads, of which there are only so many. People are asked elsewhere (`approvaldesk.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import aiohttp
from yarl import URL

from proxy import __version__
from proxy.core.jsontext import Json, nests_deeper, parse_exact, render
from proxy.core.policy.consults import (
    AskCode,
    AskCodeOfResult,
    AskService,
    CallAsSeen,
    Course,
    NewText,
    Ruling,
    Unanswered,
)
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.rulings import read_ruling, service_input
from proxy.core.policy.verdicts import RuleName
from proxy.middleware import Allow, Answer, Block, Call, Rewrite
from proxy.server.logs import Log
from proxy.tools.code import Code, ask_code
from proxy.tools.python import is_async
from proxy.tools.spec import ToolRunError

_MOST_ANSWER = 1 << 20
_NESTING = 128
_CONNECTIONS = 100
_THREADS = 64
# Servers commonly close a connection that was idle for five seconds: ours must be gone before that.
_KEEP_ALIVE = 4.0

T = TypeVar("T")


class _MisfitError(Exception):
    """What came is no decision; the message names no secret."""


class Deciders:
    """They live as long as the process."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._session: aiohttp.ClientSession | None = None
        self._threads = asyncio.Semaphore(_THREADS)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _unanswered(self, rule: RuleName, reason: str) -> Unanswered:
        self._log.event("warning", "a decision could not be had", policy=rule.policy, rule=rule.rule, reason=reason)
        return Unanswered(reason)

    # -- services

    async def ask_service(self, asked: AskService) -> Ruling | Unanswered:
        """What a service decides."""
        body = render({"input": service_input(asked.call)})
        try:
            async with asyncio.timeout(asked.seconds):
                status, data = await self._post(asked.url, body)
            return read_ruling(_result(status, data))
        except TimeoutError:
            return self._unanswered(asked.rule, "the service did not answer in time")
        except (_MisfitError, EvaluationError) as error:
            return self._unanswered(asked.rule, str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._unanswered(asked.rule, f"the service cannot be asked: {type(error).__name__}")

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of a service's answer. A connection that was kept may be gone: that is tried once more, since
        a question changes nothing."""
        try:
            return await self._post_once(url, body)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return await self._post_once(url, body)

    async def _post_once(self, url: str, body: bytes) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", "accept": "application/json"}
        target = URL(url, encoded=True)
        async with self._opened().post(target, data=body, headers=headers, allow_redirects=False) as answer:
            pieces, count = [], 0
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                count += len(piece)
                if count > _MOST_ANSWER:
                    raise _MisfitError(f"the service's answer is longer than {_MOST_ANSWER} bytes")
            return answer.status, b"".join(pieces)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"user-agent": f"sidecall/{__version__}", "accept-encoding": "identity"},
            )
        return self._session

    # -- Python objects

    async def ask_of_call(self, code: Code | None, asked: AskCode) -> Ruling | Unanswered:
        """What a Python object decides of a call."""
        if code is None or code.on_call is None:
            return self._unanswered(asked.rule, "there is no such object")
        return await self._ask(code, code.on_call, [shown(asked.call)], rule=asked.rule, read=_ruling)

    async def ask_of_result(self, code: Code | None, asked: AskCodeOfResult) -> NewText | Unanswered:
        """What a Python object makes of a result."""
        if code is None or code.on_result is None:
            return self._unanswered(asked.rule, "there is no such object")
        given = [shown(asked.call), asked.result]
        return await self._ask(code, code.on_result, given, rule=asked.rule, read=_new_text)

    async def _ask(
        self,
        code: Code,
        function: Callable[..., object],
        given: list[object],
        *,
        rule: RuleName,
        read: Callable[[object], T],
    ) -> T | Unanswered:
        ended = _nothing
        if not is_async(function):
            await self._threads.acquire()
            ended = self._threads.release
        try:
            return read(await ask_code(f"middleware {code.target}", function, *given, ended=ended))
        except ToolRunError as error:
            return self._unanswered(rule, error.reason)
        except _MisfitError as error:
            return self._unanswered(rule, str(error))


def _nothing() -> None:
    return None


def _result(status: int, data: bytes) -> Json:
    """The `result` of an answer. Where a policy gives none it is undefined, which is no decision."""
    if status != 200:
        raise _MisfitError(f"the service answered with HTTP status {status}")
    try:
        if nests_deeper(data, _NESTING):
            raise _MisfitError("the service's answer nests too deep")
        reading = parse_exact(data.decode())
    except ValueError:
        raise _MisfitError("the service's answer is no JSON") from None
    if not isinstance(reading.value, dict) or not reading.unambiguous:
        raise _MisfitError("the service's answer is no plain JSON object")
    if "result" not in reading.value:
        raise _MisfitError("the service's answer has no result: the decision is undefined")
    return reading.value["result"]


def shown(call: CallAsSeen) -> Call:
    """A call as a Python object sees it: a copy, so that nothing that it does changes the call."""
    facts = call.facts
    return Call(
        name=call.tool,
        call_id=call.call_id,
        args=None if call.arguments is None else {key: _copied(value) for key, value in call.arguments.items()},
        raw_args=call.raw,
        owner=str(call.owner),
        declared=call.declared,
        namespace=call.namespace,
        model=facts.model,
        api=str(facts.api),
        client=facts.client,
        tenant=str(facts.tenant),
        user=facts.user,
        metadata={key: _copied(value) for key, value in facts.metadata.items()},
        headers=dict(facts.headers),
    )


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


def _ruling(value: object) -> Ruling:
    match value:
        case None:
            return Ruling(Course.NEXT)
        case Allow():
            return Ruling(Course.ALLOW)
        case Block(message=str() as message):
            return Ruling(Course.BLOCK, message)
        case Answer(content=str() as content):
            return Ruling(Course.ANSWER, content=content)
        case Rewrite(args=Mapping() as arguments) if all(isinstance(key, str) for key in arguments):
            return Ruling(Course.REWRITE, arguments=dict(arguments))
        case _:
            raise _MisfitError(f"it returned {type(value).__name__}, or one with parts that do not fit")


def _new_text(value: object) -> NewText:
    if value is not None and not isinstance(value, str):
        raise _MisfitError(f"it returned {type(value).__name__}, where a text or None was expected")
    return NewText(value)
