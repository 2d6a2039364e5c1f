"""A turn is known by what was said, however a framework writes it down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.core.protocol.response_digests import answer_digests, shown_digests
from proxy.core.protocol.response_request import ResponseRequest, read_request

Item = dict[str, Any]
USER: Item = {"role": "user", "content": "hello"}
CALL: Item = {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": "{}"}
RESULT: Item = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
HISTORY = [USER, CALL, RESULT]


def asked(items: Sequence[Any] | str, **more: Any) -> ResponseRequest:
    given = items if isinstance(items, str) else list(items)
    return read_request(json.dumps({"model": "m", "input": given, **more}).encode(), 64)


def said(text: Any, **more: Any) -> Item:
    return {"type": "message", "role": "assistant", "content": text, **more}


def shown(*items: Any, **more: Any) -> dict[int, list[str]]:
    request = asked(items, **more)
    return shown_digests(request, request.items)


def finds(digests: Sequence[str], *items: Any, **more: Any) -> list[int]:
    """The items that a turn is found at."""
    return [index for index, places in shown(*items, **more).items() if set(places) & set(digests)]


def test_an_answer_is_found_by_its_last_message_and_by_all_that_was_said() -> None:
    """One digest where these are the same."""
    answer = answer_digests(asked(HISTORY), ["One.", "Two."])
    assert len(answer) == 2
    assert finds(answer, *HISTORY, said("One."), said("Two.")) == [4]
    assert finds(answer, *HISTORY, said("One.Two.")) == [3]
    assert finds(answer, *HISTORY, said("Hm."), said("Two.")) == [4]
    assert finds(answer, *HISTORY, said("One.")) == []
    assert len(answer_digests(asked(HISTORY), ["One."])) == 1


@pytest.mark.parametrize(
    "history",
    [
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}, CALL, RESULT],
        [USER, {"type": "reasoning", "summary": []}, {**CALL, "id": "fc_1", "arguments": '{"edited": 1}'}, RESULT],
        [USER, said("Let me see."), {"type": "item_reference", "id": "fc_1"}, {**RESULT, "id": "fco_1"}],
    ],
)
def test_a_history_in_other_words(history: list[Item]) -> None:
    """Spelling, ids, reasoning and what the assistant did on the way make no difference."""
    answer = answer_digests(asked(HISTORY), ["Done."])
    assert finds(answer, *history, said("Done.")) == [len(history)]


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "user", "content": "hello!"}, CALL, RESULT],
        [{"role": "developer", "content": "hello"}, CALL, RESULT],
        [USER, CALL, {**RESULT, "output": "lost"}],
        [USER, CALL, {**RESULT, "call_id": "call_2"}],
        [USER, USER, CALL, RESULT],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}, CALL, RESULT],
        [],
    ],
)
def test_another_history(history: list[Item]) -> None:
    """What the user said and what tools gave does."""
    assert finds(answer_digests(asked(HISTORY), ["Done."]), *history, said("Done.")) == []


def test_parts_that_are_no_text() -> None:
    """They count, whatever the order of their keys."""
    image = {"type": "input_image", "image_url": "data:,"}
    answer = answer_digests(asked([{"role": "user", "content": [image]}]), ["A cat."])
    turned = {"image_url": "data:,", "type": "input_image"}
    assert finds(answer, {"role": "user", "content": [turned]}, said("A cat.")) == [1]
    assert finds(answer, {"role": "user", "content": [{**image, "image_url": "data:,x"}]}, said("A cat.")) == []


def test_an_input_of_one_string_is_the_user_s() -> None:
    assert answer_digests(asked("hello"), ["Done."]) == answer_digests(asked([USER]), ["Done."])


@pytest.mark.parametrize("name", ["safety_identifier", "prompt_cache_key", "user"])
def test_who_it_is_for_counts(name: str) -> None:
    answer = answer_digests(asked(HISTORY, **{name: "one"}), ["Done."])
    assert finds(answer, *HISTORY, said("Done."), **{name: "one"}) == [3]
    assert finds(answer, *HISTORY, said("Done."), **{name: "two"}) == []


def test_only_a_message_that_ended_a_turn_is_looked_for() -> None:
    """The last before the user's next words, or before the end."""
    items = [USER, said("a"), CALL, RESULT, said("b"), {"type": "reasoning", "summary": []}, said("c"), USER, said("d")]
    assert list(shown(*items)) == [6, 8]


def test_an_id_says_more_unless_the_user_s_words_have_ids_too() -> None:
    """Those of a conversation have: its items got new ones."""
    answer = answer_digests(asked(HISTORY), ["Done."])
    assert finds(answer, *HISTORY, said("Done.", id="msg_1")) == []
    assert finds(answer, {**USER, "id": "msg_0"}, CALL, RESULT, said("Done.", id="msg_1")) == [3]


def test_what_is_no_item_and_an_answer_without_words() -> None:
    assert finds(answer_digests(asked([USER]), []), USER, 1, said("")) == [2]
    assert shown() == {}
