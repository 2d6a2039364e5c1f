"""Items that a client adds to a conversation by themselves, which the upstream's next answer builds on.

What answers a call goes to the upstream under the upstream's id. A result or an approval for a call that the client was
never shown is not its to give, and is refused.
"""

from __future__ import annotations

from proxy.core import jsontext
from proxy.core.batch.record import ResponseRecord
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import Sent
from proxy.core.exchange.strays import answered_ids, strays
from proxy.core.history import EntryKind
from proxy.core.protocol.response_request import read_history
from proxy.errors import RequestError
from proxy.server.remembering import Memory


async def added_items(
    body: bytes, items: list[object], conversation: str, *, memory: Memory, judge: Judge
) -> bytes | None:
    """The `items` of a body as the upstream is to have them; None where they may go as they came. Raises RequestError
    and StoreError."""
    raws = jsontext.elements(body, ("items",))
    sent = Sent(raws, items, read_history(items))
    before = await memory.conversation(conversation)
    marks = await memory.given_ids(answered_ids(sent))
    known = before.calls if before else ()
    held = {call_id for call_id, given in marks.items() if given is None}
    held |= {str(call.call.call_id) for call in known if call.stage is None}
    held -= {call.given_id for call in known if call.stage is not None}
    if found := strays(sent, held, judge=judge):
        entry = sent.entries[found[0]]
        raise RequestError(f"items[{entry.index}] answers a call that was not given out: {entry.call_id!r}.")
    left = _under_own_ids(sent, before)
    return None if left == raws else jsontext.array(left)


def _under_own_ids(sent: Sent, before: ResponseRecord | None) -> list[bytes]:
    own = {call.given_id: str(call.call.call_id) for call in (before.calls if before else ()) if call.given_id}
    left = list(sent.raws)
    for entry in sent.entries:
        name = own.get(entry.call_id, entry.call_id)
        if entry.kind is EntryKind.RESULT and name != entry.call_id:
            left[entry.index] = jsontext.edit(left[entry.index], {("call_id",): jsontext.render(name)})
    return left
