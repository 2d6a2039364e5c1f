"""The Responses API, the request: what it says, and the changes that governing makes to it.

A request is looked at as a value and changed as bytes (`jsontext.edit`), so that what no rule touches goes
upstream as the client wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import Changes, Json, Path
from proxy.core.protocol.bodies import read_body
from proxy.core.protocol.chat import MAX_TOOLS
from proxy.core.protocol.response_items import message_text, read_call, read_result
from proxy.errors import RequestError

Hidden = Callable[[str, str], bool]
"""Whether a rule hides a tool: its name, and its namespace or the label of its server."""

_NAMED = ("function", "custom")
_VERSION = re.compile(r"_(preview|\d{4}_\d{2}_\d{2})(_\d{4}_\d{2}_\d{2})?$")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request body and what is read from it. `value` is empty where the body is not JSON: then it is the upstream's
    to judge, and nothing of it is changed. `hosted` are tools of its own kinds that the upstream runs."""

    body: bytes
    value: dict[str, Any]
    declared: dict[str, Json] = field(default_factory=dict)
    hosted: frozenset[str] = frozenset()

    @property
    def items(self) -> list[Any]:
        """The input as items."""
        given = self.value.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return given if isinstance(given, list) else []

    @property
    def tools(self) -> list[Any]:
        tools = self.value.get("tools")
        return tools if isinstance(tools, list) else []

    @property
    def user(self) -> str:
        return next((v for k in ("safety_identifier", "user") if isinstance(v := self.value.get(k), str) and v), "")

    @property
    def wants_json(self) -> bool:
        text = self.value.get("text")
        form = text.get("format") if isinstance(text, dict) else None
        return isinstance(form, dict) and form.get("type") in ("json_object", "json_schema")

    @property
    def stored(self) -> bool:
        return self.value.get("store") is not False

    @property
    def previous(self) -> str:
        previous = self.value.get("previous_response_id")
        return previous if isinstance(previous, str) else ""

    @property
    def conversation(self) -> str:
        found = self.value.get("conversation")
        found = found.get("id") if isinstance(found, dict) else found
        return found if isinstance(found, str) else ""

    @property
    def remembered(self) -> bool:
        """Whether the upstream has what came before."""
        return bool(self.previous or self.conversation)

    @property
    def background(self) -> bool:
        return self.value.get("background") is True

    @property
    def streams(self) -> bool:
        return self.value.get("stream") is True


def read_request(body: bytes, nesting: int) -> ResponseRequest:
    """A request body, read. Raises RequestError for one that two readers could read differently."""
    value = read_body(body, nesting, history="input")
    if value is None:
        return ResponseRequest(body, {})
    return ResponseRequest(body, value, dict(_declared(value)), frozenset(_hosted(value.get("tools"))))


def raw_items(request: ResponseRequest) -> list[bytes]:
    """The input as items, each with its bytes."""
    if isinstance(request.value.get("input"), str):
        content = jsontext.raw(request.body, ("input",))
        return [jsontext.edit(b'{"role":"user"}', {("content",): content})]
    return jsontext.elements(request.body, ("input",)) if request.items else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _declared(value: dict[str, Any]) -> Iterator[tuple[str, Json]]:
    """The names of a request's tools, those that its input adds too, with their parameter schemas."""
    yield from _of_tools(value.get("tools"))
    for item in _objects(value.get("input")):
        if item.get("type") in ("tool_search_output", "additional_tools"):
            yield from _of_tools(item.get("tools"))


def _of_tools(tools: Any) -> Iterator[tuple[str, Json]]:
    for tool in _objects(tools):
        kind, name = tool.get("type"), tool.get("name")
        if kind == "namespace" and isinstance(name, str):
            for inner, schema in _of_tools(tool.get("tools")):
                yield f"{name}.{inner}", schema
        elif kind == "mcp":
            if isinstance(label := tool.get("server_label"), str):
                yield label, None
        elif kind in _NAMED:
            if isinstance(name, str):
                yield name, tool.get("parameters")
        elif isinstance(kind, str):
            for family in _families(kind):
                yield family, None


def _families(kind: str) -> list[str]:
    """The names of a tool of the API's own: its type, and that without a version."""
    found = [kind, _VERSION.sub("", kind)]
    if found[-1] == "computer_use":
        found.append("computer")
    return list(dict.fromkeys(found))


def _hosted(tools: Any) -> Iterator[str]:
    for tool in _objects(tools):
        environment = tool.get("environment")
        where = environment.get("type") if isinstance(environment, dict) else None
        if tool.get("type") == "shell" and isinstance(where, str) and where.startswith("container"):
            yield "shell"


# ---------------------------------------------------------------- tools of a request


def hide_tools(request: ResponseRequest, hidden: Hidden) -> dict[Path, bytes | None]:
    """The changes that take hidden tools out. Raises RequestError where the request insists on one of them."""
    choice = request.value.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") != "allowed_tools" and _is_hidden(choice, hidden):
        name = choice.get("name") or choice.get("server_label") or choice.get("type")
        raise RequestError(f"The tool {name!r} that the request insists on is not available.", code="tool_hidden")
    tools = request.value.get("tools")
    if not isinstance(tools, list) or not tools:
        return {}
    raws = jsontext.elements(request.body, ("tools",))
    kept = [_kept(tool, raw, hidden) for tool, raw in zip(tools, raws, strict=True)]
    if kept == raws:
        return _narrowed(request, hidden)
    left = [raw for raw in kept if raw is not None]
    changes: dict[Path, bytes | None] = {("tools",): jsontext.array(left) if left else None}
    if not left:
        gone = (name for name in ("tool_choice", "parallel_tool_calls") if name in request.value)
        return changes | {(name,): None for name in gone}
    return changes | _narrowed(request, hidden)


def _kept(tool: Any, raw: bytes, hidden: Hidden) -> bytes | None:
    """What is left of a tool; None: nothing."""
    if not isinstance(tool, dict) or not tool:
        return raw
    if _is_hidden(tool, hidden):
        return None
    if tool.get("type") == "namespace":
        inner = jsontext.elements(raw, ("tools",)) if isinstance(tool.get("tools"), list) else []
        space = str(tool.get("name", ""))
        left = [
            one
            for one, member in zip(inner, tool.get("tools") or [], strict=True)
            if not (isinstance(member, dict) and hidden(_name(member), space))
        ]
        if len(left) == len(inner):
            return raw
        return jsontext.edit(raw, {("tools",): jsontext.array(left)}) if left else None
    return _narrowed_server(tool, raw, hidden) if tool.get("type") == "mcp" else raw


def _narrowed_server(tool: dict[str, Any], raw: bytes, hidden: Hidden) -> bytes | None:
    """A server whose list of tools loses hidden ones."""
    allowed, label = tool.get("allowed_tools"), str(tool.get("server_label", ""))
    path: Path = ("allowed_tools", "tool_names") if isinstance(allowed, dict) else ("allowed_tools",)
    names = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
    if not isinstance(names, list):
        return raw
    left = [name for name in names if not (isinstance(name, str) and hidden(name, label))]
    if len(left) == len(names):
        return raw
    return jsontext.edit(raw, {path: jsontext.render(left)}) if left else None


def _name(tool: dict[str, Any]) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


def _is_hidden(tool: dict[str, Any], hidden: Hidden) -> bool:
    """Whether a tool, or what a choice names, is hidden as a whole."""
    kind = tool.get("type")
    if kind in _NAMED:
        return bool(_name(tool)) and hidden(_name(tool), str(tool.get("namespace") or ""))
    if kind == "namespace":
        return hidden(_name(tool), "")
    if kind == "mcp":
        label = str(tool.get("server_label") or "")
        return hidden("mcp", "") or hidden(label, "") or (bool(_name(tool)) and hidden(_name(tool), label))
    return isinstance(kind, str) and any(hidden(family, "") for family in _families(kind))


def _narrowed(request: ResponseRequest, hidden: Hidden) -> dict[Path, bytes | None]:
    choice = request.value.get("tool_choice")
    tools = choice.get("tools") if isinstance(choice, dict) and choice.get("type") == "allowed_tools" else None
    if not isinstance(tools, list) or not any(isinstance(t, dict) and _is_hidden(t, hidden) for t in tools):
        return {}
    path: Path = ("tool_choice", "tools")
    raws = jsontext.elements(request.body, path)
    left = [raw for raw, t in zip(raws, tools, strict=True) if not (isinstance(t, dict) and _is_hidden(t, hidden))]
    return {path: jsontext.array(left)} if left else {("tool_choice",): b'"none"'}


def advertise(request: ResponseRequest, declarations: Sequence[bytes], tools: Sequence[bytes]) -> Changes:
    """The change that adds proxy tools behind the request's own (`tools`, as they stand after hiding)."""
    room = MAX_TOOLS - len(tools)
    if not declarations or room <= 0 or request.value.get("tool_choice") == "none":
        return {}
    return {("tools",): jsontext.array([*tools, *declarations[:room]])}


def declaration(name: str, description: str, parameters: Json) -> bytes:
    """A tool as a request declares it."""
    about = {"description": description} if description else {}
    return jsontext.render({"type": "function", "name": name, **about, "parameters": parameters, "strict": False})


def relaxed_choice(value: dict[str, Any]) -> Changes:
    """For a continuation: a choice that forces a call becomes `auto`."""
    choice = value.get("tool_choice")
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") != "allowed_tools"):
        return {("tool_choice",): b'"auto"'}
    if isinstance(choice, dict) and choice.get("mode") == "required":
        return {("tool_choice", "mode"): b'"auto"'}
    return {}


def closing_choice(value: dict[str, Any]) -> Changes:
    """For the last call of a turn: no more calls, where the request has tools."""
    return {("tool_choice",): b'"none"'} if value.get("tools") else {}


# ---------------------------------------------------------------- the conversation of a request


def read_history(items: Iterable[Any]) -> list[Entry]:
    """The items as entries, one each."""
    return [_entry(index, item if isinstance(item, dict) else {}) for index, item in enumerate(items)]


def _entry(index: int, item: dict[str, Any]) -> Entry:
    if (found := read_result(item)) is not None:
        call_id, text, name = found
        return Entry(index, EntryKind.RESULT, text, call_id=call_id, name=name)
    if item.get("type") in (None, "message"):
        return Entry(index, _SPEAKERS.get(str(item.get("role")), EntryKind.OTHER), message_text(item))
    is_text = isinstance(item.get("arguments", item.get("input")), str)
    call = read_call(item, b"" if is_text else jsontext.render(item))
    return Entry(index, EntryKind.OTHER) if call is None else Entry(index, EntryKind.CALLS, calls=(call,))


_SPEAKERS = {"user": EntryKind.USER, "assistant": EntryKind.TEXT}
