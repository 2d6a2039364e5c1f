"""The items of the Responses API: which of them are calls, which are results, and the changes that governing makes.

An item is looked at as a value and changed as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from proxy.core import jsontext
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import Path
from proxy.core.protocol.chat import content_text

_RUN_UPSTREAM = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_KINDS = {"function_call": Kind.FUNCTION, "custom_tool_call": Kind.CUSTOM, "mcp_approval_request": Kind.APPROVAL}
_TEXTS = {Kind.FUNCTION: "arguments", Kind.CUSTOM: "input", Kind.APPROVAL: "arguments"}
_ACTIONS = {"apply_patch": "operation", "tool_search": "arguments"}
_OUTPUT = re.compile(r"(\w+_call)_output|tool_search_output|mcp_approval_response")
_BLANK = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def is_call_type(kind: str) -> bool:
    """Whether items of a type may be calls that somebody other than the upstream runs."""
    return kind in _KINDS or (kind.endswith("_call") and kind not in _RUN_UPSTREAM)


def read_call(item: dict[str, Any], raw: bytes, *, hosted: Collection[str] = ()) -> ToolCall | None:
    """An item as a call; None where it is none. `hosted` are tools that the upstream runs for this request."""
    kind = item.get("type")
    if not isinstance(kind, str) or not is_call_type(kind):
        return None
    if kind not in _KINDS:
        return _read_action(item, raw, kind.removesuffix("_call"), hosted=hosted)
    form = _KINDS[kind]
    call_id = item.get("id") if form is Kind.APPROVAL else item.get("call_id")
    space = item.get("server_label") if form is Kind.APPROVAL else item.get("namespace")
    given = item.get(_TEXTS[form])
    unwrapped = given is not None and not isinstance(given, str)
    text = _shown(raw, (_TEXTS[form],)) if unwrapped else given or ""
    name, found = _text(item.get("name")), CallId(_text(call_id))
    return ToolCall(found, name, text, form, unwrapped=unwrapped, namespace=_text(space))


def _read_action(item: dict[str, Any], raw: bytes, tool: str, *, hosted: Collection[str]) -> ToolCall | None:
    if tool in hosted or (tool == "tool_search" and item.get("execution") == "server"):
        return None
    call_id = item.get("call_id")
    if call_id is None and tool not in ("shell", "local_shell", "apply_patch", "computer"):
        return None  # nobody could answer it
    place = action_place(tool)
    if item.get(place) is None and item.get("actions") is not None:
        text = "{" + f'"actions":{_shown(raw, ("actions",))}' + "}"
    else:
        text = _shown(raw, (place,)) if item.get(place) is not None else "{}"
    return ToolCall(CallId(_text(call_id)), tool, text, Kind.ACTION, unwrapped=True)


def action_place(tool: str) -> str:
    """The member of an item that says what a tool of the client's is to do."""
    return _ACTIONS.get(tool, "action")


def read_record(item: dict[str, Any]) -> ToolCall | None:
    """A call of a hosted MCP server that the upstream has run."""
    if item.get("type") != "mcp_call":
        return None
    space, arguments = _text(item.get("server_label")), _text(item.get("arguments"))
    return ToolCall(CallId(_text(item.get("id"))), _text(item.get("name")), arguments, namespace=space)


def _shown(raw: bytes, path: Path) -> str:
    return (jsontext.raw(raw, path) or b"{}").decode("utf-8", "replace")


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
        changes |= _with_text(call, text)
    return jsontext.edit(raw, changes) if changes else raw


def _with_text(call: ToolCall, text: str) -> dict[Path, bytes | None]:
    if call.kind is not Kind.ACTION:
        bare = call.unwrapped and _is_json(text)
        return {(_TEXTS[call.kind],): text.encode() if bare else jsontext.render(text)}
    if jsontext.raw(call.text.encode(), ("actions",)) is not None:
        return {("actions",): jsontext.raw(text.encode(), ("actions",))}
    return {(action_place(call.name),): text.encode()}


def _is_json(text: str) -> bool:
    try:
        jsontext.parse(text)
    except ValueError:
        return False
    return True


def sent_back(raw: bytes, *, stored: bool) -> bytes | None:
    """An output item as an item of a later input; None where it may not go back. What was not stored has no id there,
    and its reasoning is known to nobody but by its encrypted content."""
    if stored:
        return raw
    item = jsontext.parse_own(raw)
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "reasoning":
        return raw if item.get("encrypted_content") else None
    if isinstance(kind, str) and kind.endswith("_call") and kind != "local_shell_call" and "id" in item:
        return jsontext.edit(raw, {("id",): None})
    return raw


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


def read_result(item: dict[str, Any]) -> tuple[str, str, str] | None:
    """The call that an item is the result of, its text, and the tool's name where it says that."""
    kind = item.get("type")
    if not isinstance(kind, str) or not _OUTPUT.fullmatch(kind):
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
    item_id = item.get("id")
    if isinstance(item_id, str) and item_id:
        return "id", item_id
    if isinstance(item.get("call_id"), str) and not _OUTPUT.fullmatch(str(item.get("type"))):
        return "call", item["call_id"]
    if item.get("type") == "reasoning" and isinstance(item.get("encrypted_content"), str):
        return "reasoning", item["encrypted_content"]
    if item.get("role") == "assistant" and (text := message_text(item)):
        return "message", text
    return None


def message_text(item: dict[str, Any]) -> str:
    """The text of a message."""
    return content_text(item.get("content"))


def message_item(text: str, item_id: str) -> dict[str, Any]:
    """A message of our own, as an output item."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
