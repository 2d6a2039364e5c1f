"""Which kind an answer is, and how it reaches the client: its own bytes where nothing changes."""

from __future__ import annotations

import gzip
import json

import aiohttp
import pytest
import zstandard

from tests.e2e.chat import A, B, answer, body, call
from tests.e2e.sidecall import Sidecall
from tests.fake_upstream import Events, FakeUpstream, Whole

TOOLS = ("search", "delete", "cap")
ODD = (
    b'{ "id":"x", "odd" : 9007199254740993, "choices":[{"index":0,"message":{"role":"assistant","content":null,'
    b'"tool_calls":[%s],"vendor":{"b":1,"a":[]} },"finish_reason":"tool_calls","logprobs":null}],"usage":{"x":1.10}}'
)
_CALL = b'{"id":"call_%s","type":"function","function":{"arguments":"%s","name":"%s"}}'
SEARCH = _CALL % (b"A" * 24, b'{ \\"q\\":1.10}', b"search")
DELETE = _CALL % (b"B" * 24, b"{}", b"delete")
CAP = _CALL % (b"C" * 24, b'{\\"n\\": 99}', b"cap")


async def test_an_answer_without_changes_passes_byte_for_byte(here: Sidecall, upstream: FakeUpstream) -> None:
    """With its status and headers, and no word of ours."""
    made = Whole(ODD % SEARCH, 201, {"x-vendor": "1", "etag": "e"})
    upstream.script(made)
    got = await here.post(body(tools=TOOLS))
    assert (got.status, got.data) == (201, made.body)
    assert (got.headers["x-vendor"], got.headers["etag"]) == ("1", "e")
    assert "x-sidecall-request-id" not in got.headers
    assert not here.requests()[0]["changed"]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("changes", [False, True])
async def test_a_coded_answer(coding: str, changes: bool, here: Sidecall, upstream: FakeUpstream) -> None:
    """It passes as it came, coding and all, unless something of it changes."""
    plain = ODD % (DELETE + b"," + SEARCH if changes else SEARCH)
    coded = gzip.compress(plain) if coding == "gzip" else zstandard.ZstdCompressor().compress(plain)
    upstream.script(Whole(coded, headers={"content-encoding": coding}))
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.post(
            f"{here.url}/v1/chat/completions", json=body(tools=TOOLS), headers={"accept-encoding": "gzip, zstd, br"}
        ) as got,
    ):
        found = (got.headers.get("content-encoding"), await got.read())
    assert found == ((None, ODD % SEARCH) if changes else (coding, coded))
    assert "br" not in upstream.last.headers["accept-encoding"]


async def test_a_coding_that_cannot_be_read_never_passes(here: Sidecall, upstream: FakeUpstream) -> None:
    """What cannot be judged is refused."""
    upstream.script(Whole(b"anything", headers={"content-encoding": "br"}))
    assert (await here.post(body(tools=TOOLS))).status == 502


async def test_a_reader_of_events_is_told_by_the_answer(here: Sidecall, upstream: FakeUpstream) -> None:
    """A stream that nobody asked for is governed as one, and a whole answer to a request for a stream too."""
    made = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call(B, "delete")}]}}]})
    upstream.script(Events([made.join(("data: ", "\n\n")).encode()]))
    got = await here.post(body(tools=TOOLS))
    assert b"delete" not in got.data
    upstream.script(answer(call(A, "search"), call(B, "delete")))
    got = await here.post(body(tools=TOOLS, stream=True))
    assert got.message["tool_calls"] == [call(A, "search")]
