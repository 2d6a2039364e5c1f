"""A governed request on its way up: what is read of it, what is changed, and what its history brings back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.e2e.chat import A, B, answer, body, call
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

ODD = (
    b'{ "model":"gpt-test", "temperature": 1.10 ,"seed":9007199254740993,"messages":[ {"role":"user",'
    b'"content":"\\u00e9","x":1} ],"tools":[{"type":"function","function":{"name":"search"}}] }'
)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule("hidden", "secret_*", hide={}),
        rule("no", "delete", block={"message": "no"}),
        rule("redact", "search", result={"redact": [{"pattern": "[0-9]{4}", "with": "****"}]}),
        rule("late", "send", defer={}),
    )


async def test_a_request_without_changes_goes_up_byte_for_byte(rules: str, upstream: FakeUpstream) -> None:
    """Also one that came in a coding, with it; and never with an accept-encoding that nobody here can read."""
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        for data, headers in (
            (ODD, {}),
            (gzip.compress(ODD), {"content-encoding": "gzip"}),
            (zstandard.ZstdCompressor().compress(ODD), {"content-encoding": "zstd"}),
        ):
            assert (await here.post(data, **headers)).message["content"] == "ok"
            assert upstream.last.headers.get("content-encoding", "") == headers.get("content-encoding", "")
            assert upstream.last.body == data
        assert not any(line["changed"] for line in here.requests())


async def test_what_the_model_is_told_of_the_caller(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Rules see headers, model, user and metadata of the request."""
    when = 'headers["x-team"] == "a" && user == "u1" && metadata.k == "v" && model == "gpt-test" && api == "chat"'
    path = policy(tmp_path, {**rule("only", "search", block={"message": "found"}), "when": when})
    upstream.script(answer(call(A, "search")), answer(text="blocked"), answer(call(B, "search")))
    async with sidecall(upstream.url, policies=[path]) as here:
        more: Any = {"safety_identifier": "u1", "metadata": {"k": "v"}}
        assert (await here.post(body(tools=("search",), **more), **{"X-Team": "a"})).message["content"] == "blocked"
        got = await here.post(body(tools=("search",)), **{"x-team": "b"})
        assert got.message.get("content") != "blocked"


async def test_answers_to_other_methods_pass(rules: str, upstream: FakeUpstream) -> None:
    """A path that is governed answers whatever the upstream says to a method that makes nothing."""
    upstream.always(answer(text="ok"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        for method in ("HEAD", "OPTIONS", "DELETE"):
            async with here.session.request(method, f"{here.url}/v1/chat/completions") as got:
                assert got.status == 200


async def test_a_prefix_before_the_path(rules: str, upstream: FakeUpstream) -> None:
    """Azure's spelling is governed too, with its query."""
    upstream.script(answer(call(A, "search"), call(B, "delete")))
    async with sidecall(upstream.url, policies=[rules]) as here:
        url = f"{here.url}/openai/deployments/x/chat/completions?api-version=1"
        async with here.session.post(url, data=json.dumps(body(tools=("search",)))) as got:
            made = (await got.json())["choices"][0]["message"]["tool_calls"]
    assert made == [call(A, "search")]
    assert upstream.last.path == "/openai/deployments/x/chat/completions"


async def test_a_request_that_is_too_large(rules: str, upstream: FakeUpstream) -> None:
    """413 for what comes, also when it is small on the wire; 415 for a coding that nobody here reads."""
    async with sidecall(upstream.url, policies=[rules], listen={"maxBodyBytes": "1Ki"}) as here:
        large = b'{"messages":[],"x":"' + b"x" * 5000 + b'"}'
        assert (await here.post(large)).status == 413
        assert (await here.post(gzip.compress(large), **{"content-encoding": "gzip"})).status == 413
        assert (await here.post(b"{}", **{"content-encoding": "br"})).status == 415
    assert not upstream.requests
