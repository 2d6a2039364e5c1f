"""Answers in one piece: their own bytes where nothing changes, and where something does, that alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard

from proxy.errors import UpstreamError
from proxy.server.answering import parsed_answer
from tests.e2e.chat import USAGE, A, B, C, answer, answers, body, call, choice, said, user
from tests.e2e.sidecall import Sidecall, policy, rule, sidecall
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


@pytest.fixture
async def here(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Sidecall]:
    path = policy(
        tmp_path,
        rule("no", "delete", block={"message": "no"}),
        rule("cap", "cap", rewrite={"clamp": {"n": {"max": 10}}}),
        rule("pong", "ping", answer={"content": "pong"}),
    )
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(sidecall(upstream.url, policies=[path]))


async def test_an_answer_without_changes_passes_byte_for_byte(here: Sidecall, upstream: FakeUpstream) -> None:
    """With its status and headers, and no word of ours."""
    made = Whole(ODD % SEARCH, 201, {"x-vendor": "1", "etag": "e"})
    upstream.script(made)
    got = await here.post(body(tools=TOOLS))
    assert (got.status, got.data) == (201, made.body)
    assert (got.headers["x-vendor"], got.headers["etag"]) == ("1", "e")
    assert "x-sidecall-request-id" not in got.headers
    assert not here.requests()[0]["changed"]


async def test_only_what_changes_changes(here: Sidecall, upstream: FakeUpstream) -> None:
    """A held call leaves, arguments are rewritten; unknown fields, order and numbers stay as they were spelled."""
    upstream.script(Whole(ODD % b", ".join((DELETE, SEARCH, CAP)), 200, {"etag": "e", "x-vendor": "1"}))
    got = await here.post(body(tools=TOOLS))
    assert got.data == (ODD % b",".join((SEARCH, CAP.replace(b'{\\"n\\": 99}', b'{\\"n\\":10}'))))
    assert "etag" not in got.headers
    assert got.headers["x-vendor"] == "1"
    assert got.headers["content-length"] == str(len(got.data))
    assert here.requests()[0]["changed"]
    assert here.requests()[0]["request_id"] == got.headers["x-sidecall-request-id"]


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


async def test_rounds_are_one_answer(here: Sidecall, upstream: FakeUpstream) -> None:
    """The first one's id, time and headers, the last one's content and finish reason, usage added up."""
    details = {"prompt_tokens_details": {"cached_tokens": 3}}
    first = answer(call(A, "delete"), text="One.", usage=USAGE | details)
    first.headers["x-round"] = "1"
    last = answer(text="Two.", finish="length", id="other", created=1, usage=USAGE | details | {"odd": "x"})
    last.headers["x-round"] = "2"
    upstream.script(first, last)
    got = await here.post(body(tools=TOOLS))
    assert (got.json["id"], got.json["created"]) == (first.body["id"], first.body["created"])
    assert got.json["choices"][0]["finish_reason"] == "length"
    assert got.message["content"] == "One.\n\nTwo."
    assert got.json["usage"] == {
        **{key: 2 * value for key, value in USAGE.items()},
        "prompt_tokens_details": {"cached_tokens": 6},
        "odd": "x",
    }
    assert got.headers["x-round"] == "1"


async def test_a_json_answer_has_the_last_rounds_text_alone(here: Sidecall, upstream: FakeUpstream) -> None:
    """A client that parses the content gets one JSON text; the rounds come back all the same."""
    upstream.script(answer(call(A, "ping"), text='{"draft":1}'), answer(text='{"final":1}'), answer(text="{}"))
    form = {"response_format": {"type": "json_object"}}
    got = await here.post(body(tools=TOOLS, **form))
    assert got.message["content"] == '{"final":1}'
    await here.post(body(user(), said(text='{"final":1}'), user("more"), tools=TOOLS, **form))
    assert [m["content"] for m in upstream.last.messages] == [
        "hello",
        '{"draft":1}',
        "pong",
        '{"final":1}',
        "more",
    ]


async def test_choices_end_in_ways_of_their_own(here: Sidecall, upstream: FakeUpstream) -> None:
    """One passes, one is split, one goes on; each keeps its index."""
    upstream.script(
        answers(
            choice(text="plain"),
            choice(call(A, "search"), call(B, "delete"), index=1),
            choice(call(C, "delete"), index=2),
        ),
        answer(text="gone on"),
    )
    got = await here.post(body(tools=TOOLS, n=3))
    found = [(c["index"], c["message"].get("content"), c["finish_reason"]) for c in got.json["choices"]]
    assert found == [(0, "plain", "stop"), (1, None, "tool_calls"), (2, "gone on", "stop")]
    assert got.json["choices"][1]["message"]["tool_calls"] == [call(A, "search")]
    assert "n" not in {k for k, v in upstream.last.json.items() if v != 1}


async def test_a_reader_of_events_is_told_by_the_answer(here: Sidecall, upstream: FakeUpstream) -> None:
    """A stream that nobody asked for is governed as one, and a whole answer to a request for a stream too."""
    made = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call(B, "delete")}]}}]})
    upstream.script(Events([made.join(("data: ", "\n\n")).encode()]))
    got = await here.post(body(tools=TOOLS))
    assert b"delete" not in got.data
    upstream.script(answer(call(A, "search"), call(B, "delete")))
    got = await here.post(body(tools=TOOLS, stream=True))
    assert got.message["tool_calls"] == [call(A, "search")]


@pytest.mark.parametrize(
    "odd", [Whole(b"<html/>", headers={"content-type": "text/html"}), Whole({"choices": []}), Whole({"object": "x"})]
)
async def test_a_continuation_that_is_no_completion(odd: Whole, here: Sidecall, upstream: FakeUpstream) -> None:
    """It ends the request with an error: there is nothing to show."""
    upstream.script(answer(call(A, "delete")), odd)
    got = await here.post(body(tools=TOOLS))
    assert (got.status, got.error["type"]) == (502, "upstream_error")


async def test_a_choice_without_a_message_passes(here: Sidecall, upstream: FakeUpstream) -> None:
    """What holds no call is none of our business, whatever its form."""
    odd: list[list[Any]] = [[], [{}], ["odd"], [{"index": 0, "text": "x"}], [{"message": None}]]
    for choices in (*odd, [{"message": {"tool_calls": []}}]):
        made: Any = {"choices": choices}
        upstream.script(Whole(made))
        got = await here.post(body(tools=TOOLS))
        assert got.json == made


@pytest.mark.parametrize("calls", [{}, "x", ["x"], [{}], [{"function": "x"}], [{"function": {"name": 7}}]])
async def test_odd_calls_are_calls(calls: Any, here: Sidecall, upstream: FakeUpstream) -> None:
    """What stands where calls stand never breaks the answer: it is judged, or passes."""
    upstream.script(
        answers({"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "stop"})
    )
    upstream.always(answer(text="done"))
    assert (await here.post(body(tools=TOOLS))).status in (200, 502)


def test_what_is_an_answer() -> None:
    """An object with choices; anything else is nobody's answer, and what could hide a call is refused."""
    assert parsed_answer(b'{"choices":[]}', 128) == {"choices": []}
    assert parsed_answer(b'{"choices":[{"odd":NaN}]}', 128) is not None
    for other in (b"", b"[]", b'{"choices":{}}', b"not json"):
        assert parsed_answer(other, 128) is None
    for refused in (
        b'{"choices":[{"message":{"tool_calls":[{}]}}]} x',
        b'{"choices":' + b"[" * 200 + b"]" * 200 + b"}",
    ):
        with pytest.raises(UpstreamError):
            parsed_answer(refused, 128)
