"""What the ledger keeps of responses and conversations that the upstream remembers.

A response is found by its id, by the one that the client knows and by the upstream's own; of a conversation the last
turn alone is kept. Calls that were held leave a mark, so that lists of what the upstream keeps are read without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proxy.core.batch.record import ResponseRecord, render_record
from proxy.core.jsontext import parse_own, render
from proxy.server.ledger import Ledger, read_entry
from proxy.stores.base import Write

_RESPONSE, _CONVERSATION, _CALL = "response", "conversation", "hidden"


class Memory:
    """The stored responses of one tenant."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def response(self, response_id: str) -> ResponseRecord | None:
        """What there is to know of a response. Raises StoreError."""
        return await self._recall(_RESPONSE, response_id)

    async def conversation(self, conversation_id: str) -> ResponseRecord | None:
        """What there is to know of the last turn of a conversation. Raises StoreError."""
        return await self._recall(_CONVERSATION, conversation_id)

    async def _recall(self, kind: str, name: str) -> ResponseRecord | None:
        key = await self._ledger.key(kind, name)
        found = (await self._ledger.store.load([key])).get(key)
        if found is None:
            return None
        await self._ledger.store.touch([key], self._ledger.ttl)
        return read_entry(found, ResponseRecord)

    async def keep(
        self, record: ResponseRecord, *, ids: Iterable[str], conversation: str, calls: Mapping[str, str | None]
    ) -> None:
        """Keep a response under its ids, and as the last of its conversation. `calls` are the calls that the client
        does not know as the upstream does: the ids that it was given, None for those that it never saw. Raises
        StoreError."""
        value, ttl = render_record(record), self._ledger.ttl
        keys = [await self._ledger.key(_RESPONSE, name) for name in dict.fromkeys(ids)]
        if conversation:
            keys.append(await self._ledger.key(_CONVERSATION, conversation))
        writes = [Write(key, value, ttl) for key in keys]
        for call_id, given in calls.items():
            writes.append(Write(await self._ledger.key(_CALL, call_id), render(given), ttl))
        await self._ledger.save(writes)

    async def forget_conversation(self, conversation: str) -> None:
        """The upstream has been told all that its last turn owed. Raises StoreError."""
        await self._ledger.save([Write(await self._ledger.key(_CONVERSATION, conversation), None, 0.0)])

    async def given_ids(self, call_ids: Sequence[str]) -> dict[str, str | None]:
        """Of calls that the upstream keeps, those that the client knows otherwise, or not at all (None). Raises
        StoreError."""
        keys = {await self._ledger.key(_CALL, call_id): call_id for call_id in dict.fromkeys(call_ids) if call_id}
        found = await self._ledger.store.load(list(keys)) if keys else {}
        return {keys[key]: parse_own(stored.value) for key, stored in found.items()}
