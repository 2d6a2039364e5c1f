"""What the ledger keeps of responses and conversations, and who finds it."""

from __future__ import annotations

import pytest

from proxy.core.batch.record import CallRecord, ResponseRecord, RoundResult
from proxy.core.calls import CallId, Owner, ToolCall
from proxy.errors import StoreError
from proxy.server.remembering import Memory
from proxy.stores.memory import MemoryStore
from tests.e2e.flaky import on
from tests.server.parts import Clock, Parts
from tests.stores.failing import FailingStore

CALL = ToolCall(CallId("call_1"), "delete", "{}")
RECORD = ResponseRecord(
    "resp_last",
    owed=(RoundResult(CALL, "no", True, True),),
    carried=('{"a":1.10}',),
    denied=2,
    calls=(CallRecord(CALL, "{}", Owner.CLIENT, "call_given", stage=0),),
    before='[{"n":1.10}]',
    usage='{"total_tokens":3}',
    said="enough",
    own="{}",
)


async def keep(memory: Memory, record: ResponseRecord = RECORD, conversation: str = "") -> None:
    ids = ["resp_shown", "resp_last", "resp_shown"]
    await memory.keep(record, ids=ids, conversation=conversation, calls={"call_1": "call_given", "call_2": None})


async def test_a_response_is_found_by_every_id_that_it_is_known_by() -> None:
    """Whole, as it was kept; under no other, and for no other tenant."""
    parts = Parts()
    memory = Memory(parts.ledger())
    await keep(memory)
    assert await memory.response("resp_shown") == await memory.response("resp_last") == RECORD
    assert await memory.response("resp_other") is None
    assert await memory.conversation("resp_last") is None
    assert await Memory(parts.ledger("tenant-two")).response("resp_last") is None


async def test_of_a_conversation_the_last_turn_is_kept() -> None:
    """Until the upstream has been told all that it owed."""
    memory = Memory(Parts().ledger())
    await keep(memory, conversation="conv_1")
    later = ResponseRecord("resp_later")
    await memory.keep(later, ids=["resp_later"], conversation="conv_1", calls={})
    assert await memory.conversation("conv_1") == later
    await memory.forget_conversation("conv_1")
    assert await memory.conversation("conv_1") is None
    assert await memory.response("resp_later") == later


async def test_calls_that_the_client_knows_otherwise_are_marked() -> None:
    """By the ids that it was given, or as calls that it never saw; of others there is nothing to know."""
    parts = Parts()
    memory = Memory(parts.ledger())
    await keep(memory)
    known = {"call_1": "call_given", "call_2": None}
    assert await memory.given_ids(["call_1", "call_2", "call_2", "call_3", ""]) == known
    assert await memory.given_ids([]) == {}
    assert await Memory(parts.ledger("tenant-two")).given_ids(["call_1"]) == {}


async def test_a_response_lives_from_its_last_use() -> None:
    """As long as its ledger says."""
    clock = Clock()
    parts = Parts(clock=clock, store=MemoryStore(clock=clock))
    memory = Memory(parts.ledger(ttl=100))
    await keep(memory)
    for _ in range(3):
        clock.now += 99
        assert await memory.response("resp_last") == RECORD
    assert await memory.response("resp_shown") is None, "under a name that nobody used"
    clock.now += 101
    assert await memory.response("resp_last") is None


async def test_a_long_id_is_an_id() -> None:
    """Whatever a server takes for one."""
    memory = Memory(Parts().ledger())
    await memory.keep(RECORD, ids=["x" * 5000], conversation="y" * 5000, calls={"z" * 5000: None})
    assert await memory.response("x" * 5000) == await memory.conversation("y" * 5000) == RECORD
    assert await memory.given_ids(["z" * 5000]) == {"z" * 5000: None}


@pytest.mark.parametrize("kind", ["response", "conversation", "hidden"])
async def test_all_of_it_is_kept_or_nothing(kind: str) -> None:
    """One write: what cannot be kept leaves no part of it."""
    parts = Parts()
    failing = FailingStore(parts.store, on("save", kind))
    memory = Memory(Parts(store=failing).ledger())
    with pytest.raises(StoreError):
        await keep(memory, conversation="conv_1")
    assert failing.saved == []
    assert await memory.response("resp_last") is None
