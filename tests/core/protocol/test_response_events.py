"""Events of our own for whole items: what the upstream would have sent for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.core.protocol.response_events import is_own_id, item_events, own_message_id
from proxy.core.protocol.response_items import message_item

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
NOTE = {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "t", "url": "http://x"}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "phase": "final_answer",
    "content": [
        {"type": "output_text", "text": "so it is", "annotations": [NOTE], "logprobs": []},
        {"type": "refusal", "refusal": "no"},
    ],
}
FUNCTION = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "search",
    "arguments": '{"q": 1.10}',
}
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "a\nb"}
SHELL = {
    "id": "sh_1",
    "type": "shell_call",
    "status": "completed",
    "call_id": "call_3",
    "action": {"commands": ["ls"], "max_output_length": None, "timeout_ms": None},
    "environment": None,
}
APPROVAL = {"id": "mcpr_1", "type": "mcp_approval_request", "server_label": "d", "name": "find", "arguments": "{}"}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x"}
OWN = message_item("The end.", own_message_id("resp_1"))


def kinds(item: dict[str, Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in item_events(item)]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (OWN, ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]),
        (
            MESSAGE,
            [
                "content_part.added",
                "output_text.delta",
                "output_text.annotation.added",
                "output_text.done",
                "content_part.done",
                "content_part.added",
                "refusal.delta",
                "refusal.done",
                "content_part.done",
            ],
        ),
        (MESSAGE | {"content": []}, []),
        (
            MESSAGE | {"content": [MESSAGE["content"][1] | {"refusal": ""}]},
            ["content_part.added", "refusal.done", "content_part.done"],
        ),
        (MESSAGE | {"content": [{"type": "odd", "text": "x"}, 5]}, ["content_part.added", "content_part.done"]),
        (MESSAGE | {"content": "text"}, []),
        (FUNCTION, ["function_call_arguments.delta", "function_call_arguments.done"]),
        (FUNCTION | {"arguments": ""}, ["function_call_arguments.done"]),
        (FUNCTION | {"arguments": {"q": 1}}, []),
        (CUSTOM, ["custom_tool_call_input.delta", "custom_tool_call_input.done"]),
        (SHELL, []),
        (APPROVAL, []),
        (REASONING, []),
    ],
)
def test_an_item_has_its_events_from_first_to_last(item: dict[str, Any], expected: list[str]) -> None:
    """Between added and done stands what its kind is told by; nothing is told of nothing."""
    assert kinds(item) == ["output_item.added", *expected, "output_item.done"]


def numbered(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    number = 2
    for index, item in enumerate(items):
        for event in item_events(item):
            yield {**event, "sequence_number": number, "output_index": index}
            number += 1


ITEMS = [OWN, MESSAGE, FUNCTION, CUSTOM, SHELL, APPROVAL, REASONING]


def test_events_are_what_an_sdk_expects() -> None:
    """Each validates as an event of the API."""
    for event in numbered(ITEMS):
        assert EVENT.validate_python(event).type == event["type"]


def test_an_item_begins_empty_and_ends_whole() -> None:
    """The first event has nothing of what later ones tell; the last has the item as it is; the item stays."""
    for item in ITEMS:
        before = repr(item)
        first, *_, last = item_events(item)
        assert last["item"] is item
        assert repr(item) == before
        assert first["item"].get("status") == ("in_progress" if "status" in item else None)
        assert first["item"].keys() == item.keys()
    assert item_events(MESSAGE)[0]["item"]["content"] == []
    assert item_events(FUNCTION)[0]["item"]["arguments"] == ""
    assert item_events(CUSTOM)[0]["item"]["input"] == ""
    assert item_events(SHELL)[0]["item"]["action"] == SHELL["action"]
    added = item_events(MESSAGE)[1]
    assert added["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def test_events_are_joined_to_their_item() -> None:
    """By its id, or by that of the call where a call has no other."""
    assert {event.get("item_id", "fc_1") for event in item_events(FUNCTION)} == {"fc_1"}
    bare = {key: value for key, value in FUNCTION.items() if key != "id"}
    assert [event["item_id"] for event in item_events(bare)[1:-1]] == ["call_1", "call_1"]


def test_a_reader_puts_the_items_together_again() -> None:
    """What an SDK's own accumulation makes of the events is what the final response says."""
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    state: Any = ResponseStreamState(input_tools=[], text_format=omit)
    items = [OWN, FUNCTION, SHELL]
    told = [
        {"type": "response.created", "sequence_number": 0, "response": response},
        *numbered(items),
        {
            "type": "response.completed",
            "sequence_number": 99,
            "response": {**response, "status": "completed", "output": items},
        },
    ]
    for event in told[:-1]:
        state.handle_event(EVENT.validate_python(event))
    snapshot = state._ResponseStreamState__current_snapshot
    assert snapshot.output[0].content[0].text == "The end."
    assert snapshot.output[1].arguments == FUNCTION["arguments"]
    last = state.handle_event(EVENT.validate_python(told[-1]))[-1]
    assert [item.type for item in last.response.output] == ["message", "function_call", "shell_call"]


def test_ids_of_our_own_messages() -> None:
    """One response has one, whenever it is read; no upstream has it; it is as long as ids may be."""
    own = own_message_id("resp_1")
    assert own == own_message_id("resp_1") != own_message_id("resp_2")
    assert is_own_id(own)
    assert len(own) <= 64
    assert own.replace("_", "").isalnum()
    assert own_message_id("\ud83d").startswith("msg_")
    others: list[Any] = ["msg_0a1b2c", "", None, 5, "fc_1"]
    assert not any(map(is_own_id, others))
