"""What the upstream is asked for a response: the client's request as governed, and the continuations of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import Round
from proxy.core.exchange.approvals import Approvals
from proxy.core.exchange.judging import Conclusion, Judge, Judged, is_blocked
from proxy.core.exchange.response_rejoin import round_items, round_results
from proxy.core.exchange.turns import ChoiceTurn
from proxy.core.jsontext import Path
from proxy.core.protocol.response_items import sent_back
from proxy.core.protocol.response_request import (
    ResponseRequest,
    advertise,
    closing_choice,
    hide_tools,
    raw_items,
    relaxed_choice,
)
from proxy.errors import UpstreamError

Layout = Sequence[bytes | int]
"""The output items of one answer; a number stands for a call of its batch."""


@dataclass(frozen=True, slots=True)
class ResponseQuestion:
    """A request as the upstream gets it, and its input items. `changed` says whether it differs from the client's own
    body; `in_conversation`: the upstream takes what was said into a conversation."""

    body: bytes
    changed: bool
    value: dict[str, Any]
    items: Sequence[bytes]
    in_conversation: bool


def first_question(
    request: ResponseRequest,
    judge: Judge,
    approvals: Approvals,
    *,
    declarations: Sequence[tuple[str, bytes, bool]],
    items: Sequence[bytes] | None,
    previous: str | None,
) -> ResponseQuestion:
    """The client's request with hidden tools gone, proxy tools told of, hosted servers asking for approval, and the
    input as the model is to see it (None: as it came). `previous` is the upstream's id of the response before (None:
    as the client names it; empty: there is none that the upstream knows). Raises RequestError."""
    changes: dict[Path, bytes | None] = {}
    if request.value:
        changes |= hide_tools(request, lambda name, space: judge.chain.hidden_by(name, space) is not None)
        changes |= _tools(request, judge, approvals, declarations=declarations, changes=changes)
    if approvals.labels and isinstance(request.value.get("input"), list):
        own = raw_items(request) if items is None else items
        asking = [approvals.asking_item(item) for item in own]
        items = asking if asking != list(own) else items
    if items is not None:
        changes["input",] = jsontext.array(items)
    if previous is not None:
        changes["previous_response_id",] = jsontext.render(previous) if previous else None
    body = jsontext.edit(request.body, changes)
    value = _value(body) if changes else request.value
    own = raw_items(request) if items is None and request.value else items or []
    return ResponseQuestion(body, bool(changes), value, own, bool(request.conversation))


def _tools(
    request: ResponseRequest,
    judge: Judge,
    approvals: Approvals,
    *,
    declarations: Sequence[tuple[str, bytes, bool]],
    changes: dict[Path, bytes | None],
) -> dict[Path, bytes | None]:
    """The change to the list of tools, behind what was hidden."""
    tools = request.value.get("tools")
    has_tools = isinstance(tools, list) and bool(tools)
    own = jsontext.elements(request.body, ("tools",)) if has_tools else []
    if ("tools",) in changes:
        left = changes["tools",]
        own = jsontext.elements(left) if left is not None else []
    asking = [approvals.asking(raw) for raw in own]
    new = [
        declared
        for name, declared, beside in declarations
        if (has_tools or not beside) and name not in request.declared and judge.chain.hidden_by(name) is None
    ]
    added = dict(advertise(request, new, asking)) if new else {}
    if not added and asking != own:
        return {("tools",): jsontext.array(asking)}
    if added and changes.get(("tools",), b"") is None:  # every tool of the client's is hidden: its choice stands again
        kept = (k for k in ("tool_choice", "parallel_tool_calls") if (k,) in changes)
        added |= {(k,): jsontext.raw(request.body, (k,)) for k in kept}
    return added


def _value(body: bytes) -> dict[str, Any]:
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = jsontext.parse_lenient(body)
    return value if isinstance(value, dict) else {}


def continuation(question: ResponseQuestion, rounds: Sequence[Round], *, closing: bool) -> bytes:
    """The request that goes on behind hidden rounds; `closing`: it is the last, and allows no calls. A conversation has
    what came before, and is given the last results alone. Raises UpstreamError where there was no request."""
    if not question.value:
        raise UpstreamError("The upstream answered with tool calls to what is no request.", kind="protocol")
    if question.in_conversation:
        items = round_results(rounds[-1])
    else:
        items = [*question.items, *(item for hidden in rounds for item in round_items(hidden))]
    changes: dict[Path, bytes | None] = {("input",): jsontext.array(items)}
    changes |= closing_choice(question.value) if closing else relaxed_choice(question.value)
    return jsontext.edit(question.body, changes)


def round_message(layout: Layout, batch: Sequence[Judged], *, stored: bool) -> str:
    """A round's output items as they go back into a history."""
    found = [item if isinstance(item, bytes) else batch[item].raw.encode() for item in layout]
    return _text([sent_back(raw, stored=stored) for raw in found])


def batch_message(layout: Layout, *, stored: bool) -> str:
    """The same of a batch that is split: its calls are recorded one by one."""
    return _text(
        [jsontext.render(item) if isinstance(item, int) else sent_back(item, stored=stored) for item in layout]
    )


def _text(items: Sequence[bytes | None]) -> str:
    return jsontext.array([item for item in items if item is not None]).decode("utf-8", "replace")


def shown_before(turn: ChoiceTurn) -> list[bytes]:
    """The items of a turn's hidden rounds that the client is shown all the same: all but the calls."""
    calls = {str(r.call.call_id) for hidden in turn.rounds for r in hidden.results}
    found = []
    for hidden in turn.rounds:
        message = hidden.message.encode()
        for raw, item in zip(jsontext.elements(message), jsontext.parse_own(message), strict=True):
            name = item.get("call_id") or (item.get("id") if item.get("type") == "mcp_approval_request" else None)
            if name not in calls:
                found.append(raw)
    return found


def denied_after(turn: ChoiceTurn, batch: Sequence[Judged], conclusion: Conclusion) -> int:
    """How many calls in a row were blocked when a turn ended."""
    denied = turn.denied
    for judged, _ in zip(batch, conclusion.stages, strict=True):
        denied = denied + 1 if is_blocked(judged) else 0
    return denied
