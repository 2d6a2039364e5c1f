"""Events of our own for items that the client is given whole: what the upstream would have sent for them.

Payloads as values; their `sequence_number` and `output_index` are the caller's to fill in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

_OWN = "msg_sidecall"


def own_message_id(response_id: str) -> str:
    """The id of the message that is put at the end of a response: the same whenever that is read."""
    return _OWN + hashlib.sha256(response_id.encode("utf-8", "replace")).hexdigest()[:40]


def is_own_id(item_id: Any) -> bool:
    """Whether an item was made here, so that no upstream knows its id."""
    return isinstance(item_id, str) and item_id.startswith(_OWN)


_TEXTS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


def item_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a whole item, from its first to its last."""
    kind = item.get("type")
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    inner: list[dict[str, Any]] = []
    if kind == "message" and isinstance(item.get("content"), list):
        begun["content"] = []
        inner = [event for at, part in enumerate(item["content"]) for event in _part_events(item, at, part)]
    elif isinstance(kind, str) and kind in _TEXTS and isinstance(item.get(_TEXTS[kind][0]), str):
        place, name = _TEXTS[kind]
        begun[place] = ""
        inner = list(_text_events(item, place, name))
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


def _about(item: dict[str, Any]) -> dict[str, Any]:
    """What joins an event to its item; a call without an id of its own still has one that no other item has."""
    return {"item_id": item.get("id") or item.get("call_id") or "", "output_index": 0}


def _text_events(item: dict[str, Any], place: str, name: str) -> Iterator[dict[str, Any]]:
    if item[place]:
        yield {"type": f"response.{name}.delta", **_about(item), "delta": item[place]}
    named = {"name": item.get("name")} if place == "arguments" else {}
    yield {"type": f"response.{name}.done", **_about(item), **named, place: item[place]}


def _part_events(item: dict[str, Any], at: int, part: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(part, dict):
        return
    about = {**_about(item), "content_index": at}
    kind = part.get("type")
    place = _SPOKEN.get(kind) if isinstance(kind, str) else None
    text = part.get(place) if place else None
    if place is None or not isinstance(text, str):
        yield {"type": "response.content_part.added", **about, "part": part}
    else:
        yield {"type": "response.content_part.added", **about, "part": {**part, **_begun(part, place)}}
        probable = {"logprobs": part.get("logprobs") or []} if kind == "output_text" else {}
        if text:
            yield {"type": f"response.{kind}.delta", **about, "delta": text, **probable}
        notes = part.get("annotations")
        for number, note in enumerate(notes if isinstance(notes, list) else []):
            numbered = {**about, "annotation_index": number, "annotation": note}
            yield {"type": "response.output_text.annotation.added", **numbered}
        yield {"type": f"response.{kind}.done", **about, place: text, **probable}
    yield {"type": "response.content_part.done", **about, "part": part}


_SPOKEN = {"output_text": "text", "refusal": "refusal"}


def _begun(part: dict[str, Any], place: str) -> dict[str, Any]:
    """A part before anything of it was said."""
    return {place: "", **{key: [] for key in ("annotations", "logprobs") if key in part}}
