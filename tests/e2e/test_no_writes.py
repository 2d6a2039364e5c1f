"""A request that holds nothing writes nothing, whatever it carries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.chat import A, B, answer, body, call, follow, said, stream
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

TOOLS = ("search", "delete")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_request_that_holds_nothing_writes_nothing(
    streams: bool, upstream: FakeUpstream, tmp_path: Path
) -> None:
    """Once the key that tells callers apart is there, the file stays as it is; a held call changes it."""
    made, path = stream if streams else answer, tmp_path / "state.db"
    no = policy(tmp_path, rule("no", "delete", block={"message": "no"}))
    tools = [upstream.tool("count")]
    async with sidecall(upstream.url, state={"url": f"sqlite:{path}"}, policies=[no], tools=tools) as here:
        upstream.script(made(text="hi"))
        await here.post(body(tools=TOOLS, stream=streams))
        sent = body(*follow(said(call(A, "search", q="x")), "found"), tools=TOOLS, stream=streams)
        upstream.script(made(text="well"))
        await here.post(sent)
        with closing(sqlite3.connect(path)) as database:

            def version() -> int:
                found: int = database.execute("PRAGMA data_version").fetchone()[0]
                return found

            before = version()
            upstream.script(made(text="hi"), made(call(A, "search", q="x")), made(text="well"))
            for one in (body(tools=TOOLS, stream=streams), body(tools=TOOLS, stream=streams), sent):
                assert (await here.post(one)).status == 200
            assert version() == before
            upstream.script(made(call(A, "search", q="x"), call(B, "delete")))
            await here.post(body(tools=TOOLS, stream=streams))
            assert version() != before
