"""What an older release wrote into the ledger is put back by this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.batch.record import VERSION
from proxy.stores.base import Write
from proxy.stores.sqlite import SqliteStore
from tests.e2e.chat import A, B, C, D, answer, blocked, body, call, follow, history, result, said, user
from tests.e2e.sidecall import sidecall
from tests.fake_upstream import FakeUpstream

FORMS = sorted(Path(__file__).parent.glob("ledger-form-*.json"))
"""What each form of records looked like in a store: a mixed batch behind a hidden round, and a turn that ended."""


def test_every_form_has_a_recording() -> None:
    """Whoever changes the form adds one of the form before."""
    assert [path.stem for path in FORMS] == [f"ledger-form-{number}" for number in range(1, VERSION + 1)]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
async def test_a_batch_of_an_older_release_is_put_back(path: Path, upstream: FakeUpstream, tmp_path: Path) -> None:
    """Calls, results, rounds and arguments, as the release that wrote them would have; its callers are known again."""
    recorded: dict[str, Any] = json.loads(path.read_text())
    store = SqliteStore(tmp_path / "state.db")
    assert await store.save([Write(key, value.encode("latin-1"), 3600.0) for key, value in recorded["entries"]])
    await store.close()
    state = {"url": f"sqlite:{tmp_path / 'state.db'}"}
    async with sidecall(upstream.url, state=state, tools=[upstream.tool("count", "counted")]) as here:
        upstream.always(answer(text="done"))
        await here.post(body(*follow(recorded["surfaced"], "found"), tools=("search", "delete")))
        surfaced = history(upstream.last)
        await here.post(body(user("other"), recorded["ended"], user("more"), tools=("search", "delete")))
        ended = history(upstream.last)
    batch = said(call(A, "delete", id=7), call(B, "search"), call(C, "count", n=1), text="Let me see.")
    batch["tool_calls"][1]["function"]["arguments"] = '{"n":10}'
    assert surfaced == [
        user(),
        said(call(D, "delete", id=1)),
        result(D, blocked("no", "no")),
        batch,
        result(A, blocked("no", "no")),
        result(B, "found"),
        result(C, "counted"),
    ]
    assert [message["role"] for message in ended] == ["user", "assistant", "tool", "assistant", "user"]
    assert ended[2]["content"] == blocked("no", "no")
