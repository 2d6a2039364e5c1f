"""Answers in one piece: their own bytes where nothing changes, and where something does, that alone."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import UpstreamError
from proxy.server.chat_whole import parsed_answer
from tests.e2e.chat import USAGE, A, B, C, answer, answers, body, call, choice, said, user
from tests.e2e.sidecall import Sidecall
from tests.fake_upstream import FakeUpstream, Whole

TOOLS = ("search", "delete", "cap")
ODD = (
    b'{ "id":"x", "odd" : 9007199254740993, "choices":[{"index":0,"message":{"role":"assistant","content":null,'
    b'"tool_calls":[%s],"vendor":{"b":1,"a":[]} },"finish_reason":"tool_calls","logprobs":null}],"usage":{"x":1.10}}'
)
_CALL = b'{"id":"call_%s","type":"function","function":{"arguments":"%s","name":"%s"}}'
SEARCH = _CALL % (b"A" * 24, b'{ \\"q\\":1.10}', b"search")
DELETE = _CALL % (b"B" * 24, b"{}", b"delete")
CAP = _CALL % (b"C" * 24, b'{\\"n\\": 99}', b"cap")


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
