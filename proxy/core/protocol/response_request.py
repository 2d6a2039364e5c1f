"""The Responses API, the request: what it says, and the changes that governing makes to it.

A request is looked at as a value and changed as bytes (`jsontext.edit`), so that what no rule touches goes
upstream as the client wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core import jsontext
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import Changes, Json, Path
from proxy.core.protocol.bodies import insists_on_hidden, objects, read_body, user_of
from proxy.core.protocol.chat import MAX_TOOLS
from proxy.core.protocol.response_items import call_type, message_text, read_call, read_result

Hidden = Callable[[str, str], bool]
"""Whether a rule hides a tool: its name, and its namespace or the label of its server."""

_NAMED = ("function", "custom")
_DATE = re.compile(r"_\d{4}_\d{2}_\d{2}$")


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
        return user_of(self.value)

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
    tools = [*objects(value.get("tools")), *_added_tools(value)]
    return ResponseRequest(body, value, dict(_declared(tools)), frozenset(_hosted(tools)))


def raw_items(request: ResponseRequest) -> list[bytes]:
    """The input as items, each with its bytes."""
    if isinstance(request.value.get("input"), str):
        content = jsontext.raw(request.body, ("input",))
        return [jsontext.edit(b'{"role":"user"}', {("content",): content})]
    return jsontext.elements(request.body, ("input",)) if request.items else []


def _added_tools(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tools that a request's input adds to its own."""
    for item in objects(value.get("input")):
        if item.get("type") in ("tool_search_output", "additional_tools"):
            yield from objects(item.get("tools"))


def _declared(tools: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Json]]:
    """The names of tools, with their parameter schemas (None: it has none)."""
    for tool in tools:
        kind, name = tool.get("type"), tool.get("name")
        if kind == "namespace":
            for inner, schema in _declared(objects(tool.get("tools"))) if isinstance(name, str) else ():
                yield f"{name}.{inner}", schema
        elif kind == "mcp":
            if isinstance(label := tool.get("server_label"), str):
                yield label, None
        elif kind in _NAMED:
            if isinstance(name, str):
                yield name, tool.get("parameters")
        elif isinstance(kind, str) and kind:
            for family in _families(kind):
                yield family, None


def _families(kind: str) -> list[str]:
    """The names of a tool of the API's own: its type, without its date, and without any version."""
    dateless = _DATE.sub("", kind)
    found = [kind, dateless, dateless.removesuffix("_preview")]
    if found[-1] == "computer_use":
        found.append("computer")
    return list(dict.fromkeys(found))


def _hosted(tools: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The tools of the API's own that the upstream runs, and a client might. One that is there twice, and once for the
    client, is the client's."""
    shells = [tool.get("environment") for tool in tools if tool.get("type") == "shell"]
    if shells and all(_is_container(environment) for environment in shells):
        yield "shell"
    searches = [tool.get("execution") for tool in tools if tool.get("type") == "tool_search"]
    if searches and "client" not in searches:
        yield "tool_search"


def _is_container(environment: Any) -> bool:
    where = environment.get("type") if isinstance(environment, dict) else None
    return isinstance(where, str) and where.startswith("container")


# ---------------------------------------------------------------- tools of a request


def hide_tools(request: ResponseRequest, hidden: Hidden) -> dict[Path, bytes | None]:
    """The changes that take hidden tools out. Raises RequestError where the request insists on one of them."""
    tools = request.tools
    raws = jsontext.elements(request.body, ("tools",)) if tools else []
    kept = [_kept(tool, raw, hidden) for tool, raw in zip(tools, raws, strict=True)]
    gone = {_place(tool) for tool, raw in zip(tools, kept, strict=True) if raw is None}

    def is_gone(named: Any) -> bool:
        return isinstance(named, dict) and (_is_hidden(named, hidden) or _place(named) in gone)

    choice = request.value.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") != "allowed_tools" and is_gone(choice):
        raise insists_on_hidden(choice.get("name") or choice.get("server_label") or choice.get("type"))
    if kept == raws:
        return _narrowed(request, is_gone)
    left = [raw for raw in kept if raw is not None]
    changes: dict[Path, bytes | None] = {("tools",): jsontext.array(left) if left else None}
    if not left:
        others = (name for name in ("tool_choice", "parallel_tool_calls") if name in request.value)
        return changes | {(name,): None for name in others}
    return changes | _narrowed(request, is_gone)


def _place(tool: dict[str, Any]) -> tuple[str, str]:
    """Which server or namespace a tool is, or a choice names."""
    return _text(tool, "type"), _text(tool, "server_label") or _text(tool, "name")


def _kept(tool: Any, raw: bytes, hidden: Hidden) -> bytes | None:
    """What is left of a tool; None: nothing."""
    if not isinstance(tool, dict):
        return raw
    if _is_hidden(tool, hidden):
        return None
    if tool.get("type") == "namespace":
        return _narrowed_namespace(tool, raw, hidden)
    return _narrowed_server(tool, raw, hidden) if tool.get("type") == "mcp" else raw


def _narrowed_namespace(tool: dict[str, Any], raw: bytes, hidden: Hidden) -> bytes | None:
    """A namespace that loses hidden tools."""
    members = tool.get("tools")
    if not isinstance(members, list):
        return raw
    space, inner = _text(tool, "name"), jsontext.elements(raw, ("tools",))
    left = [one for one, member in zip(inner, members, strict=True) if not _is_hidden_member(member, space, hidden)]
    if len(left) == len(inner):
        return raw
    return jsontext.edit(raw, {("tools",): jsontext.array(left)}) if left else None


def _is_hidden_member(member: Any, space: str, hidden: Hidden) -> bool:
    name = _text(member, "name") if isinstance(member, dict) else ""
    return bool(name) and hidden(name, space)


def _narrowed_server(tool: dict[str, Any], raw: bytes, hidden: Hidden) -> bytes | None:
    """A server whose list of tools loses hidden ones."""
    allowed, label = tool.get("allowed_tools"), _text(tool, "server_label")
    path: Path = ("allowed_tools", "tool_names") if isinstance(allowed, dict) else ("allowed_tools",)
    names = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
    if not isinstance(names, list):
        return raw
    parts = jsontext.elements(raw, path)
    left = [
        part
        for part, name in zip(parts, names, strict=True)
        if not (isinstance(name, str) and name and hidden(name, label))
    ]
    if len(left) == len(parts):
        return raw
    return jsontext.edit(raw, {path: jsontext.array(left)}) if left else None


def _text(tool: dict[str, Any], key: str) -> str:
    found = tool.get(key)
    return found if isinstance(found, str) else ""


def _is_hidden(tool: dict[str, Any], hidden: Hidden) -> bool:
    """Whether a tool, or what a choice names, is hidden as a whole. What has no name no rule can mean."""
    kind, name = tool.get("type"), _text(tool, "name")
    if kind in _NAMED:
        return bool(name) and hidden(name, _text(tool, "namespace"))
    if kind == "namespace":
        return bool(name) and hidden(name, "")
    if kind == "mcp":
        label = _text(tool, "server_label")
        return hidden("mcp", "") or (bool(label) and hidden(label, "")) or (bool(name) and hidden(name, label))
    return isinstance(kind, str) and bool(kind) and any(hidden(family, "") for family in _families(kind))


def _narrowed(request: ResponseRequest, is_gone: Callable[[Any], bool]) -> dict[Path, bytes | None]:
    """The change to a choice of several tools."""
    choice = request.value.get("tool_choice")
    tools = choice.get("tools") if isinstance(choice, dict) and choice.get("type") == "allowed_tools" else None
    if not isinstance(tools, list) or not any(map(is_gone, tools)):
        return {}
    path: Path = ("tool_choice", "tools")
    left = [raw for raw, t in zip(jsontext.elements(request.body, path), tools, strict=True) if not is_gone(t)]
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


def read_history(items: Iterable[Any], *, hosted: Collection[str] = ()) -> list[Entry]:
    """The items as entries, one each. Of `hosted` tools, which the upstream runs, calls and results are records."""
    return [_entry(index, item if isinstance(item, dict) else {}, hosted) for index, item in enumerate(items)]


def _entry(index: int, item: dict[str, Any], hosted: Collection[str]) -> Entry:
    if (found := read_result(item, hosted=hosted)) is not None:
        call_id, text, name = found
        return Entry(index, EntryKind.RESULT, text, call_id=call_id, name=name)
    if item.get("type") == "message" or (item.get("type") is None and not call_type(item)):
        return Entry(index, _SPEAKERS.get(str(item.get("role")), EntryKind.OTHER), message_text(item))
    is_text = isinstance(item.get("arguments", item.get("input")), str)
    call = read_call(item, b"" if is_text else jsontext.render(item), hosted=hosted)
    return Entry(index, EntryKind.OTHER) if call is None else Entry(index, EntryKind.CALLS, calls=(call,))


_SPEAKERS = {"user": EntryKind.USER, "assistant": EntryKind.TEXT}
