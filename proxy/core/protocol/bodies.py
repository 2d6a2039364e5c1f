"""Request bodies: what every governed one has to be before anybody decides by it."""

from __future__ import annotations

from typing import Any

from proxy.core import jsontext
from proxy.errors import RequestError


def read_body(body: bytes, nesting: int, *, history: str) -> dict[str, Any] | None:
    """A request body's object; None where it is none, and the upstream's to judge. `history` is the member that has the
    conversation. Raises RequestError for a body that two readers could read differently."""
    if (encoding := jsontext.encoding(body)) != "utf-8":
        mark = "a byte-order mark" if encoding == "utf-8-sig" else f"text in {encoding}, and UTF-8 was expected"
        raise _unclear(f"it begins with {mark}")
    value = _read(body, nesting, history)
    if not isinstance(value, dict):
        return None
    if jsontext.has_key_twice(body, value) or _has_doubts(body, value):
        raise _unclear("a key of it comes twice")
    return value


_DECIDES = frozenset(
    {"type", "role", "id", "name", "namespace", "function", "custom", "parameters", "tools", "mode", "content", "text"}
    | {"tool_calls", "tool_call_id", "function_call", "call_id", "arguments", "input", "output", "action", "actions"}
    | {"operation", "execution", "environment", "server_label", "server_url", "connector_id", "allowed_tools"}
    | {"tool_names", "require_approval", "never", "always", "approval_request_id", "approve"}
)
"""Members of tools, choices, messages and items that rules, or owners of calls, go by."""


def _has_doubts(body: bytes, value: dict[str, Any]) -> bool:
    """Whether something below the top level can be read in two ways. Written again, what has no key twice is what most
    clients sent, to the byte; else it is read once more, which takes longer."""
    return jsontext.render(value) != body and jsontext.reads_two_ways(body, _DECIDES)


def _unclear(why: str) -> RequestError:
    return RequestError(f"The request body cannot be read in one way: {why}.", code="invalid_request_body")


def _read(body: bytes, nesting: int, history: str) -> Any:
    """A body's value; None where it has none. Raises RequestError for one that nests too deep."""
    try:
        value = jsontext.parse(body)
    except ValueError:
        deep = jsontext.nests_deeper(body, nesting)
    else:
        deep = jsontext.is_deeper(value, nesting)
        if not deep:
            return value
    if deep:
        raise _unclear(f"it nests deeper than {nesting}")
    try:  # NaN or half a surrogate pair: some upstreams take them, so rules have to see the rest
        value = jsontext.parse_lenient(body)
        jsontext.edit(body, {(history,): b"[]"})
    except (ValueError, KeyError):
        return None
    return value


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def user_of(value: dict[str, Any]) -> str:
    """Whom a request speaks for, in the client's own words; the newer field counts."""
    return next((v for k in ("safety_identifier", "user") if isinstance(v := value.get(k), str) and v), "")


def insists_on_hidden(name: object) -> RequestError:
    """What a client is told whose request forces a tool that a rule hides."""
    return RequestError(f"The tool {name!r} that the request insists on is not available.", code="tool_hidden")
