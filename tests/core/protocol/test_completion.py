from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import raw
from proxy.core.protocol.completion import (
    Choice,
    Placed,
    UnreadableError,
    added_usage,
    edited_call,
    history_message,
    holds_call,
    place_calls,
    read_answer,
    read_choices,
    result_message,
    with_calls,
    with_text,
)

CALL = b'{"id":"c1","type":"function","function":{"name":"t","arguments":"{\\"n\\": 1.10}"},"extra":{"sig":"s"}}'
OTHER = b'{ "id" : "c2", "function" : { "name" : "u", "arguments" : {"n": 1.10} } }'
CUSTOM = b'{"id":"c3","type":"custom","custom":{"name":"v","input":"text"}}'
LEGACY = b'{"name":"t","arguments":"{\\"n\\": 1.10}"}'


def answer(message: bytes, finish: bytes = b'"tool_calls"') -> bytes:
    return b'{"id":"x", "choices": [ {"index": 0, "message": %s, "finish_reason": %s, "v": 1e2} ]}' % (message, finish)


def message_of(*calls: bytes, more: bytes = b"") -> bytes:
    return b'{"role":"assistant", "content":null,"tool_calls": [%s]%s}' % (b" , ".join(calls), more)


def only(body: bytes) -> Choice:
    value = read_answer(body)
    assert value is not None
    (choice,) = read_choices(body, value)
    return choice


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>tool_calls</html>",
        b"{}",
        b"[]",
        b"null",
        b'{"choices":null}',
        b'{"choices":{}}',
        b'{"error":{"message":"bad","failed_generation":"<function=x>"}}',
        b'[{"error":{"code":400}}]',
        b'{"choices":[{"message":{"content":"of \\"tool_calls\\"","parallel_tool_calls":true,}}]}',
        b"event: x",
        b'\xef\xbb\xbf{"choices":[{"message":{"content":"x","tool_calls":[]}}]}',
        b'{"choices":[{"message":{"content":"x"}}]} trailing',
        b"[" * 50,
        b'{"choices":[]}{"choices":[]}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_what_is_no_answer_with_choices(body: bytes) -> None:
    """Errors, other documents, broken JSON and odd text without a call are no answer to govern."""
    assert read_answer(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + answer(message_of(CALL)),
        answer(message_of(CALL)) + b" trailing",
        answer(message_of(CALL)) + answer(b"{}"),
        answer(b'{"function_call":{"name":"t"}}') + b"x",
        b'\xef\xbb\xbf{"output":[{"type":"function_call"}]}',
        b'\xef\xbb\xbf[{"type":"custom_tool_call"}]',
        answer(message_of(CALL)).decode().encode("utf-16"),
        answer(message_of(CALL)).decode().encode("utf-16-le"),
        answer(message_of(CALL, more=',"odd":"∀"'.encode())).decode().encode("utf-16-le"),
        answer(message_of(CALL)).decode().encode("utf-32"),
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b',"choices":[]}',
        answer(b'{"tool_calls":{"id":"c1","function":{"name":"t"}}}'),
        answer(b'{"tool_calls":"[]"}'),
        answer(b'{"tool_calls":true}'),
        b'{"choices":[{"message":{"tool_calls":[{}]',
        b"{}" + answer(message_of(CALL)),
        b"{}\n" + answer(message_of(CALL)) + b"\n",
        b'{"choices":[]}\n{"item":{"type":"shell_call"}}\n',
        b'{"choices":[{"message":{"tool_calls":[{"id":"a"}],}}]}',
        b'{"choices":[{"message":{"tool\\u005fcalls":[{"id":"a"}],}}]}',
        b'{"choices":[{"message":{"function_call":{"name":"t"},}}]}',
        b'["\xff",{"type":"odd_call"},]',
        b"data: " + answer(message_of(CALL)) + b"\n\n",
        (b"{}" + answer(message_of(CALL))).decode().encode("utf-16"),
        b"[" + answer(message_of(CALL)) + b"]",
        b'{"output":[{"type":"function_call"}]}',
        b'{"choices":[[{"message":{"tool_calls":[{"id":"a"}]}}]]}',
        b'{"choices":[],"output":[{"type":"function_call"}]}',
        b'{"choices":[],"response":{"output":[{"type":"function_call"}]}}',
        b'{"choices":[],"message":{"tool_calls":[{"id":"a"}]}}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_an_answer_that_could_hide_a_call_is_refused(body: bytes) -> None:
    """What two readers may read differently must not hold a call."""
    with pytest.raises(UnreadableError):
        read_answer(body)


@pytest.mark.parametrize(
    "odd", [b"NaN", b"-Infinity", b'"\\ud83d"', b'"\xff"', b"1e999", b"7" * 5000, b'"a\nb"'], ids=lambda odd: odd[:8]
)
def test_an_answer_with_oddities_in_use_is_read(odd: bytes) -> None:
    """NaN, half pairs, broken characters and endless numbers beside a call do not hide it."""
    choice = only(b" " + answer(message_of(CALL, more=b',"odd":' + odd)) + b"\n")
    assert [p.call.name for p in choice.placed] == ["t"]
    message = b'{"role":"assistant","content":null,"odd":%s}' % odd
    assert (
        with_calls(choice, [None]) == b'{"index": 0, "message": %s, "finish_reason": "tool_calls", "v": 1e2}' % message
    )


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({}, False),
        ([[], {"a": [{"tool_calls": []}, {"function_call": None}]}, 5, None], False),
        ({"type": "message"}, False),
        ({"type": 5}, False),
        ({"a": [{"b": {"tool_calls": [1]}}]}, True),
        ({"function_call": {}}, False),
        ({"function_call": {"name": "t"}}, True),
        ({"a": {"type": "mcp_call"}}, True),
    ],
)
def test_what_could_be_taken_for_a_call(value: Any, holds: bool) -> None:
    """A call is looked for at any depth; empty lists and nulls are none."""
    assert holds_call(value) is holds


def test_choices_are_read_with_their_places() -> None:
    """Each choice has its place in the list, its number, and its calls; what is no choice is passed over."""
    body = (
        b'{"choices":[null, {"index":7,"message":{"content":[{"text":"a"},{"text":"b"}]},"finish_reason":"stop"},'
        b'"x",{"message":null,"finish_reason":5},{"index":"0"}]}'
    )
    found = read_choices(body, json.loads(body))
    assert [(c.at, c.index, c.text, c.finish, c.placed) for c in found] == [
        (1, 7, "ab", "stop", ()),
        (3, 3, "", None, ()),
        (4, 4, "", None, ()),
    ]
    assert found[1].raw == b'{"message":null,"finish_reason":5}'


def test_calls_are_read_with_their_bytes() -> None:
    """Every entry is a call, those that are no objects too; their bytes are those of the answer."""
    message = message_of(CALL, OTHER, CUSTOM, b"null", b'"x"', b'{"id": 5}', more=b',"function_call":{"name": "w"}')
    placed = list(place_calls(json.loads(message), message))
    assert placed == [
        Placed(ToolCall(CallId("c1"), "t", '{"n": 1.10}'), CALL, 0),
        Placed(ToolCall(CallId("c2"), "u", '{"n": 1.10}', unwrapped=True), OTHER, 1),
        Placed(ToolCall(CallId("c3"), "v", "text", Kind.CUSTOM), CUSTOM, 2),
        Placed(ToolCall(CallId(""), "", ""), b"null", 3),
        Placed(ToolCall(CallId(""), "", ""), b'"x"', 4),
        Placed(ToolCall(CallId("5"), "", ""), b'{"id": 5}', 5),
        Placed(ToolCall(CallId(""), "w", "", Kind.LEGACY), b'{"name": "w"}', None),
    ]


@pytest.mark.parametrize("message", [b"{}", b'{"tool_calls":[]}', b'{"tool_calls":null,"function_call":null}'])
def test_empty_lists_and_nulls_are_no_calls(message: bytes) -> None:
    """A list without entries and a null beside it say that there is no call."""
    assert list(place_calls(json.loads(message), message)) == []


# ---------------------------------------------------------------- changing


def place(raw_call: bytes) -> ToolCall:
    message = message_of(raw_call)
    return next(place_calls(json.loads(message), message)).call


@pytest.mark.parametrize(
    ("entry", "change", "expected"),
    [
        (CALL, {}, CALL),
        (CALL, {"call_id": "c1"}, CALL),
        (CALL, {"call_id": "n"}, CALL.replace(b'"c1"', b'"n"')),
        (CALL, {"text": '{"n":2}'}, CALL.replace(b'"{\\"n\\": 1.10}"', b'"{\\"n\\":2}"')),
        (
            OTHER,
            {"text": '{"n":2.0}', "call_id": "n"},
            OTHER.replace(b'{"n": 1.10}', b'{"n":2.0}').replace(b"c2", b"n"),
        ),
        (OTHER, {"text": "{no json"}, OTHER.replace(b'{"n": 1.10}', b'"{no json"')),
        (CUSTOM, {"text": "other"}, CUSTOM.replace(b'"text"', b'"other"')),
        (b'{"id":5,"function":{}}', {"call_id": "5"}, b'{"id":5,"function":{}}'),
        (b'{"id":5,"function":{}}', {"call_id": "n"}, b'{"id":"n","function":{}}'),
        (b'{"id":"a","function":{"name":"t"}}', {"text": "{}"}, b'{"id":"a","function":{"name":"t","arguments":"{}"}}'),
        (b'{"id":"a"}', {"text": "{}"}, b'{"id":"a","function":{"arguments":"{}"}}'),
        (b'{"id":"","function":{"name":"t"}}', {"call_id": "n"}, b'{"id":"n","function":{"name":"t"}}'),
        (b'{"function":{"name":"t","id":"in"}}', {"call_id": "n"}, b'{"function":{"name":"t","id":"n"}}'),
        (
            b'{"id":null,"function":{"name":"t","id":"in"}}',
            {"call_id": "n"},
            b'{"id":"n","function":{"name":"t","id":"n"}}',
        ),
    ],
)
def test_a_call_is_changed_in_its_place(entry: bytes, change: dict[str, Any], expected: bytes) -> None:
    """Id and arguments change where they stand, in the shape that they came in; all else stays."""
    assert edited_call(entry, place(entry), **change) == expected


@pytest.mark.parametrize("entry", [b"null", b'"x"', b"5", b"[]"])
def test_what_is_no_call_is_not_changed(entry: bytes) -> None:
    """An entry that is no object has no place for an id or arguments."""
    assert edited_call(entry, place(entry), call_id="n", text="{}") == entry


@pytest.mark.parametrize("entry", [b'{"id":"a","function":null}', b'{"id":"a","function":"t"}'])
def test_arguments_have_a_place_in_any_entry(entry: bytes) -> None:
    """Where the function is no object, new arguments come with one."""
    assert edited_call(entry, place(entry), text="{}") == b'{"id":"a","function":{"arguments":"{}"}}'


def test_a_legacy_call_is_changed_in_its_place() -> None:
    """The old form has its arguments at the top, and no id."""
    call = ToolCall(CallId(""), "t", '{"n": 1.10}', Kind.LEGACY)
    assert edited_call(LEGACY, call, text="{}") == b'{"name":"t","arguments":"{}"}'
    assert edited_call(LEGACY, call) == LEGACY


@given(
    st.lists(st.tuples(st.sampled_from([CALL, OTHER, CUSTOM, b"null"]), st.sampled_from(["keep", "drop", "change"])))
)
def test_calls_of_a_choice_change_one_by_one(calls: list[tuple[bytes, str]]) -> None:
    """Kept calls keep their bytes and order, and where none is left there is no list; nothing else changes."""
    choice = only(answer(message_of(*(entry for entry, _ in calls))))
    kept = [{"keep": entry, "drop": None, "change": b'{"id":"n"}'}[how] for entry, how in calls]
    found = with_calls(choice, kept)
    left = [entry for entry in kept if entry is not None]
    if calls:
        listed = b'"content":null,"tool_calls": [%s]' % b",".join(left)
        expected = choice.raw.replace(b'"content":null,"tool_calls": [%s]' % b" , ".join(e for e, _ in calls), listed)
        if not left:
            expected = choice.raw.replace(raw(choice.raw, ("message",)) or b"", b'{"role":"assistant","content":null}')
        assert found == expected
    else:
        assert found == choice.raw


@pytest.mark.parametrize(
    ("message", "kept", "expected"),
    [
        (b'{"function_call":%s,"a":1}' % LEGACY, [None], b'{"a":1}'),
        (b'{"function_call":%s,"a":1}' % LEGACY, [b"{}"], b'{"function_call":{},"a":1}'),
        (b'{"tool_calls":[%s],"function_call":%s}' % (CALL, LEGACY), [b"{}"], b'{"tool_calls":[{}]}'),
        (b'{"tool_calls":[%s],"function_call":%s}' % (CALL, LEGACY), [None], b"{}"),
        (b'{"tool_calls":[%s],"function_call":{"name":"w"}}' % CALL, [None, b'{"x":1}'], b'{"function_call":{"x":1}}'),
        (b'{"tool_calls":[],"function_call":%s}' % LEGACY, [None], b'{"tool_calls":[]}'),
        (b'{"content":"x","function_call":null}', [], b'{"content":"x","function_call":null}'),
    ],
)
def test_old_and_new_forms_change_together(message: bytes, kept: list[bytes | None], expected: bytes) -> None:
    """A mirror of a call goes when anything changes; a legacy call of its own is changed like any other."""
    assert raw(with_calls(only(answer(message)), kept), ("message",)) == expected


def test_a_choice_with_other_text() -> None:
    """Content and finish reason change, and nothing else; content that is missing is added."""
    choice = only(answer(b'{"role":"assistant","content":null,"r":1.0}', b'"stop"'))
    assert with_text(choice.raw, "né") == choice.raw.replace(b"null", '"né"'.encode())
    assert with_text(choice.raw, "n", finish="x") == choice.raw.replace(b"null", b'"n"').replace(b'"stop"', b'"x"')
    assert raw(with_text(only(answer(b'{"a":1}')).raw, "n"), ("message",)) == b'{"a":1,"content":"n"}'


# ---------------------------------------------------------------- histories


@pytest.mark.parametrize(
    ("message", "calls", "expected"),
    [
        (message_of(CALL), True, message_of(CALL)),
        (message_of(CALL), False, b'{"role":"assistant","content":null}'),
        (
            b'{"role":"assistant","content":null,"refusal":null,"audio":null,"annotations":[],"reasoning_content":"r"}',
            True,
            b'{"role":"assistant","content":null,"reasoning_content":"r"}',
        ),
        (b'{"content":"x","tool_calls":[]}', True, b'{"content":"x","role":"assistant"}'),
        (b'{"role":"","content":"x"}', True, b'{"role":"assistant","content":"x"}'),
        (b'{"role":null,"content":"x"}', True, b'{"content":"x","role":"assistant"}'),
        (b'{"role":"assistant","content":[]}', True, b'{"role":"assistant","content":[]}'),
        (
            b'{"role":"a","function_call":%s,"x":{"y":null}}' % LEGACY,
            True,
            b'{"role":"a","function_call":%s,"x":{"y":null}}' % LEGACY,
        ),
        (b'{"role":"a","function_call":%s}' % LEGACY, False, b'{"role":"a"}'),
        (b"{}", False, b'{"role":"assistant"}'),
    ],
)
def test_an_answer_as_it_goes_back_into_a_history(message: bytes, calls: bool, expected: bytes) -> None:
    """Members that say nothing go, since upstreams refuse some of them; what was said stays to the byte."""
    assert json.loads(history_message(message, json.loads(message), calls=calls)) == json.loads(expected)
    assert "1.10" in history_message(message_of(CALL), json.loads(message_of(CALL)), calls=True)


def test_results_are_messages() -> None:
    """A result answers its call by id, or in the old form by name."""
    found = json.loads(result_message(ToolCall(CallId("c1"), "t", "{}"), "né\ud83d"))
    assert found == {"role": "tool", "tool_call_id": "c1", "content": "né\ud83d"}
    found = json.loads(result_message(ToolCall(CallId(""), "t", "{}", Kind.LEGACY), ""))
    assert found == {"role": "function", "name": "t", "content": ""}


@pytest.mark.parametrize(
    ("total", "more", "expected"),
    [
        (None, None, None),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1, "b": 2.5}, {"a": 3, "c": 4}, {"a": 4, "b": 2.5, "c": 4}),
        ({"d": {"x": 1, "n": None}}, {"d": {"x": 2, "n": 3, "y": None}}, {"d": {"x": 3, "n": 3, "y": None}}),
        ({"a": True, "s": "one"}, {"a": False, "s": "two"}, {"a": False, "s": "two"}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": 1}, {"a": "x"}, {"a": "x"}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ],
)
def test_usage_adds_up(total: Any, more: Any, expected: Any) -> None:
    """Numbers add up at any depth; what is no number is as the later answer says, unless that says nothing."""
    assert added_usage(total, more) == expected
