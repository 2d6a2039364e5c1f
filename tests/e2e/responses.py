"""Responses as tests write them: items, answers in one piece and as streams; and a client that reads strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.sidecall import Got
from tests.fake_upstream import Events, Whole

PATH = "/v1/responses"
A, B, C, D = (f"call_{letter * 24}" for letter in "ABCD")
USAGE: dict[str, Any] = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}

Item = dict[str, Any]


# ---------------------------------------------------------------- items


def call(call_id: str, name: str, *, namespace: str = "", **arguments: Any) -> Item:
    space = {"namespace": namespace} if namespace else {}
    made = {"name": name, "arguments": json.dumps(arguments), **space}
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", "call_id": call_id, **made}


def custom(call_id: str, name: str, text: str) -> Item:
    made = {"call_id": call_id, "name": name, "input": text}
    return {"id": f"ctc_{call_id}", "type": "custom_tool_call", "status": "completed", **made}


def action(call_id: str, tool: str, **done: Any) -> Item:
    """A call of a tool of the API's own, such as a shell's."""
    return {"id": f"{tool}_{call_id}", "type": f"{tool}_call", "status": "completed", "call_id": call_id, **done}


def approval(name: str, label: str = "docs", *, number: int = 1, **arguments: Any) -> Item:
    item_id = f"mcpr_{number:032}"
    about = {"server_label": label, "name": name, "arguments": json.dumps(arguments)}
    return {"id": item_id, "type": "mcp_approval_request", **about}


def ran(name: str, label: str = "docs", *, asked: str | None = None, number: int = 1) -> Item:
    """A call of a hosted server that the upstream has run."""
    about = {"server_label": label, "name": name, "arguments": "{}", "output": "found", "error": None}
    return {"id": f"mcp_{number:032}", "type": "mcp_call", "approval_request_id": asked, **about}


def reasoning(number: int, encrypted: str | None = None) -> Item:
    item: Item = {"id": f"rs_{number:032}", "type": "reasoning", "summary": []}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def message(text: str, number: int = 1) -> Item:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    ids = {"id": f"msg_{number:032}", "type": "message", "status": "completed", "role": "assistant"}
    return {**ids, "content": [part]}


def user(text: str = "hello") -> Item:
    return {"role": "user", "content": text}


def output(call_id: str, text: Any, kind: str = "function_call") -> Item:
    return {"type": f"{kind}_output", "call_id": call_id, "output": text}


def approved(request: Item, approve: bool = True, **more: Any) -> Item:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **more}


def reference(item: Item) -> Item:
    return {"type": "item_reference", "id": item["id"]}


def tool(name: str, **properties: Any) -> Item:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}}


def server(label: str = "docs", **more: Any) -> Item:
    return {"type": "mcp", "server_label": label, "server_url": "https://docs.test/mcp", **more}


def plain(items: Sequence[Item]) -> list[Item]:
    """Items less what tells them apart but says nothing."""
    return [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items]


def text_of(items: Sequence[Item]) -> list[str]:
    return [part["text"] for item in items if item["type"] == "message" for part in item["content"]]


# ---------------------------------------------------------------- answers


def body(*items: Item | str, tools: Sequence[str | Item] = (), **more: Any) -> dict[str, Any]:
    """A request. One string is its whole input."""
    given: Any = items[0] if len(items) == 1 and isinstance(items[0], str) else list(items) or [user()]
    declared = {"tools": [tool(t) if isinstance(t, str) else t for t in tools]} if tools else {}
    return {"model": "gpt-test", "input": given, **declared, **more}


def response(*items: Item, number: int = 1, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "id": f"resp_{number:048}",
        "object": "response",
        "created_at": 1760000000 + number,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-test",
        "output": list(items),
        "store": True,
        "usage": USAGE if status not in ("queued", "in_progress") else None,
        **more,
    }


def whole(*items: Item, **more: Any) -> Whole:
    return Whole(response(*items, **more))


def stream(*items: Item, **more: Any) -> Events:
    return streamed(response(*items, **more))


def streamed(made: dict[str, Any], *, done: bool = False) -> Events:
    """A response as OpenAI streams it."""
    return Events([named(event) for event in events_of(made)], done=done)


def named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def events_of(made: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a response, numbered. One that still runs has no end."""
    begun = {**made, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for index, item in enumerate(made["output"]):
        events += item_events(item, index)
    if made["status"] in ("completed", "incomplete", "failed", "cancelled"):
        events.append({"type": f"response.{made['status']}", "response": made})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def item_events(item: Item, index: int) -> Iterator[dict[str, Any]]:
    at, about = {"output_index": index}, {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    inner: list[dict[str, Any]] = []
    if item["type"] == "message":
        begun["content"] = []
        for number, part in enumerate(item["content"]):
            inner += _part_events(part, {**about, "content_index": number})
    elif item["type"] in _TEXTS:
        place, kind = _TEXTS[item["type"]]
        begun[place] = ""
        pieces = (item[place][:3], item[place][3:])
        inner += [{"type": f"response.{kind}.delta", **about, "delta": piece} for piece in pieces if piece]
        names = {"name": item["name"]} if place == "arguments" else {}
        inner.append({"type": f"response.{kind}.done", **about, **names, place: item[place]})
    yield {"type": "response.output_item.added", **at, "item": begun}
    yield from inner
    yield {"type": "response.output_item.done", **at, "item": item}


_TEXTS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


def _part_events(part: Item, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    text = part["text"]
    yield {"type": "response.content_part.added", **about, "part": {**part, "text": ""}}
    for piece in (text[:2], text[2:]):
        if piece:
            yield {"type": "response.output_text.delta", **about, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **about, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **about, "part": part}


# ---------------------------------------------------------------- what a client reads


@dataclass
class Read:
    """A stream as a strict client reads it: the response at its end, items as they were streamed, errors."""

    first: dict[str, Any] = field(default_factory=dict)
    final: dict[str, Any] | None = None
    items: list[Item] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    given: dict[int, Any] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)


def read_strictly(events: Sequence[dict[str, Any]], *, first_number: int = 0) -> Read:
    """What a strict client makes of a stream. Raises AssertionError."""
    read = Read()
    number = first_number
    for event in events:
        if "error" in event or event["type"] == "error":
            read.errors.append(event.get("error") or event)
            continue
        assert not read.errors, "something behind an error"
        assert read.final is None, "something behind the end"
        assert event["sequence_number"] == number, f"number {event['sequence_number']} in the place of {number}"
        number += 1
        _event(read, event)
    if read.final is not None:
        assert not read.open, "items without an end"
        assert read.final["output"] == read.items, "the final list is not what was streamed"
    return read


def _event(read: Read, event: dict[str, Any]) -> None:
    kind = event["type"]
    if "response" in event:
        _response(read, event["response"], kind)
        return
    index = event["output_index"]
    if kind == "response.output_item.added":
        assert index == len(read.items), "a gap in the numbers of items"
        read.items.append(event["item"])
        read.open.add(index)
        return
    assert index in read.open, f"{kind} of an item that is not open"
    item = read.items[index]
    if "item_id" in event:
        assert event["item_id"] == item["id"], "an event of another item"
    if kind == "response.output_item.done":
        _item_done(read, index, event["item"])
    elif kind.endswith(".delta"):
        read.texts[index] = read.texts.get(index, "") + event["delta"]
    elif kind.endswith(("arguments.done", "input.done", "text.done")):
        said = event.get("arguments", event.get("input", event.get("text")))
        assert read.texts.get(index, said) == said, "its end says something else than its pieces"
        assert event.get("name", item.get("name")) == item.get("name"), "another name at its end"
        read.given[index] = said


def _item_done(read: Read, index: int, item: Item) -> None:
    begun = read.items[index]
    for key in ("id", "call_id", "name", "type"):
        assert begun.get(key) == item.get(key), f"another {key} at its end"
    text = item.get("arguments", item.get("input"))
    if item["type"] == "message":
        text = "".join(part["text"] for part in item["content"])
    if isinstance(text, str):
        assert read.texts.get(index, text) == text, "the item says something else than its pieces"
        assert read.given.get(index, text) == text, "the item says something else than the end of its text"
    read.items[index] = item
    read.open.remove(index)


def _response(read: Read, response: dict[str, Any], kind: str) -> None:
    if kind == "response.created":
        assert not read.first, "it begins twice"
        read.first = response
    assert read.first, "something before the first event"
    assert response["id"] == read.first["id"], "the id changes"
    if kind not in ("response.created", "response.queued", "response.in_progress"):
        read.final = response


@dataclass
class Answer:
    """What a client has of an answer, whole or streamed."""

    got: Got
    response: dict[str, Any]

    @property
    def status(self) -> int:
        return self.got.status

    @property
    def id(self) -> str:
        found: str = self.response["id"]
        return found

    @property
    def items(self) -> list[Item]:
        found: list[Item] = self.response["output"]
        return found

    @property
    def calls(self) -> list[Item]:
        return [item for item in self.items if "call_id" in item]

    @property
    def names(self) -> list[str]:
        """The tools that are called."""
        return [item.get("name") or item["type"].removesuffix("_call") for item in self.calls]

    @property
    def texts(self) -> list[str]:
        return text_of(self.items)


def answer_of(got: Got) -> Answer:
    """An answer that came to its end. Raises AssertionError for another."""
    assert got.status == 200, got.data
    assert not got.broken
    if got.headers["content-type"].startswith("text/event-stream"):
        read = read_strictly(got.events)
        assert not read.errors, read.errors
        assert read.final is not None, "a stream without an end"
        return Answer(got, read.final)
    return Answer(got, got.json)
