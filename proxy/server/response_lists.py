"""Items that the upstream keeps (the input of a response, the items of a conversation), as the client may see them.

A call that was held has left a mark in the ledger; it is not shown, and neither is its result. A call without a mark
was surfaced, or belongs to a response that nobody has read yet: that one is judged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import Batch, Kind, ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Consult, Reply
from proxy.core.protocol.response_items import edited_call, read_call, read_result
from proxy.errors import StoreError
from proxy.server.consulting import settled
from proxy.server.remembering import Memory


class ItemsShown:
    """The items of one answer. `hosted` are tools that the upstream runs; `consult` answers what a judgement asks."""

    def __init__(
        self,
        memory: Memory,
        judge: Judge,
        hosted: Collection[str],
        *,
        consult: Callable[[Consult], Awaitable[Reply]],
    ) -> None:
        self._memory = memory
        self._hosted = hosted
        self._judge = judge
        self._consult = consult

    async def shown(self, raws: Sequence[bytes], values: Sequence[Any]) -> list[bytes]:
        """The items that the client may see, under the ids that it knows. Raises StoreError."""
        calls = [
            read_call(v, raw, hosted=self._hosted) if isinstance(v, dict) else None
            for v, raw in zip(values, raws, strict=True)
        ]
        answered = [read_result(v, hosted=self._hosted) if isinstance(v, dict) else None for v in values]
        ids = [str(c.call_id) for c in calls if c is not None] + [a[0] for a in answered if a is not None]
        marks = await self._marks(ids)
        unmarked = [call for call in calls if call is not None and call.call_id not in marks]
        marks |= {str(call.call_id): None for call in unmarked if await self._is_held(call)}
        found = []
        for raw, call, result in zip(raws, calls, answered, strict=True):
            call_id = str(call.call_id) if call is not None else result[0] if result is not None else None
            if call_id is None or call_id not in marks:
                found.append(raw)
            elif (given := marks[call_id]) is not None:
                found.append(_under(raw, call, given))
        return found

    async def _marks(self, ids: Sequence[str]) -> dict[str, str | None]:
        try:
            return await self._memory.given_ids(ids)
        except StoreError:
            if self._judge.could_hold:
                raise
            return {}

    async def _is_held(self, call: ToolCall) -> bool:
        """Whether a call is kept back by what the rules say now; a limit lets it pass. Raises StoreError."""
        judged = await settled(self._judge.judge(call, "", Batch(1, 0, (call.name,))), self._consult)
        return judged.held


def _under(raw: bytes, call: ToolCall | None, given: str) -> bytes:
    """An item under the id that the client knows its call by."""
    if call is not None:
        return raw if call.kind is Kind.APPROVAL else edited_call(raw, call, call_id=given)
    changes: dict[Path, bytes | None] = {("call_id",): jsontext.render(given)}
    return jsontext.edit(raw, changes)
