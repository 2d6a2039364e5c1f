"""Chat Completions, the request: what it says, and the changes that governing makes to it.

A request is looked at as a value and changed as bytes (`jsontext.edit`), so that what no rule touches goes
upstream as the client wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.arguments import MAX_NESTING
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import Changes, Json
from proxy.core.protocol.assembly import entry_id
from proxy.core.protocol.bodies import insists_on_hidden, objects, read_body, user_of

MAX_TOOLS = 128


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request body and what is read from it. `value` is empty where the body is not JSON: then it is the
    upstream's to judge, and nothing of it is changed."""

    body: bytes
    value: dict[str, Any]
    declared: dict[str, Json] = field(default_factory=dict)

    @property
    def messages(self) -> list[Any]:
        messages = self.value.get("messages")
        return messages if isinstance(messages, list) else []

    @property
    def choices(self) -> int:
        n = self.value.get("n")
        return n if isinstance(n, int) else 1

    @property
    def wants_json(self) -> bool:
        form = self.value.get("response_format")
        return isinstance(form, dict) and form.get("type") in ("json_object", "json_schema")

    @property
    def user(self) -> str:
        return user_of(self.value)

    def identity(self) -> bytes:
        """What a conversation's digest begins with, beside its messages."""
        names = ("safety_identifier", "prompt_cache_key", "user")
        return jsontext.render([self.value.get(name) or None for name in names])


def read_request(body: bytes, nesting: int) -> ChatRequest:
    """A request body, read. Raises RequestError for one that two readers could read differently."""
    value = read_body(body, nesting, history="messages")
    return ChatRequest(body, {}) if value is None else ChatRequest(body, value, dict(declared_tools(value)))


def declared_tools(value: dict[str, Any]) -> Iterator[tuple[str, Json]]:
    """The names of a request's tools and functions, with their parameter schemas (None: it has none)."""
    for tool in objects(value.get("tools")):
        for part in (tool.get("function"), tool.get("custom")):
            if isinstance(part, dict) and isinstance(part.get("name"), str):
                yield part["name"], part.get("parameters")
    for function in objects(value.get("functions")):
        if isinstance(function.get("name"), str):
            yield function["name"], function.get("parameters")


# ---------------------------------------------------------------- tools of a request


def hide_tools(request: ChatRequest, hidden: Callable[[str], bool]) -> dict[jsontext.Path, bytes | None]:
    """The changes that take hidden tools out. Raises RequestError where the request insists on one of them."""
    changes: dict[jsontext.Path, bytes | None] = {}
    value = request.value
    for choice in (value.get("tool_choice"), value.get("function_call")):
        if (name := _named(choice)) and hidden(name):
            raise insists_on_hidden(name)
    for key in ("tools", "functions"):
        tools = value.get(key)
        if not isinstance(tools, list) or not any(_is_hidden(t, hidden) for t in tools):
            continue
        kept = [
            raw
            for raw, t in zip(jsontext.elements(request.body, (key,)), tools, strict=True)
            if not _is_hidden(t, hidden)
        ]
        changes[(key,)] = jsontext.array(kept) if kept else None
        if not kept:
            gone = ("tool_choice", "parallel_tool_calls") if key == "tools" else ("function_call",)
            changes.update({(name,): None for name in gone if name in value})
    changes.update(_narrowed_choice(request, hidden) if ("tool_choice",) not in changes else {})
    return changes


def _narrowed_choice(request: ChatRequest, hidden: Callable[[str], bool]) -> dict[jsontext.Path, bytes | None]:
    allowed = request.value.get("tool_choice")
    allowed = allowed.get("allowed_tools") if isinstance(allowed, dict) else None
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or not any(_is_hidden(t, hidden) for t in tools):
        return {}
    path = ("tool_choice", "allowed_tools", "tools")
    kept = [
        raw for raw, t in zip(jsontext.elements(request.body, path), tools, strict=True) if not _is_hidden(t, hidden)
    ]
    return {path: jsontext.array(kept)} if kept else {("tool_choice",): b'"none"'}


def _is_hidden(tool: Any, hidden: Callable[[str], bool]) -> bool:
    """Whether a rule hides a tool; what has no name is nobody's to hide."""
    name = _tool_name(tool)
    return bool(name) and hidden(name)


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return ""
    for part in (tool.get("function"), tool.get("custom"), tool):
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            return str(part["name"])
    return ""


def _named(choice: Any) -> str:
    return _tool_name(choice) if isinstance(choice, dict) else ""


def advertise(request: ChatRequest, declarations: Sequence[bytes], tools: Sequence[bytes]) -> Changes:
    """The change that adds proxy tools behind the request's own (`tools`, as they stand after hiding)."""
    room = MAX_TOOLS - len(tools)
    if not declarations or room <= 0 or request.value.get("tool_choice") == "none" or "functions" in request.value:
        return {}
    return {("tools",): jsontext.array([*tools, *declarations[:room]])}


def declaration(name: str, description: str, parameters: Json) -> bytes:
    """A tool as a request declares it."""
    function: dict[str, Any] = {"name": name, **({"description": description} if description else {})}
    return jsontext.render({"type": "function", "function": function | {"parameters": parameters}})


def relaxed_choice(value: dict[str, Any]) -> Changes:
    """For a continuation: a choice that forces a call becomes `auto`."""
    choice, legacy = value.get("tool_choice"), value.get("function_call")
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") != "allowed_tools"):
        return {("tool_choice",): b'"auto"'}
    if isinstance(choice, dict) and isinstance(allowed := choice.get("allowed_tools"), dict):
        return {("tool_choice", "allowed_tools", "mode"): b'"auto"'} if allowed.get("mode") == "required" else {}
    return {("function_call",): b'"auto"'} if isinstance(legacy, dict) else {}


def closing_choice(value: dict[str, Any]) -> Changes:
    """For the last call of a turn: no more calls, where the request has tools."""
    if value.get("tools"):
        return {("tool_choice",): b'"none"'}
    return {("function_call",): b'"none"'} if value.get("functions") else {}


# ---------------------------------------------------------------- the conversation of a request


def read_history(messages: Sequence[Any]) -> list[Entry]:
    """The messages as entries, one each."""
    return [_entry(index, m if isinstance(m, dict) else {}) for index, m in enumerate(messages)]


def _entry(index: int, message: dict[str, Any]) -> Entry:
    role, text = message.get("role"), content_text(message.get("content"))
    if role == "assistant":
        calls = tuple(calls_of(message))
        return Entry(index, EntryKind.CALLS if calls else EntryKind.TEXT, text, calls)
    if role == "tool":
        return Entry(index, EntryKind.RESULT, text, call_id=_text(message.get("tool_call_id")))
    if role == "function":
        return Entry(index, EntryKind.RESULT, text, name=_text(message.get("name")))
    return Entry(index, EntryKind.USER if role == "user" else EntryKind.OTHER, text)


TextOf = Callable[[jsontext.Path], str]
"""Gives the JSON text of a value by path: for arguments that came as an object, whose numbers keep their spelling."""


def _below(text_of: TextOf | None, *steps: str | int) -> TextOf | None:
    return None if text_of is None else lambda path: text_of((*steps, *path))


def calls_of(message: dict[str, Any], text_of: TextOf | None = None) -> Iterator[ToolCall]:
    """The calls of an assistant's message: its `tool_calls`, and a `function_call` that mirrors none of them."""
    seen: list[ToolCall] = []
    entries = message.get("tool_calls")
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        seen.append(read_call(entry, _below(text_of, "tool_calls", position)))
    yield from seen
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        call = _read_function(legacy, CallId(""), Kind.LEGACY, text_of=_below(text_of, "function_call"))
        if not any((call.name, call.text) == (c.name, c.text) for c in seen):
            yield call


def read_call(entry: Any, text_of: TextOf | None = None) -> ToolCall:
    """One entry of `tool_calls`. An entry that is no call at all is a call without a name."""
    if not isinstance(entry, dict):
        return ToolCall(CallId(""), "", "")
    call_id = CallId(entry_id(entry))
    custom, function = entry.get("custom"), entry.get("function")
    if isinstance(custom, dict):
        return ToolCall(call_id, _name(custom), _text(custom.get("input")), Kind.CUSTOM)
    function = function if isinstance(function, dict) else {}
    return _read_function(function, call_id, Kind.FUNCTION, text_of=_below(text_of, "function"))


def _read_function(function: dict[str, Any], call_id: CallId, kind: Kind, *, text_of: TextOf | None) -> ToolCall:
    arguments, name = function.get("arguments", ""), _name(function)
    if isinstance(arguments, str):
        return ToolCall(call_id, name, arguments, kind)
    shown = text_of(("arguments",)) if text_of else jsontext.render_text(arguments)
    return ToolCall(call_id, name, shown, kind, unwrapped=True)


def _name(part: dict[str, Any]) -> str:
    """A call's name; what is no text is none, and an empty name meets every rule that can hold."""
    name = part.get("name")
    return name if isinstance(name, str) else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else jsontext.render_text(value)


def content_text(content: Any) -> str:
    """A message's content as text: a string, or its text parts one after another."""
    if isinstance(content, str):
        return content
    return "".join(p["text"] for p in objects(content) if isinstance(p.get("text"), str))


def digests(request: ChatRequest, upto: int | None = None) -> list[str]:
    """For each message, a digest of the whole conversation up to it, as a client may keep it in any form."""
    state = hashlib.sha256(request.identity())
    found = []
    for message in request.messages[:upto]:
        state.update(essence(message if isinstance(message, dict) else {}))
        found.append(state.copy().hexdigest())
    return found


def digest_with(request: ChatRequest, message: dict[str, Any]) -> str:
    """The digest of the whole conversation with one more message, an answer."""
    state = hashlib.sha256(request.identity())
    for known in request.messages:
        state.update(essence(known if isinstance(known, dict) else {}))
    state.update(essence(message))
    return state.hexdigest()


def essence(message: dict[str, Any]) -> bytes:
    """What stays of a message whatever framework keeps it: absent, null and empty content alike, one text part as
    its string, calls by id, name and meaning of arguments."""
    content = message.get("content") or ""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict) and "text" in content[0]:
        content = content[0]["text"]
    calls = [[c.call_id, c.name, meaning(c.text)] for c in calls_of(message)]
    parts = [message.get("role"), content, calls, message.get("tool_call_id")]
    return jsontext.render(parts) + b"\n"


def meaning(text: str) -> Any:
    """Arguments to compare: what their JSON says, or their text where they are none or nest beyond reason."""
    try:
        if jsontext.nests_deeper(text.encode(), MAX_NESTING):
            return text
        return jsontext.render_text(_sorted(jsontext.parse(text or "{}")))
    except ValueError:
        return text


def _sorted(value: Any) -> Any:
    """The value with its keys in order, and numbers as one type: some clients write 1 for 1.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
