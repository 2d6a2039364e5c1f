"""From the result of an MCP tool to text for the model.

Rules: text parts stand in a line each; what is no text becomes a note of its kind and size, and a resource that is
text the same note before its text. Only where there is no part at all, the structured content speaks. An error is
what the tool says for the model to read, but never a stack trace. Must not know sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.core.jsontext import Json, render_text

_TRACE = "Traceback (most recent call last)"


def result_text(result: Mapping[str, Json]) -> tuple[str, bool]:
    """A result (`tools/call`) as text, and whether it is an error."""
    content = result.get("content")
    text = "\n".join(line for part in (content if isinstance(content, list) else []) for line in _lines(part))
    structured = result.get("structuredContent")
    if not text and structured is not None:
        text = render_text(structured)
    if result.get("isError") is not True:
        return text, False
    return without_trace(text), True


def without_trace(text: str) -> str:
    """A text up to where it begins to tell a stack."""
    return text.partition(_TRACE)[0].rstrip()


def _lines(part: Json) -> Iterator[str]:
    if not isinstance(part, dict):
        return
    match part.get("type"):
        case "text":
            yield _text(part, "text")
        case "image" | "audio" as kind:
            yield _note(str(kind), _text(part, "mimeType"), size=_decoded_size(_text(part, "data")))
        case "resource_link":
            size = part.get("size")
            kind = f"link to {_shown(part, 'uri')}"
            yield _note(kind, _text(part, "mimeType"), size=size if isinstance(size, int) else None)
        case "resource" if isinstance(resource := part.get("resource"), dict):
            yield from _resource(resource)
        case kind:
            yield _note(f"part of the kind {str(kind)[:40]}", "", size=None)


def _resource(resource: Mapping[str, Json]) -> Iterator[str]:
    kind = f"resource {_shown(resource, 'uri')}"
    text = resource.get("text")
    if isinstance(text, str):
        yield _note(kind, _text(resource, "mimeType"), size=len(text.encode("utf-8", "replace")))
        yield text
    else:
        yield _note(kind, _text(resource, "mimeType"), size=_decoded_size(_text(resource, "blob")))


def _note(kind: str, media: str, *, size: int | None) -> str:
    return f"({', '.join([kind, *([media[:100]] if media else []), *([] if size is None else [f'{size} bytes'])])})"


def _text(part: Mapping[str, Json], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def _shown(part: Mapping[str, Json], key: str) -> str:
    return _text(part, key)[:200]


def _decoded_size(data: str) -> int:
    """How many bytes a text in Base64 holds."""
    digits = len(data.rstrip("="))
    return digits * 3 // 4
