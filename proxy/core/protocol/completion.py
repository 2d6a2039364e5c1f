"""Chat Completions, the answer: where its calls stand, and the changes that governing makes to it.

As with requests, an answer is looked at as a value and changed as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import Kind, ToolCall
from proxy.core.jsontext import Path
from proxy.core.protocol.chat import calls_of, content_text
from proxy.errors import UpstreamError

CUT_SHORT = frozenset({"length", "content_filter"})


@dataclass(frozen=True, slots=True)
class Placed:
    """A call and the bytes of its entry (`position` in `tool_calls`; None: it is the `function_call`)."""

    call: ToolCall
    raw: bytes
    position: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of an answer. `at` is its place in the list, `index` its number."""

    at: int
    index: int
    message: dict[str, Any]
    raw: bytes
    finish: str | None
    placed: tuple[Placed, ...]

    @property
    def text(self) -> str:
        return content_text(self.message.get("content"))


class UnreadableError(ValueError):
    """An answer that is no plain JSON, and that holds something that could be a tool call."""


def read_answer(body: bytes) -> dict[str, Any] | None:
    """A body as an answer with choices; None where it is none. Raises UnreadableError."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        value = read_odd(body)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list):
        if holds_call(value):
            raise UnreadableError("it is no completion")
        return None
    if any(_has_odd_calls(choice) for choice in choices):
        raise UnreadableError("its tool calls are no list")
    if any(holds_call(value.get(place)) for place in _NO_PLACES):
        raise UnreadableError("it has calls beside its choices")
    return value  # type: ignore[no-any-return]  # an object, since it has choices


_NO_PLACES = ("output", "response", "item", "message", "delta")
"""Members of other answers than completions, in which those have their calls."""


def _has_odd_calls(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return holds_call(choice)
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return bool(calls) and not isinstance(calls, list)


def read_odd(body: bytes) -> Any:
    """An answer that strict JSON is not. NaN and half surrogate pairs are in use; a byte-order mark or text
    behind the value mean that two readers may see two things, so then no call may be in it; nor may what no reader at
    all takes for one value have the sign of one."""
    try:
        value, rest = jsontext.parse_first(body)
    except jsontext.NestingError as error:
        raise UnreadableError("it nests too deep to be read") from error
    except ValueError:
        value, rest = None, "all of it"
    if rest and has_sign(body):
        raise UnreadableError("it is no JSON, and has the sign of a call")
    try:
        whole = jsontext.raw(body)
    except ValueError:
        whole = None
    if whole is not None and body.strip(b" \t\n\r") == whole:
        return value
    if holds_call(value):
        raise UnreadableError("it is no plain JSON")
    return None


_DECIDES = frozenset(
    {"type", "id", "name", "namespace", "function", "custom", "tool_calls", "function_call", "call_id", "arguments"}
    | {"input", "output", "action", "actions", "operation", "execution", "server_label", "item_id", "output_index"}
    | {"choices", "message", "delta", "index", "finish_reason", "item", "response", "status"}
)
"""Members of answers that say what a call is, whose, and where it stands."""
_ESCAPED_NAME = re.compile(rb"\\u00(?:5[fF]|[67])")


def reads_two_ways(data: bytes) -> bool:
    """Whether an answer, or an event of one, that has the sign of a call says something of it twice, and in two ways.
    What has none is not looked through: this is as good as free for text."""
    signed = b"_call" in data or b"call_id" in data or b'"arguments"' in data or b"mcp_approval" in data
    signed = signed or (b"\\u00" in data and _ESCAPED_NAME.search(data) is not None)
    return signed and jsontext.reads_two_ways(data, _DECIDES)


_SIGN = re.compile(r'"tool_calls"|\w_call"|"mcp_approval_request"')
_ESCAPED = re.compile(r"\\u00([2-7][0-9a-fA-F])")


def has_sign(body: bytes) -> bool:
    """Whether a text that nobody can read as JSON names what only calls have, however its letters are written."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), jsontext.as_text(body))
    return _SIGN.search(text) is not None


def holds_call(value: Any) -> bool:
    """Whether something in a value could be taken for a tool call."""
    if isinstance(value, list):
        return any(map(holds_call, value))
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if value.get("tool_calls") or value.get("function_call") or (isinstance(kind, str) and kind.endswith("_call")):
        return True
    return any(map(holds_call, value.values()))


def read_choices(body: bytes, value: Mapping[str, Any]) -> list[Choice]:
    """The choices of an answer, with their calls."""
    raws = jsontext.elements(body, ("choices",))
    return [
        _choice(at, choice, raw)
        for at, (choice, raw) in enumerate(zip(value["choices"], raws, strict=True))
        if isinstance(choice, dict)
    ]


def _choice(at: int, choice: dict[str, Any], raw: bytes) -> Choice:
    message, index, finish = choice.get("message"), choice.get("index"), choice.get("finish_reason")
    message = message if isinstance(message, dict) else {}
    placed = tuple(place_calls(message, jsontext.raw(raw, ("message",)) or b"{}"))
    return Choice(
        at,
        index if isinstance(index, int) else at,
        message,
        raw,
        finish if isinstance(finish, str) else None,
        placed,
    )


def place_calls(message: dict[str, Any], raw: bytes) -> Iterator[Placed]:
    """The calls of an assistant's message with the bytes of their entries."""
    if not message.get("tool_calls") and not isinstance(message.get("function_call"), dict):
        return

    def text_of(path: Path) -> str:
        return (jsontext.raw(raw, path) or b"").decode("utf-8", "replace")

    for entry in message.get("tool_calls") or []:
        if (
            isinstance(entry, dict)
            and isinstance(entry.get("custom"), dict)
            and isinstance(entry.get("function"), dict)
        ):
            raise UpstreamError("A call of the answer is both a function and a custom tool.", kind="protocol")
    entries = jsontext.elements(raw, ("tool_calls",))
    calls = list(calls_of(message, text_of))
    for position, call in enumerate(calls):
        if call.kind is Kind.LEGACY:
            yield Placed(call, jsontext.raw(raw, ("function_call",)) or b"{}", None)
        else:
            yield Placed(call, entries[position], position)


def _is_of_two_kinds(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(kind), dict) for kind in ("custom", "function"))


def edited_call(raw: bytes, call: ToolCall, *, call_id: str | None = None, text: str | None = None) -> bytes:
    """The bytes of a call's entry with another id, other arguments, or both; what is no object has no place."""
    if not raw.startswith(b"{"):
        return raw
    changes: dict[Path, bytes | None] = {}
    if call_id is not None and call_id != call.call_id:
        places = [place for place in _ID_PLACES if jsontext.raw(raw, place) is not None]
        changes |= {place: jsontext.render(call_id) for place in places or _ID_PLACES[:1]}
    if text is not None:
        bare = call.unwrapped and _is_json(text)
        changes |= _with_text(raw, _PLACES[call.kind], text.encode() if bare else jsontext.render(text))
    return jsontext.edit(raw, changes)


def _is_json(text: str) -> bool:
    try:
        jsontext.parse(text)
    except ValueError:
        return False
    return True


def _with_text(raw: bytes, place: Path, text: bytes) -> dict[Path, bytes | None]:
    outer, inner = place[:-1], place[-1:]
    found = jsontext.raw(raw, outer)
    if found is None or found.startswith(b"{"):
        return {place: text}
    return {outer: jsontext.edit(b"{}", {inner: text})}


_ID_PLACES: tuple[Path, ...] = (("id",), ("function", "id"))
_PLACES: dict[Kind, Path] = {
    Kind.FUNCTION: ("function", "arguments"),
    Kind.CUSTOM: ("custom", "input"),
    Kind.LEGACY: ("arguments",),
}


def with_calls(choice: Choice, kept: Sequence[bytes | None]) -> bytes:
    """The choice with some of its calls changed or gone: `kept` are the bytes of each call's entry, None: it goes.

    A `function_call` that mirrors an entry of `tool_calls` goes when anything changes.
    """
    changes: dict[Path, bytes | None] = {}
    entries = [k for p, k in zip(choice.placed, kept, strict=True) if p.position is not None and k is not None]
    legacy = [k for p, k in zip(choice.placed, kept, strict=True) if p.position is None]
    if choice.message.get("tool_calls"):
        changes["message", "tool_calls"] = jsontext.array(entries) if entries else None
    if isinstance(choice.message.get("function_call"), dict):
        changes["message", "function_call"] = legacy[0] if legacy else None
    if None in kept and jsontext.raw(choice.raw, ("logprobs",)) not in (None, b"null"):
        changes["logprobs",] = b"null"  # they spell what goes
    return jsontext.edit(choice.raw, changes)


def with_text(raw: bytes, text: str, *, finish: str | None = None) -> bytes:
    """A choice with other content, and another finish reason where one is given."""
    changes: dict[Path, bytes | None] = {("message", "content"): jsontext.render(text)}
    if finish is not None:
        changes["finish_reason",] = jsontext.render(finish)
    return jsontext.edit(raw, changes)


def history_message(raw: bytes, message: dict[str, Any], *, calls: bool) -> str:
    """An answer's message as it goes back into a history: without members that are null or empty lists (content may
    be), and without its calls unless they are asked for."""
    gone = [key for key, value in message.items() if (value is None or value == []) and key != "content"]
    if not calls:
        gone += [key for key in ("tool_calls", "function_call") if key in message]
    changes: dict[Path, bytes | None] = {(key,): None for key in gone}
    if not message.get("role"):
        changes["role",] = b'"assistant"'
    return jsontext.edit(raw, changes).decode("utf-8", "replace")


def result_message(call: ToolCall, text: str) -> bytes:
    """The result of a call, as a message."""
    if call.kind is Kind.LEGACY:
        return jsontext.render({"role": "function", "name": call.name, "content": text})
    return jsontext.render({"role": "tool", "tool_call_id": call.call_id, "content": text})


def added_usage(total: Any, more: Any) -> Any:
    """Two usages added up, details too; what is no number stays as it is in the later one."""
    if isinstance(total, dict) and isinstance(more, dict):
        return {**total, **{key: added_usage(total.get(key), value) for key, value in more.items()}}
    if _is_number(total) and _is_number(more):
        return total + more
    return total if more is None else more


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
