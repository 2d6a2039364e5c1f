"""An endpoint that remembers responses and conversations as OpenAI does, and refuses the histories that it refuses.

Whatever a client leaves to it, `seen` has the whole conversation that the model was given, a request each, so that one
test holds for every manner of keeping a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from proxy.core.protocol.response_events import is_own_id
from tests.e2e.responses import PATH, Item, events_of, named, response, user
from tests.fake_upstream import Asked, Events, FakeUpstream, Reply, Whole

Made = dict[str, Any]
Said = Sequence[Item] | Callable[[], Sequence[Item]]


class RefusedError(Exception):
    """What the endpoint says no to."""


@dataclass
class Stored:
    """A response that is kept, with what it was an answer to."""

    response: Made
    history: list[Item]
    given: list[Item]
    """The items of its own request."""


@dataclass
class Endpoint:
    """`turns` are the output items of answers to come; `asked` are the requests for a response."""

    turns: list[tuple[Said, Made]] = field(default_factory=list)
    seen: list[list[Item]] = field(default_factory=list)
    asked: list[Made] = field(default_factory=list)
    others: list[Asked] = field(default_factory=list)
    stored: dict[str, Stored] = field(default_factory=dict)
    conversations: dict[str, list[Item]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    lenient: bool = False
    """Whether a model takes a history in which calls have no results, or items come without their reasoning."""

    @classmethod
    def on(cls, upstream: FakeUpstream) -> Endpoint:
        endpoint = cls()
        upstream.always(endpoint)
        return endpoint

    def says(self, *items: Item, **more: Any) -> None:
        """Queue an answer."""
        self.turns.append((items, more))

    @property
    def items(self) -> dict[str, Item]:
        """Every item that is known by its id."""
        found: dict[str, Item] = {}
        for stored in self.stored.values():
            found |= {item["id"]: item for item in stored.response["output"] if "id" in item}
        return found

    @property
    def last(self) -> Made:
        return self.asked[-1]

    def __call__(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.target)
        try:
            if asked.method == "POST" and parts.path == PATH:
                return self._respond(asked)
            self.others.append(asked)
            return self._read(asked, parts.path.removeprefix("/v1/").split("/"), parse_qs(parts.query))
        except RefusedError as error:
            self.refused.append(str(error))
            about = {"message": str(error), "type": "invalid_request_error", "param": "input", "code": None}
            return Whole({"error": about}, 400)

    # -- a response

    def _respond(self, asked: Asked) -> Reply:
        request = asked.json
        self.asked.append(request)
        given = request["input"]
        given = [user(given)] if isinstance(given, str) else list(given)
        history = [*self._before(request), *(self._resolved(item) for item in given)]
        if not self.lenient:
            check(history)
        self.seen.append(history)
        made = self._made(request)
        if request.get("store") is not False:
            self.stored[made["id"]] = Stored(made, history, given)
        if (conversation := request.get("conversation")) is not None:
            self.conversations[conversation] = [*history, *made["output"]]
        if request.get("stream"):
            return Events([named(event) for event in events_of(made)], done=False)
        if request.get("background"):
            made = {**made, "status": "queued", "output": [], "usage": None}
        return Whole(made)

    def _made(self, request: Made) -> Made:
        said, more = self.turns.pop(0) if self.turns else ((), {})
        items = said() if callable(said) else said
        echoed: Made = {k: request[k] for k in ("tools", "tool_choice", "previous_response_id") if k in request}
        if "conversation" in request:
            echoed["conversation"] = {"id": request["conversation"]}
        kept: Made = {"store": request.get("store") is not False, "background": request.get("background", False)}
        return response(*items, number=len(self.asked), **{**kept, **echoed, **more})

    def _before(self, request: Made) -> list[Item]:
        previous = request.get("previous_response_id")
        if previous is not None:
            if previous not in self.stored:
                raise RefusedError(f"Previous response with id '{previous}' not found.")
            return [*self.stored[previous].history, *self.stored[previous].response["output"]]
        conversation = request.get("conversation")
        return [] if conversation is None else list(self.conversations.setdefault(conversation, []))

    def _resolved(self, item: Item) -> Item:
        item_id = item.get("id")
        if is_own_id(item_id):
            raise RefusedError(f"Item '{item_id}' was never made here.")
        is_reference = item.get("type") == "item_reference" or ("type" not in item and "role" not in item)
        if is_reference and item_id not in self.items:
            raise RefusedError(f"Item with id '{item_id}' not found.")
        if item.get("type") == "function_call" and item_id is not None and not str(item_id).startswith("fc"):
            raise RefusedError(f"Invalid id '{item_id}' of a call.")
        return self.items[str(item_id)] if is_reference else item

    # -- what is kept

    def _read(self, asked: Asked, path: list[str], query: dict[str, list[str]]) -> Reply:
        match asked.method, path:
            case "GET", ["responses", name] if name in self.stored:
                return self._replayed(name, query) if query.get("stream") == ["true"] else self._whole(name)
            case "POST", ["responses", name, "cancel"] if name in self.stored:
                self.stored[name].response["status"] = "cancelled"
                return self._whole(name)
            case "DELETE", ["responses", name] if name in self.stored:
                del self.stored[name]
                return Whole({"id": name, "object": "response", "deleted": True})
            case "GET", ["responses", name, "input_items"] if name in self.stored:
                kept = self.stored[name]
                return _list(kept.history)
            case "GET", ["responses"]:
                return Whole({"object": "list", "data": [stored.response for stored in self.stored.values()]})
            case "GET", ["conversations", name, "items"] if name in self.conversations:
                return _list(self.conversations[name])
            case "POST", ["conversations", name, "items"] if name in self.conversations:
                self.conversations[name] += asked.json["items"]
                return _list(asked.json["items"])
            case _:
                return Whole({"error": {"message": "not found", "type": "invalid_request_error"}}, 404)

    def _whole(self, name: str) -> Whole:
        return Whole(self.stored[name].response)

    def _replayed(self, name: str, query: dict[str, list[str]]) -> Events:
        after = int(query.get("starting_after", ["-1"])[0])
        events = events_of(self.stored[name].response)
        return Events([named(event) for event in events if event["sequence_number"] > after], done=False)


def _list(items: Sequence[Item]) -> Whole:
    """A list of items, the newest first, as the API gives them."""
    kept = [{"id": f"item_{number:032}", **item} for number, item in enumerate(items)]
    ends = {"first_id": kept[-1]["id"], "last_id": kept[0]["id"]} if kept else {}
    return Whole({"object": "list", "data": kept[::-1], **ends, "has_more": False})


# ---------------------------------------------------------------- histories


def check(history: Sequence[Item]) -> None:
    """Every call has one result, behind all calls of its batch and in their order; no result is without its call; and
    reasoning stands before an item that it led to. Raises RefusedError."""
    owed: list[str] = []
    answering = False
    for number, item in enumerate(history):
        kind = item.get("type", "message")
        if is_call(item) or item.get("role") == "assistant":
            if owed and answering:
                raise RefusedError(f"No tool output found for {owed} at {number}: {json.dumps(item)}")
            owed += [_name(item)] if is_call(item) else []
        elif kind.endswith("_output") or kind == "mcp_approval_response":
            answered = item.get("call_id") or item.get("approval_request_id") or item.get("id")
            if not owed or answered != owed[0]:
                raise RefusedError(f"No tool call found for output of {answered!r} at {number}; owed: {owed}")
            owed.pop(0)
            answering = bool(owed)
        elif kind == "message" and owed:
            raise RefusedError(f"No tool output found for {owed} at {number}: {json.dumps(item)}")
        elif kind == "reasoning" and not _leads_on(history[number + 1 :]):
            raise RefusedError(f"Item '{item['id']}' of type 'reasoning' was provided without its following item.")
    if owed:
        raise RefusedError(f"No tool output found for {owed}")


def is_call(item: Item) -> bool:
    kind = item.get("type", "")
    return kind == "mcp_approval_request" or (kind.endswith("_call") and "call_id" in item)


def _name(item: Item) -> str:
    found: str = item["id"] if item["type"] == "mcp_approval_request" else item["call_id"]
    return found


def _leads_on(behind: Sequence[Item]) -> bool:
    item = next((i for i in behind if i.get("type") != "reasoning"), {})
    return is_call(item) or item.get("role") == "assistant" or item.get("type") == "mcp_call"
