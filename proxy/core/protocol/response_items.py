"""The items of the Responses API: which of them are calls, which are results, and the changes that governing makes.

An item is looked at as a value and changed as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import Path
from proxy.core.protocol.chat import content_text

_RUN_UPSTREAM = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_NO_CALLS = frozenset(
    {"message", "reasoning", "program", "mcp_list_tools", "mcp_approval_response", "compaction", "item_reference"}
    | {"additional_tools"}
)
"""Types whose items are known to be no calls, beside results."""
_KINDS = {"function_call": Kind.FUNCTION, "custom_tool_call": Kind.CUSTOM, "mcp_approval_request": Kind.APPROVAL}
_TEXTS = {Kind.FUNCTION: "arguments", Kind.CUSTOM: "input", Kind.APPROVAL: "arguments"}
_ACTIONS = {
    "shell_call": ("action",),
    "local_shell_call": ("action",),
    "computer_call": ("action",),
    "apply_patch_call": ("operation",),
    "tool_search_call": ("arguments",),
}
_ANY_ACTION = ("action", "operation", "arguments", "input")
_IN_NEED_OF_ID = ("local_shell_call", "computer_call")
"""Calls that no input may have without their own id."""
_NEEDS_NO_CALL_ID = ("shell", "local_shell", "apply_patch", "computer")
_OUTPUT = re.compile(r"(\w+_call)_output|tool_search_output|mcp_approval_response")
_BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)
"""A screen of one white pixel: the output of a computer has room for nothing else."""


def is_call_type(kind: str) -> bool:
    """Whether items of a type may be calls that somebody other than the upstream runs."""
    return kind in _KINDS or (kind.endswith("_call") and kind not in _RUN_UPSTREAM)


def is_known_type(kind: str) -> bool:
    """Whether items of a type are known to be no calls of anybody but the upstream."""
    return kind in _RUN_UPSTREAM or kind in _NO_CALLS or kind.endswith("_output")


def call_type(item: dict[str, Any], *, whole: bool = True) -> str:
    """The type of call that an item is read as; empty where it is none. One of no type that anybody knows, which has
    what a function's call has, is one: some client takes it for that. `whole`: all of it is there."""
    kind = item.get("type")
    if isinstance(kind, str):
        if is_call_type(kind):
            return kind
        if is_known_type(kind):
            return ""
    return "function_call" if _looks_like_call(item, whole=whole) else ""


def _looks_like_call(item: dict[str, Any], *, whole: bool = True) -> bool:
    if not _has_any(item, "call_id", "name"):
        return False
    return not whole or (item.get("output") is None and _has_any(item, "arguments", "input"))


def _has_any(item: dict[str, Any], *keys: str) -> bool:
    return any(item.get(key) is not None for key in keys)


def read_call(item: dict[str, Any], raw: bytes, *, hosted: Collection[str] = ()) -> ToolCall | None:
    """An item as a call; None where it is none. `hosted` are tools that the upstream runs for this request."""
    kind = call_type(item)
    if kind and kind not in _KINDS:
        return _read_action(item, raw, kind, hosted=hosted)
    return read_as(item, raw, kind) if kind else None


def read_as(item: dict[str, Any], raw: bytes, kind: str) -> ToolCall:
    """An item as a call of a type that has its name and its text in places of their own."""
    form = _KINDS[kind]
    call_id = item.get("id") if form is Kind.APPROVAL else item.get("call_id")
    space = item.get("server_label") if form is Kind.APPROVAL else item.get("namespace")
    name, found = _name(item), CallId(_text(call_id))
    if item.get("type") != kind and item.get("arguments") is not None and item.get("input") is not None:
        both = jsontext.array([_shown(raw, key, item[key]).encode() for key in ("arguments", "input")]).decode()
        return ToolCall(found, name, both, form, unwrapped=True, namespace=_text(space))
    place = _text_place(item, form)
    given = item.get(place, "")
    if form is Kind.CUSTOM or isinstance(given, str):
        return ToolCall(found, name, _text(given), form, namespace=_text(space))
    return ToolCall(found, name, _shown(raw, place, given), form, unwrapped=True, namespace=_text(space))


def _text_place(item: dict[str, Any], form: Kind) -> str:
    """The member that has a call's text."""
    elsewhere = form is Kind.FUNCTION and item.get("arguments") is None and item.get("input") is not None
    return "input" if elsewhere else _TEXTS[form]


def _name(item: dict[str, Any]) -> str:
    """A call's name; what is no text is none, and an empty name meets every rule that can hold."""
    name = item.get("name")
    return name if isinstance(name, str) else ""


def _read_action(item: dict[str, Any], raw: bytes, kind: str, *, hosted: Collection[str]) -> ToolCall | None:
    """A call whose type names the tool; of a type that nobody knows yet, its name does, if it has one."""
    tool, named = kind.removesuffix("_call"), kind not in _ACTIONS and item.get("name") is not None
    if _runs_upstream(item, tool, hosted):
        return None
    call_id = item.get("call_id")
    if call_id is None and tool not in _NEEDS_NO_CALL_ID and not (named and _looks_like_call(item)):
        return None  # nobody could answer it
    if call_id is None and tool == "local_shell":
        call_id = item.get("id")
    text, found = _action_text(item, raw), CallId(_text(call_id))
    if not named:
        return ToolCall(found, tool, text, Kind.ACTION, unwrapped=True)
    place = _action_place(item)
    said = item[place] if place else None
    text = "{}" if isinstance(said, str) and not said.strip() else text
    return ToolCall(found, _name(item), text, Kind.ACTION, unwrapped=not isinstance(said, str), namespace=kind)


def _runs_upstream(item: dict[str, Any], tool: str, hosted: Collection[str]) -> bool:
    execution = item.get("execution") if tool == "tool_search" else None
    return execution == "server" or (tool in hosted and execution != "client")


def _action_text(item: dict[str, Any], raw: bytes) -> str:
    """What a tool of the client's is to do, as an object. A list of `actions` is a member of it, so that nothing that
    would be done stands beside what rules see."""
    place = _action_place(item)
    text = "{}" if place is None else _shown(raw, place, item[place])
    if item.get("actions") is None:
        return text
    actions = _shown(raw, "actions", item["actions"]).encode()
    return jsontext.edit(text.encode() if _is_object(item, place) else b"{}", {("actions",): actions}).decode()


def _action_place(item: dict[str, Any]) -> str | None:
    """The member of an item that says what is to be done; of a kind that nobody knows yet, the first that could."""
    places = _ACTIONS.get(item["type"], _ANY_ACTION)
    return next((place for place in places if item.get(place) is not None), None)


def _is_object(item: dict[str, Any], place: str | None) -> bool:
    return place is not None and isinstance(item[place], dict)


def read_record(item: dict[str, Any]) -> ToolCall | None:
    """A call of a hosted MCP server that the upstream has run."""
    if item.get("type") != "mcp_call":
        return None
    space, arguments = _text(item.get("server_label")), _text(item.get("arguments"))
    return ToolCall(CallId(_text(item.get("id"))), _text(item.get("name")), arguments, namespace=space)


def _shown(raw: bytes, key: str, value: Any) -> str:
    """A member's own text, whose numbers keep their spelling."""
    found = jsontext.raw(raw, (key,))
    return jsontext.render_text(value) if found is None else found.decode("utf-8", "replace")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else jsontext.render_text(value)


# ---------------------------------------------------------------- changed items


def edited_call(raw: bytes, call: ToolCall, *, call_id: str | None = None, text: str | None = None) -> bytes:
    """The bytes of a call with another id, other arguments, or both. An approval is asked for under one id, for the
    arguments that it names: it stays as it is."""
    changes: dict[Path, bytes | None] = {}
    if call.kind is Kind.APPROVAL:
        return raw
    if call_id is not None and call_id != call.call_id:
        changes["call_id",] = jsontext.render(call_id)
    if text is not None and text != call.text:
        changes |= _with_action(raw, text) if call.kind is Kind.ACTION else _with_text(raw, call, text)
    return jsontext.edit(raw, changes) if changes else raw


def _with_text(raw: bytes, call: ToolCall, text: str) -> dict[Path, bytes | None]:
    bare = call.unwrapped and _is_json(text)
    return {(_text_place(_parsed(raw), call.kind),): text.encode() if bare else jsontext.render(text)}


def _with_action(raw: bytes, text: str) -> dict[Path, bytes | None]:
    item, new = _parsed(raw), text.encode()
    place, changes = _action_place(item), dict[Path, bytes | None]()
    if item.get("actions") is not None:
        listed = jsontext.raw(new, ("actions",))
        changes["actions",] = listed
        new = jsontext.edit(new, {("actions",): None}) if listed is not None else new
        if listed is not None and not _is_object(item, place):
            return changes
    return changes | {(place or _ACTIONS.get(item["type"], _ANY_ACTION)[0],): new}


def _is_json(text: str) -> bool:
    try:
        jsontext.parse(text)
    except ValueError:
        return False
    return True


def _parsed(raw: bytes) -> Any:
    try:
        return jsontext.parse(raw)
    except ValueError:  # as lenient as the reader that let it in
        return jsontext.parse_lenient(raw)


def sent_back(raw: bytes, *, stored: bool) -> bytes | None:
    """An output item as an item of a later input; None where it may not go back. What was not stored is known to nobody
    by its id: a call goes without, where its kind may, and reasoning needs its encrypted content."""
    item = None if stored else _parsed(raw)
    if not isinstance(item, dict):
        return raw
    kind = item.get("type")
    if kind == "reasoning":
        return raw if item.get("encrypted_content") else None
    if kind == "mcp_call" or (_is_call(item) and kind not in _IN_NEED_OF_ID and item.get("call_id")):
        return jsontext.edit(raw, {("id",): None}) if "id" in item else raw
    return raw


def _is_call(item: dict[str, Any]) -> bool:
    return bool(call_type(item))


# ---------------------------------------------------------------- results


def result_items(call: ToolCall, text: str, *, blocked: bool) -> list[bytes]:
    """The result of a call, as the item that its kind asks for; where that has no room for words, a note behind it."""
    match call.kind:
        case Kind.APPROVAL:
            answer = {"type": "mcp_approval_response", "approval_request_id": call.call_id, "approve": not blocked}
            return [jsontext.render(answer | ({"reason": text} if blocked and text else {}))]
        case Kind.CUSTOM:
            return [_output("custom_tool_call_output", call, output=text)]
        case Kind.ACTION:
            return _action_result(call, text, blocked=blocked)
        case _:
            return [_output("function_call_output", call, output=text)]


def _action_result(call: ToolCall, text: str, *, blocked: bool) -> list[bytes]:
    if call.namespace:  # its type, which nobody knows
        return [_output(f"{call.namespace}_output", call, output=text)]
    match call.name:
        case "shell":
            outcome = {"type": "exit", "exit_code": int(blocked)}
            out, error = ("", text) if blocked else (text, "")
            return [_output("shell_call_output", call, output=[{"stdout": out, "stderr": error, "outcome": outcome}])]
        case "local_shell":
            own = {"type": "local_shell_call_output", "id": call.call_id, "output": text}
            return [jsontext.render(own)]
        case "apply_patch":
            status = "failed" if blocked else "completed"
            return [_output("apply_patch_call_output", call, status=status, output=text)]
        case "computer":
            screen = {"type": "computer_screenshot", "image_url": _BLANK}
            return [_output("computer_call_output", call, output=screen), _note(text)]
        case "tool_search":
            found = _output("tool_search_output", call, execution="client", status="completed", tools=[])
            return [found, _note(text)]
        case _:
            return [_output(f"{call.name}_call_output", call, output=text)]


def _output(kind: str, call: ToolCall, **members: Any) -> bytes:
    return jsontext.render({"type": kind, "call_id": call.call_id, **members})


def _note(text: str) -> bytes:
    return jsontext.render({"type": "message", "role": "developer", "content": text})


def read_result(item: dict[str, Any], *, hosted: Collection[str] = ()) -> tuple[str, str, str] | None:
    """The call that an item is the result of, its text, and the tool's name where it says that. None: it is none, or of
    what the upstream has run by itself."""
    kind = item.get("type")
    if not isinstance(kind, str) or not _OUTPUT.fullmatch(kind):
        return None
    if _runs_upstream(item, kind.removesuffix("_output").removesuffix("_call"), hosted):
        return None
    if kind == "mcp_approval_response":
        return _text(item.get("approval_request_id")), _text(item.get("reason")), ""
    call_id = item.get("call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = item.get("id")
    return _text(call_id), _output_text(item.get("output")), _text(item.get("name"))


def _output_text(output: Any) -> str:
    if not isinstance(output, list):
        return output if isinstance(output, str) else ""
    parts = (part for part in output if isinstance(part, dict))
    return "\n".join(part[k] for part in parts for k in ("text", "stdout", "stderr") if isinstance(part.get(k), str))


# ---------------------------------------------------------------- items in a history


def is_reference(item: dict[str, Any]) -> bool:
    """Whether an item only names another; its type may be left out."""
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item and isinstance(item.get("id"), str))


def item_identity(item: dict[str, Any]) -> tuple[str, str] | None:
    """What tells an item again in a client's history: its id, or what it says."""
    return next(iter(item_identities(item)), None)


def item_identities(item: dict[str, Any]) -> list[tuple[str, str]]:
    """Everything that an item can be told by, the strongest first: a client may keep its id, or only what it says."""
    return [(place, value) for place, value in _marks(item) if isinstance(value, str) and value]


def _marks(item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if item.get("type") == "mcp_call":  # its id may have been taken off
        said = ("approval_request_id", "server_label", "name", "arguments", "output", "error")
        yield "record", jsontext.render_text([item.get(key) for key in said])
    yield "id", item.get("id")
    if _is_call(item):
        yield "call", item.get("call_id")
    elif item.get("type") == "reasoning":
        yield "reasoning", item.get("encrypted_content")
    elif item.get("role") == "assistant":
        yield "message", message_text(item)


def message_text(item: dict[str, Any]) -> str:
    """The text of a message."""
    return content_text(item.get("content"))


def message_item(text: str, item_id: str) -> dict[str, Any]:
    """A message of our own, as an output item."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
