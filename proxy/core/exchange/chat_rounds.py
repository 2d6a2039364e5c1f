"""What the upstream is asked: the client's request as governed, and the continuations of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from proxy.core import jsontext
from proxy.core.batch.record import Round
from proxy.core.exchange.chat_rejoin import round_messages, round_text
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.turns import Form
from proxy.core.jsontext import Path
from proxy.core.protocol.chat import ChatRequest, advertise, closing_choice, digest_with, hide_tools, relaxed_choice
from proxy.errors import UpstreamError


@dataclass(frozen=True, slots=True)
class Question:
    """A request as the upstream gets it. `changed` says whether it differs from the client's own body."""

    body: bytes
    changed: bool

    def messages(self) -> list[bytes]:
        return jsontext.elements(self.body, ("messages",))

    def value(self) -> dict[str, Any]:
        for parse in (jsontext.parse, jsontext.parse_lenient):
            with suppress(ValueError):
                value = parse(self.body)
                return value if isinstance(value, dict) else {}
        return {}


def chat_form(request: ChatRequest) -> Form:
    """What records of a chat completion look like."""
    return Form(
        digest_of=lambda message: digest_with(request, message),
        text_of=round_text,
        stored=request.value.get("store") is True,
        wants_json=request.wants_json,
    )


def first_question(
    request: ChatRequest,
    judge: Judge,
    *,
    declarations: Sequence[tuple[str, bytes, bool]],
    messages: Sequence[bytes] | None,
) -> Question:
    """The client's request with hidden tools gone, proxy tools told of, and the history as the model is to see it
    (None: as it came). `declarations` are (name, declaration, only beside other tools). Raises RequestError."""
    changes: dict[Path, bytes | None] = {}
    if request.value:
        changes |= hide_tools(request, lambda name: judge.chain.hidden_by(name) is not None)
        changes |= _advertised(request, judge, declarations=declarations, changes=changes)
    if messages is not None:
        changes["messages",] = jsontext.array(messages)
    body = jsontext.edit(request.body, changes)
    return Question(body, bool(changes))


def _advertised(
    request: ChatRequest,
    judge: Judge,
    *,
    declarations: Sequence[tuple[str, bytes, bool]],
    changes: dict[Path, bytes | None],
) -> dict[Path, bytes | None]:
    tools = request.value.get("tools")
    has_tools = isinstance(tools, list) and bool(tools)
    new = [
        declared
        for name, declared, beside in declarations
        if (has_tools or not beside) and _may_be_told(name, request.declared, judge)
    ]
    if not new:
        return {}
    own = jsontext.elements(request.body, ("tools",)) if has_tools else []
    if ("tools",) in changes:
        left = changes["tools",]
        own = jsontext.elements(left) if left is not None else []
    added = dict(advertise(request, new, own))
    if added and changes.get(("tools",), b"") is None:  # every tool of the client's is hidden: its choice stands again
        added |= {
            (k,): jsontext.raw(request.body, (k,)) for k in ("tool_choice", "parallel_tool_calls") if (k,) in changes
        }
    return added


def _may_be_told(name: str, declared: Collection[str], judge: Judge) -> bool:
    return name not in declared and judge.chain.hidden_by(name) is None


def continuation(question: Question, rounds: Sequence[Round], *, closing: bool) -> bytes:
    """The request that goes on behind hidden rounds; `closing`: it is the last, and allows no calls. Raises
    UpstreamError where there was no request to go on with."""
    value = question.value()
    if not value:
        raise UpstreamError("The upstream answered with tool calls to what is no request.", kind="protocol")
    hidden = [message for r in rounds for message in round_messages(r)]
    changes: dict[Path, bytes | None] = {("messages",): jsontext.array([*question.messages(), *hidden])}
    changes |= relaxed_choice(value)
    if closing:
        changes = {k: v for k, v in changes.items() if k[0] not in ("tool_choice", "function_call")}
        changes |= closing_choice(value)
    if value.get("n") not in (None, 1):
        changes["n",] = b"1"
    return jsontext.edit(question.body, changes)
