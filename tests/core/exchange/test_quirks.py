"""What servers do to a chat stream: each quirk in words, and what a client gets of it.

Two rules are in force: `delete_file` is blocked, and `limit` of `search` is held at most at 10.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.errors import UpstreamError
from tests.core.exchange.streams import (
    DONE,
    USAGE,
    WORLD,
    A,
    B,
    C,
    calls,
    entry,
    event,
    role,
    split,
    sse,
    text,
    usage,
    whole,
)
from tests.strictreader import Folded, read_strictly
from tests.transcript import relay, single_bytes

OVER, FINE = '{"q":"kelp","limit":50}', '{"q":"kelp","limit":5}'
HELD = '{"q":"kelp","limit":10}'
PATH = '{"path":"/srv/doomed"}'
END, STOP = event({}, "tool_calls"), event({}, "stop")
NEXT = sse(role(), text("goes on"), event({}, "stop"))
DELETE = whole(0, A, "delete_file", PATH)
SEARCH = whole(1, B, "search", OVER)
CLAMPED = ["function", "search", HELD]


def both(first: dict[str, Any], second: dict[str, Any], **more: Any) -> bytes:
    return sse(role(), first, second, END, **more)


def bare(one: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An event without a member that others have, or with other ones."""
    return {k: v for k, v in {**one, **more}.items() if v is not None}


UNTOUCHED: dict[str, bytes] = {
    "a comment as keepalive": sse(b": ping\n\n", role(), b": OPENROUTER PROCESSING\n\n", text("hi"), STOP),
    "a comment wrapped into data": sse(role(), b"data: : keepalive\n\n", text("hi"), STOP),
    "an id line, and a comment behind it": sse(b"id: 1\n", role(), b": ping\n\n", STOP),
    "an event without data": sse(role(), b"event: keepalive\n\n", text("hi"), STOP),
    "line ends of every kind": sse(role(), text("hi"), STOP).replace(b"\n", b"\r\n"),
    "line ends by CR alone": sse(role(), text("hi"), STOP).replace(b"\n", b"\r"),
    "no space behind the colon": sse(role(), text("hi"), STOP).replace(b"data: ", b"data:"),
    "one JSON over several lines": sse(role(), text("hi")).replace(b',"choices"', b',\ndata: "choices"'),
    "a line separator inside a string": sse(role(), text("a\u2028b\u0085c"), STOP),
    "a byte-order mark first": b"\xef\xbb\xbf" + sse(role(), text("hi"), STOP),
    "no last event": sse(role(), text("hi"), STOP, done=False),
    "a last event without its blank line": sse(role(), text("hi"), STOP).rstrip(b"\n"),
    "neither a finish reason nor a last event": sse(role(), text("hi"), done=False),
    "a last event without a finish reason": sse(role(), text("hi")),
    "text behind the last event": sse(role(), STOP, DONE, text("late"), usage()),
    "a first chunk without choices (Azure)": sse(
        {"id": "", "choices": [], "model": "", "prompt_filter_results": [{"prompt_index": 0}]},
        role(),
        STOP,
    ),
    "a choice without a delta": sse(role(), {"choices": [{"index": 0, "content_filter_results": {}}]}, STOP),
    "a delta that is null": sse(role(), {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}),
    "usage without choices": sse(role(), STOP, {"usage": USAGE}),
    "usage with choices that are null": sse(role(), STOP, {"choices": None, "usage": USAGE}),
    "usage in every chunk": sse(event({"role": "assistant"}, usage=USAGE), event({}, "stop", usage=USAGE)),
    "usage in a chunk behind the finish": sse(role(), STOP, event({"content": ""}, usage=USAGE)),
    "ids that differ inside one stream": sse(role(), {**text("hi"), "id": "other"}, STOP),
    "a role that is empty, then in every chunk": sse(
        event({"role": "", "content": "a"}), event({"role": "assistant", "content": "b"}), STOP
    ),
    "an empty list of calls in every delta": sse(
        event({"tool_calls": [], "content": "a"}), event({"tool_calls": []}, "stop")
    ),
    "content that is a list": sse(event({"role": "assistant", "content": []}), STOP),
    "reasoning under three names": sse(
        event({"reasoning_content": "a", "reasoning": "b", "reasoning_details": [{"text": "c"}]}), STOP
    ),
    "NaN in logprobs": sse(b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":[NaN]}]}\n\n'),
    "half a surrogate pair in text": sse(b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'),
    "padding": sse(role(), {**text("hi"), "obfuscation": "zz"}, STOP),
    "a refusal": sse(role(), event({"refusal": "no"}), STOP),
    "a misspelt object type": sse({**text("hi"), "object": "chat.completions.chunk"}, STOP),
    "a function call that is null": sse(event({"function_call": None, "content": "a"}), STOP),
    "a call left in the text": sse(role(), text('<tool_call>{"name":"delete_file"}</tool_call>'), STOP),
    "an error that holds a failed call": sse(
        {"error": {"message": "m", "failed_generation": "<function=delete_file>"}}
    ),
    "two choices in one event, only text": sse(
        {"choices": [{"index": i, "delta": {"role": "assistant", "content": "a"}} for i in (0, 1)]}, STOP
    ),
    "an allowed call as OpenAI sends it": sse(role(), *split(0, A, "search", FINE), END),
    "an allowed call in one chunk with everything": sse(
        {**calls(entry(0, A, "search", FINE), finish="tool_calls", role="assistant", content="hm"), "usage": USAGE}
    ),
    "an allowed call that no number stands before": sse(role(), whole(None, A, "search", FINE), END),
    "allowed calls that are all number 0": both(whole(0, A, "search", FINE), whole(0, B, "search", FINE)),
    "allowed calls numbered from 1": both(whole(1, A, "search", FINE), whole(2, B, "show", "{}")),
    "an allowed call with its name said in every fragment": sse(
        role(), calls(entry(0, A, "search", FINE[:9])), calls(entry(0, A, "search", FINE[9:])), END
    ),
    "an id that is a number": sse(role(), calls({**entry(0, "", "search", FINE), "id": 123}), END),
    "an empty id": sse(role(), whole(0, "", "search", FINE), END),
    "no id": sse(role(), whole(0, None, "search", FINE), END),
    "arguments that are empty": sse(role(), whole(0, A, "show", ""), END),
    "arguments that are null": sse(
        role(), calls({**entry(0, A, "show"), "function": {"name": "show", "arguments": None}}), END
    ),
    "a name with a slash and a colon": sse(role(), whole(0, A, "fs/show:all", "{}"), END),
    "a finish reason of another word": sse(role(), whole(0, A, "show", "{}"), event({}, "end_turn")),
    "a custom call": sse(
        role(), calls({"index": 0, "id": A, "type": "custom", "custom": {"name": "patch", "input": "a"}}), END
    ),
    "a legacy call": sse(
        event({"role": "assistant", "function_call": {"name": "show", "arguments": ""}}), event({}, "function_call")
    ),
}


@pytest.mark.parametrize("words", UNTOUCHED)
def test_nothing_changes_where_nothing_has_to(words: str) -> None:
    """An odd stream without a call to hold or change passes byte for byte, however it is cut."""
    data = UNTOUCHED[words]
    assert relay(WORLD, data).text == relay(WORLD, single_bytes(data)).text
    assert relay(WORLD, data).out == data


def one_left(**more: Any) -> dict[str, Any]:
    return {"calls": [[B, *CLAMPED]], "finish": "tool_calls", "content": "", **more}


CHANGED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "one call to drop and one to change": (both(DELETE, SEARCH), one_left()),
    "no numbers": (both(whole(None, A, "delete_file", PATH), whole(None, B, "search", OVER)), one_left()),
    "all numbers 0": (both(whole(0, A, "delete_file", PATH), whole(0, B, "search", OVER)), one_left()),
    "numbers from 1": (both(whole(1, A, "delete_file", PATH), whole(2, B, "search", OVER)), one_left()),
    "numbers out of order": (both(whole(1, A, "delete_file", PATH), whole(0, B, "search", OVER)), one_left()),
    "a dropped call between calls numbered from 1": (
        sse(role(), whole(1, B, "search", FINE), whole(2, A, "delete_file", PATH), whole(3, C, "show"), END),
        {"calls": [[B, "function", "search", FINE], [C, "function", "show", "{}"]], "finish": "tool_calls"},
    ),
    "everything in one chunk": (
        sse({**calls(*(e for one in (DELETE, SEARCH) for e in one["choices"][0]["delta"]["tool_calls"]),
                     finish="tool_calls", role="assistant", content="hm"), "usage": USAGE}),
        one_left(content="hm"),
    ),
    "the finish with the last call": (
        sse(role(), DELETE, calls(entry(1, B, "search", OVER), finish="tool_calls")), one_left()
    ),
    "a finish reason of stop": (sse(role(), DELETE, SEARCH, event({}, "stop")), one_left(finish="stop")),
    "interleaved fragments": (
        sse(role(), calls(entry(0, A, "delete_file", "")), calls(entry(1, B, "search", "")), calls(entry(0, args=PATH)),
            calls(entry(1, args=OVER)), END),
        one_left(),
    ),
    "a number that changes on the way": (
        sse(role(), calls(entry(0, B, "search", OVER[:8])), calls(entry(1, args=OVER[8:])), END), one_left()
    ),
    "an empty id and name in continuations": (
        sse(role(), DELETE, calls(entry(1, B, "search", "")), calls(entry(1, "", "", OVER)), END), one_left()
    ),
    "null for id, type and name in continuations": (
        sse(role(), DELETE, calls(entry(1, B, "search", "")),
            calls({"index": 1, "id": None, "type": None, "function": {"name": None, "arguments": OVER}}), END),
        one_left(),
    ),
    "id and name in every fragment": (
        sse(role(), calls(entry(0, A, "delete_file", "")), calls(entry(0, A, "delete_file", PATH)),
            calls(entry(1, B, "search", OVER[:5])), calls(entry(1, B, "search", OVER[5:])), END),
        one_left(),
    ),
    "a name in pieces": (
        sse(role(), calls(entry(0, A, "delete", "")), calls(entry(0, None, "_file", "")), calls(entry(0, args=PATH)),
            calls(entry(1, B, "se", "")), calls(entry(1, None, "arch", "")), calls(entry(1, args=OVER)), END),
        one_left(),
    ),
    "an unchanged name in pieces behind a dropped call": (
        sse(role(), DELETE, calls(entry(1, C, "sh", "")), calls(entry(1, None, "ow", "")),
            calls(entry(1, args="{}")), END),
        {"calls": [[C, "function", "show", "{}"]]},
    ),
    "arguments before the name": (
        sse(role(), calls(entry(0, A, None, PATH)), calls(entry(0, None, "delete_file")),
            calls(entry(1, B, None, OVER)), calls(entry(1, None, "search")), END),
        one_left(),
    ),
    "the id inside the function": (
        sse(role(), DELETE, calls({"index": 1, "function": {"id": B, "name": "search", "arguments": OVER}}), END),
        one_left(),
    ),
    "a prefix before the name": (both(whole(0, A, "functions.delete_file", PATH), SEARCH), one_left()),
    "control tokens in the name": (both(whole(0, A, "delete_file<|channel|>commentary", PATH), SEARCH), one_left()),
    "white space around the name": (both(whole(0, A, " delete_file ", PATH), SEARCH), one_left()),
    "another spelling of the name": (both(whole(0, A, "deleteFile", PATH), SEARCH), one_left()),
    "no name at all": (both(whole(0, A, "", PATH), SEARCH), one_left()),
    "a wrapper for parallel calls": (
        both(whole(0, A, "multi_tool_use.parallel",
                   '{"tool_uses":[{"recipient_name":"functions.delete_file","parameters":{}}]}'), SEARCH),
        one_left(),
    ),
    "a custom call where a function is expected": (
        both(calls({"index": 0, "id": A, "type": "custom", "custom": {"name": "delete_file", "input": PATH}}), SEARCH),
        one_left(),
    ),
    "arguments again in full": (
        both(DELETE, whole(1, B, "search", FINE + FINE)), one_left(calls=[[B, "function", "search", FINE]])
    ),
    "arguments again in full, behind another call": (
        sse(role(), whole(0, B, "search", FINE), whole(1, A, "delete_file", PATH), calls(entry(0, args=OVER)), END),
        one_left(calls=[[B, "function", "search", FINE]]),
    ),
    "a key twice, spelled in two ways": (
        sse(role(), whole(0, B, "search", '{"limit":5,"l\\u0069mit":5000}'), END),
        one_left(calls=[[B, "function", "search", '{"limit":10}']]),
    ),
    "a pair of surrogates in two fragments": (
        sse(role(), DELETE, b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"%s",'
            b'"type":"function","function":{"name":"search","arguments":"{\\"q\\":\\"\\ud83d"}}]}}]}\n\n' % B.encode(),
            b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":'
            b'"\\udc38\\",\\"limit\\":50}"}}]}}]}\n\n', END),
        one_left(calls=[[B, "function", "search", '{"q":"\U0001f438","limit":10}']]),
    ),
    "arguments encoded twice": (
        both(DELETE, whole(1, B, "search", json.dumps(OVER))),
        one_left(calls=[[B, "function", "search", json.dumps(HELD)]]),
    ),
    "arguments that are null, in words": (both(DELETE, whole(1, B, "search", "null")),
                                          {"calls": [], "content": "goes on", "finish": "stop"}),
    "arguments that were cut": (both(DELETE, whole(1, B, "search", OVER[:9])),
                                {"calls": [], "content": "goes on", "finish": "stop"}),
    "text between and behind the calls": (
        sse(role(), text("a"), DELETE, text("b"), SEARCH, text("c"), END), one_left(content="abc")
    ),
    "text in the events of calls": (
        sse(role(), calls(entry(0, A, "delete_file", PATH), content="a"), text("b"),
            calls(entry(1, B, "search", OVER), content="c"), text("d"), END),
        one_left(content="abcd"),
    ),
    "the role in the event of a call, and text behind it": (
        sse(calls(entry(0, A, "delete_file", PATH), role="assistant"), text("a"), SEARCH, END), one_left(content="a")
    ),
    "no last event, and an end without a blank line": (both(DELETE, SEARCH, done=False).rstrip(b"\n"), one_left()),
    "a turn that was cut by its length": (
        sse(role(), DELETE, whole(1, C, "show"), event({}, "length")),
        {"calls": [[C, "function", "show", "{}"]], "finish": "length"},
    ),
    "a finish reason that never comes": (
        sse(role(), DELETE, whole(1, C, "show")), {"calls": [[C, "function", "show", "{}"]], "finish": None}
    ),
    "usage in every chunk beside calls": (
        sse(role(), *({**one, "usage": USAGE} for one in (DELETE, SEARCH, END))), one_left()
    ),
    "logprobs of a dropped call": (
        sse(role(), {"choices": [{**DELETE["choices"][0], "logprobs": {"content": [{"token": "delete_file"}]}}],
                     "t": 1}, SEARCH, END),
        one_left(),
    ),
    "the whole message again at the end": (
        sse(role(), DELETE, SEARCH,
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls",
                          "message": {"tool_calls": [entry(None, A, "delete_file", PATH)]}}]}),
        one_left(),
    ),
    "a call behind the end": (
        sse(role(), SEARCH, END, DELETE, event({"content": ""}, usage=USAGE)), one_left()
    ),
    "a call behind the last event": (sse(role(), SEARCH, END, DONE, DELETE, done=False), one_left()),
    "every call blocked": (
        sse(role(), DELETE, END, usage()), {"calls": [], "content": "goes on", "finish": "stop"}
    ),
    "every call blocked, text beside": (
        sse(role(), calls(entry(0, A, "delete_file", PATH), content="Hm."), END),
        {"calls": [], "content": "Hm.\n\ngoes on", "finish": "stop"},
    ),
    "every call blocked, all in one chunk": (
        sse(calls(entry(0, A, "delete_file", PATH), finish="tool_calls", role="assistant", content="Hm.")),
        {"calls": [], "content": "Hm.\n\ngoes on", "finish": "stop"},
    ),
    "a blocked legacy call": (
        sse(role(), event({"function_call": {"name": "delete_file", "arguments": ""}}),
            event({"function_call": {"arguments": PATH}}), event({}, "function_call")),
        {"calls": [], "function_call": None, "content": "goes on", "finish": "stop"},
    ),
    "a changed legacy call": (
        sse(role(), event({"function_call": {"name": "search", "arguments": ""}}),
            event({"function_call": {"arguments": OVER}}), event({}, "function_call")),
        {"calls": [], "function_call": ["search", HELD], "finish": "function_call"},
    ),
    "a signature on the call that goes": (
        both(calls({**entry(0, A, "delete_file", PATH), "extra_content": {"google": {"thought_signature": "sig"}}}),
             SEARCH),
        one_left(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", CHANGED)
def test_what_a_client_makes_of_a_quirk(words: str) -> None:
    """Nothing of a blocked call is sent, and a strict reader finds what is left in order, however the stream is cut."""
    data, wanted = CHANGED[words]
    got = relay(WORLD, data, NEXT)
    assert relay(WORLD, single_bytes(data), NEXT).text == got.text
    assert not [trace for trace in (A, "delete_file", "deleteFile", "doomed", "sig") if trace.encode() in got.out]
    folded = read_strictly(got.out).choices[0]
    assert {key: getattr(folded, key) for key in wanted} == wanted


@pytest.mark.parametrize("odd", [["delete_file"], {"delete_file": 1}, 5])
def test_a_name_that_is_no_text_is_no_way_past_a_rule(odd: Any) -> None:
    """It is none, which every rule that can hold meets, whatever text comes with it."""
    head = {"index": 0, "id": A, "type": "function", "function": {"name": odd, "arguments": ""}}
    for entries in ([head, entry(0, args=PATH)], [head, entry(0, None, "show"), entry(0, args=PATH)]):
        data = sse(role(), *map(calls, entries), END)
        for pieces in ([data], single_bytes(data)):
            got = relay(WORLD, pieces, NEXT)
            assert read_strictly(got.out).choices[0].content == "goes on"
            assert b"delete_file" not in got.out
            assert [judged.call.name for judged in got.told] == [""]


def test_arguments_that_are_an_object_stay_one() -> None:
    """They are judged as what they are, with their numbers as spelled; blocked like any others."""
    over = calls(entry(1, B, "search", {"q": "1.10", "limit": 50}))
    dropped = calls(entry(0, A, "delete_file", {"path": "/srv"}))
    out = relay(WORLD, sse(role(), dropped, over, END)).out.replace(b'"1.10"', b"1.10")
    raw = sse(role(), dropped, over, END).replace(b'"1.10"', b"1.10")
    got = relay(WORLD, raw)
    assert got.out == out
    assert b'"arguments":{"q":1.10,"limit":10}' in got.out
    assert b"/srv" not in got.out
    assert relay(WORLD, single_bytes(raw)).out == got.out


def test_vendor_fields_of_a_call_that_is_changed_stay() -> None:
    """A call in one piece still has what the upstream put on it, inside the function too."""
    made = {**entry(0, B, "search", OVER), "extra_content": {"google": {"thought_signature": "sig"}}}
    made["function"]["strictness"] = 1
    got = relay(WORLD, sse(role(), calls(made), END)).out
    assert b'"extra_content":{"google":{"thought_signature":"sig"}}' in got
    assert b'"strictness":1' in got


@pytest.mark.parametrize("done", [True, False])
def test_an_error_in_the_middle_ends_what_was_held(done: bool) -> None:
    """The upstream's error goes on as it came; what was held goes nowhere, and nothing is ended in its place."""
    error = {"error": {"message": "overloaded", "code": 502}, "choices": [{"index": 0, "delta": {"content": ""}}]}
    data = sse(role(), text("a"), calls(entry(0, B, "search", OVER[:5])), error, done=done)
    assert relay(WORLD, data).out == sse(role(), text("a"), error, done=done)
    assert relay(WORLD, single_bytes(data)).out == relay(WORLD, data).out


def test_a_call_in_an_error_event_is_no_way_out() -> None:
    """An event that says both passes without its choices."""
    error = {**DELETE, "error": {"message": "overloaded"}}
    assert relay(WORLD, sse(role(), error)).out == sse(role(), {**error, "choices": []})


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]} {}\n\n',
        b'data: \xef\xbb\xbf{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]}\n\n',
        b"data: {'choices':[{'delta':{\"tool_calls\":[{'function':{'name':'delete_file'}}]}}]}\n\n",
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":{"0":{"function":{"name":"delete_file"}}}}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}],}}]}\n\n',
        b'data: {}{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]}\n\n',
        b'data: [{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]}]\n\n',
        b'data: {"choices":[{"index":0,"delta":[{"tool_calls":[{"function":{"name":"delete_file"}}]}]}]}\n\n',
        b'data: {"choices":[[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]]}\n\n',
        b'data: {"choices":{"0":{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}}}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"tool_calls":[{"function":{"name":"delete_file"}}]}]}\n\n',
        b'data: {"choices":[],"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}\n\n',
        b': ping\n{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"delete_file"}}]}}]}\n\n',
        b'data: {"type":"response.output_item.done","item":{"type":"function_call","name":"delete_file"}}\n\n',
        b'data: {"type":"response.completed","response":{"output":[{"type":"new_call","name":"delete_file"}]}}\n\n',
        b'data: {"type":"response.function_call_arguments.delta","delta":"delete_file"}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"delete_file","name":"show"}}]}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"delete_file"}}],"tool_calls":[]}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool\\u005fcalls":[{"id":"delete_file"}]}}],"choices":[]}\n\n',
    ],
)
def test_an_event_that_could_hide_a_call_breaks_the_answer_off(data: bytes) -> None:
    """What cannot be read in one way is never passed on unread; what came before it is sent."""
    for pieces in ([sse(role(), data)], single_bytes(sse(role(), data))):
        got = relay(WORLD, pieces)
        assert isinstance(got.error, UpstreamError)
        assert got.out == sse(role(), done=False)


def test_what_is_told_of_a_dropped_call_is_what_came_beside_it() -> None:
    """Metadata and usage of an event whose call goes reach the client, its padding and logprobs do not."""
    held = {**DELETE, "system_fingerprint": "fp", "obfuscation": "zz", "x_vendor": {"a": 1}, "usage": USAGE}
    got = relay(WORLD, sse(role(), held, SEARCH, END)).out
    assert [mark for mark in (b"fp", b"x_vendor", b'"usage"', b"zz") if mark in got] == [b"fp", b"x_vendor", b'"usage"']


def test_folding_is_the_same_for_every_choice() -> None:
    """Two choices, the second first, their events mixed: each is its own batch and is continued by itself."""
    data = sse(
        role(1), role(0), event({"tool_calls": [entry(0, A, "delete_file", "")]}, index=1),
        event({"tool_calls": [entry(0, B, "search", OVER)]}), event({"tool_calls": [entry(0, args=PATH)]}, index=1),
        event({}, "tool_calls", 1), text("x"), event({}, "tool_calls"), usage(),
    )  # fmt: skip
    for pieces in ([data], single_bytes(data)):
        read = read_strictly(relay(WORLD, pieces, NEXT).out)
        assert read.choices[1] == Folded("assistant", "goes on", finish="stop")
        assert read.choices[0] == Folded("assistant", "x", calls=[[B, *CLAMPED]], finish="tool_calls")
        assert (read.done, read.usage) == (1, USAGE)


def test_one_event_for_two_choices_is_taken_apart_where_that_makes_a_difference() -> None:
    """The calls of both are in one event, and so is their end."""

    one = {"role": "assistant", "tool_calls": [entry(0, A, "delete_file", PATH)]}
    other = {"role": "assistant", "tool_calls": [entry(0, B, "search", OVER)]}
    deltas = [{"index": index, "delta": delta} for index, delta in enumerate((one, other))]
    ends: list[dict[str, Any]] = [{"index": index, "delta": {}, "finish_reason": "tool_calls"} for index in (0, 1)]
    data = sse({**event(), "choices": deltas}, {**event(), "choices": ends}, usage())
    read = read_strictly(relay(WORLD, data, NEXT).out)
    assert (read.choices[0].content, read.choices[1].calls) == ("goes on", [[B, *CLAMPED]])
