"""A client that is as strict about a response's stream as the strictest of the real ones.

It refuses what some SDK breaks on: gaps in numbers or places, an item that does not begin or end, or that is not what
its pieces said, a response whose id changes, a list that is not what was streamed, anything behind the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.strictreader import data_of

_TEXTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}


@dataclass(slots=True)
class ReadItem:
    """An item as its events tell it."""

    begun: dict[str, Any]
    pieces: str = ""
    text: str | None = None
    spoken: str = ""
    item: dict[str, Any] | None = None

    @property
    def type(self) -> str:
        return str(self.begun["type"])


@dataclass(slots=True)
class ReadResponse:
    """What a client has of a stream in the end."""

    items: list[ReadItem] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    final: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    number: int | None = None

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """(name, id, text) of each call that is whole."""
        found = [read.item for read in self.items if read.item is not None and "call_id" in read.item]
        return [(i.get("name", i["type"]), i["call_id"], i.get("arguments", i.get("input", ""))) for i in found]

    @property
    def text(self) -> list[str]:
        """The texts of its messages."""
        return [read.spoken for read in self.items if read.type == "message"]


def read_strictly(out: bytes) -> ReadResponse:
    """What a strict client makes of a stream. Raises AssertionError."""
    read = ReadResponse()
    for data in data_of(out):
        if data.strip() == b"[DONE]":
            read.done += 1
            continue
        assert not read.done, "something behind the last event"
        event = json.loads(data)
        _number(read, event)
        _event(read, event)
    assert read.done <= 1
    if read.final:
        _compare(read)
    return read


def _number(read: ReadResponse, event: dict[str, Any]) -> None:
    number = event.get("sequence_number")
    if number is not None:
        assert number == (0 if read.number is None else read.number + 1), "a gap in the numbers of events"
        read.number = number


def _event(read: ReadResponse, event: dict[str, Any]) -> None:
    kind = event["type"]
    assert not read.final, "an event behind the end"
    read.kinds.append(kind)
    if kind == "error":
        read.errors.append(event)
        return
    if "response" in event:
        _response(read, kind, event["response"])
        return
    assert read.created, "an event before the response is created"
    if kind == "response.output_item.added":
        assert event["output_index"] == len(read.items), "a gap in the places of items"
        read.items.append(ReadItem(event["item"]))
    elif "output_index" in event:
        _of_item(read.items[event["output_index"]], kind, event)


def _response(read: ReadResponse, kind: str, response: dict[str, Any]) -> None:
    if kind == "response.created":
        assert not read.created, "a response is created twice"
        assert response["output"] == []
        read.created = response
        return
    assert read.created, "no response was created"
    assert response["id"] == read.created["id"], "the id changes"
    assert response["created_at"] == read.created["created_at"]
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        assert response["status"] == kind.removeprefix("response.")
        read.final = response


def _of_item(read: ReadItem, kind: str, event: dict[str, Any]) -> None:
    assert read.item is None, "an event of an item that is done"
    if "item_id" in event:
        assert event["item_id"] == read.begun["id"], "an event of another item"
    stem, _, what = kind.rpartition(".")
    if stem in _TEXTS:
        of, place = _TEXTS[stem]
        assert read.type == of
        assert read.begun[place] == "", "its text comes twice"
        if what == "delta":
            assert read.text is None, "a piece behind the whole"
            read.pieces += event["delta"]
        else:
            read.text = event[place]
            assert event.get("name", read.begun["name"]) == read.begun["name"]
            assert read.text == read.pieces or not read.pieces, "the pieces are not the whole"
    elif kind == "response.output_text.delta":
        assert read.type == "message"
        read.spoken += event["delta"]
    elif kind == "response.output_text.done":
        assert event["text"] == read.spoken
    elif kind == "response.output_item.done":
        _done(read, event["item"])


def _done(read: ReadItem, item: dict[str, Any]) -> None:
    for key in ("id", "type", "call_id", "name", "namespace"):
        assert item.get(key) == read.begun.get(key), f"its {key} changes"
    for place in ("arguments", "input"):
        if place in item and item["type"] != "mcp_approval_request":
            assert read.text in (None, item[place])
            assert read.pieces in ("", item[place])
    read.item = item


def _compare(read: ReadResponse) -> None:
    """The list of the response is what its events told."""
    output = read.final["output"]
    names = [(i.get("type"), i.get("call_id")) for i in output]
    assert len({call_id for _, call_id in names if call_id}) == len([c for _, c in names if c]), "an id comes twice"
    assert names == [(i.type, i.begun.get("call_id")) for i in read.items], "the list is not what was streamed"
    for item, told in zip(output, read.items, strict=True):
        assert told.item is not None, "an item that never ended"
        assert {k: v for k, v in item.items() if k != "id"} == {k: v for k, v in told.item.items() if k != "id"}
