from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import edit, raw
from proxy.core.protocol.chat import (
    MAX_TOOLS,
    ChatRequest,
    advertise,
    calls_of,
    closing_choice,
    content_text,
    declaration,
    digest_with,
    digests,
    essence,
    hide_tools,
    meaning,
    read_call,
    read_history,
    read_request,
    relaxed_choice,
)
from proxy.errors import RequestError

DEEP = "[" * 900 + "]" * 900


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def request(**value: Any) -> ChatRequest:
    return read_request(json.dumps(value).encode(), 128)


def entry_of(name: Any, arguments: Any = "{}", call_id: Any = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---------------------------------------------------------------- reading a request


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf{}",
        '{"model":"m"}'.encode("utf-16"),
        '{"model":"m"}'.encode("utf-16-le"),
        '{"model":"m"}'.encode("utf-16-be"),
        '{"model":"m"}'.encode("utf-32"),
        '{"model":"m"}'.encode("utf-32-be"),
        b'{"model":"a","model":"b"}',
        b'{"tools":[],"\\u0074ools":[]}',
        b'{"x":NaN,"tools":1,"tools":2}',
        b'{"a":' + b"[" * 128 + b"]" * 128 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_two_readers_read_differently_is_refused(body: bytes) -> None:
    """A mark, another encoding, a key twice and nesting beyond the limit are the client's to mend."""
    with pytest.raises(RequestError, match="cannot be read in one way") as caught:
        read_request(body, 128)
    assert (caught.value.status, caught.value.code) == (400, "invalid_request_body")


@pytest.mark.parametrize("body", [b"", b"{", b"text", b"[]", b"5", b"null", b'{"a":}', b"\xff", b"{}}{"])
def test_what_is_no_object_is_for_the_upstream_to_judge(body: bytes) -> None:
    """A body that is no JSON object says nothing and is not changed."""
    found = read_request(body, 128)
    assert (found.body, found.value, found.declared, found.messages) == (body, {}, {}, [])


@pytest.mark.parametrize(
    "body",
    [
        b'{"tools":[%s],"temperature":NaN}',
        b'{"tools":[%s],"x":1e999}',
        b'{"tools":[%s],"x":' + b"9" * 5000 + b"}",
        b'{"tools":[%s],"user":"\\ud83d"}',
        b'{"tools":[%s],"user":"\xff"}',
        b'{"tools":[%s],"us\xffer":1}',
        b'{"tools":[%s],"us\\ud83der":1}',
        b'{"tools":[%s],"user":"a\nb"}',
        b'{"tools":[%s]} and more',
    ],
    ids=lambda body: repr(body[-24:]),
)
def test_what_some_upstream_takes_is_read(body: bytes) -> None:
    """Oddities that a strict reader refuses hide no tool, and stay where something else changes."""
    expected = body.replace(b'"tools":[%s],', b"").replace(b'"tools":[%s]', b"")
    found = read_request(body.replace(b"%s", json.dumps(tool("delete")).encode()), 128)
    assert found.declared == {"delete": {"type": "object"}}
    changes = hide_tools(found, lambda name: name == "delete")
    assert edit(found.body, changes) == expected


def test_what_a_request_says() -> None:
    """Fields of the wrong type say nothing; the word of the newer field counts."""
    whole = request(messages=[1], n=2, user="u", safety_identifier="s", response_format={"type": "json_schema"})
    assert (whole.messages, whole.choices, whole.user, whole.wants_json) == ([1], 2, "s", True)
    assert request(user="u", safety_identifier="").user == "u"
    odd = request(messages={"a": 1}, n="2", user=7, safety_identifier=None, response_format="json_object")
    assert (odd.messages, odd.choices, odd.user, odd.wants_json) == ([], 1, "", False)
    assert request(response_format={"type": "text"}).wants_json is False


def test_declared_tools() -> None:
    """Functions, custom tools and legacy functions are declared by name; what has no name declares nothing."""
    found = request(
        tools=[
            tool("a"),
            {"type": "custom", "custom": {"name": "b", "format": {"type": "text"}}},
            {"type": "function", "function": {"name": 5}},
            {"type": "function", "function": "c"},
            {"type": "web_search"},
            "d",
            None,
        ],
        functions=[{"name": "e", "parameters": {"x": 1}}, {"name": None}, 3],
    )
    assert found.declared == {"a": {"type": "object"}, "b": None, "e": {"x": 1}}
    assert request(tools={"a": 1}, functions="x").declared == {}


# ---------------------------------------------------------------- tools of a request


def hidden(*names: str, **value: Any) -> dict[str, Any]:
    """A request's value after these tools were hidden."""
    found = request(**value)
    edited: dict[str, Any] = json.loads(edit(found.body, hide_tools(found, lambda name: name in names)))
    return edited


A, B, C = tool("a"), tool("b"), {"type": "custom", "custom": {"name": "c"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [A, B]}}


@pytest.mark.parametrize(
    ("names", "value", "expected"),
    [
        ("x", {"tools": [A, B]}, {"tools": [A, B]}),
        ("a", {"tools": [A, B, C], "tool_choice": "auto"}, {"tools": [B, C], "tool_choice": "auto"}),
        ("c", {"tools": [A, C, None, 5]}, {"tools": [A, None, 5]}),
        ("ab", {"tools": [A, B], "tool_choice": "required", "parallel_tool_calls": False, "n": 1}, {"n": 1}),
        ("a", {"tools": [A], "model": "m"}, {"model": "m"}),
        ("a", {"functions": [{"name": "a"}, {"name": "b"}]}, {"functions": [{"name": "b"}]}),
        ("a", {"functions": [{"name": "a"}], "function_call": "auto"}, {}),
        ("ab", {"tools": [A, B], "tool_choice": ALLOWED}, {}),
        ("abc", {"tools": [A, B, C, tool("d")], "tool_choice": ALLOWED}, {"tools": [tool("d")], "tool_choice": "none"}),
        (
            "a",
            {"tools": [A, B], "tool_choice": ALLOWED},
            {
                "tools": [B],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [B]}},
            },
        ),
        ("x", {"tools": [A, B], "tool_choice": ALLOWED}, {"tools": [A, B], "tool_choice": ALLOWED}),
        (
            "a",
            {"tools": {"a": 1}, "tool_choice": {"allowed_tools": 5}},
            {"tools": {"a": 1}, "tool_choice": {"allowed_tools": 5}},
        ),
        ("a", {"tools": []}, {"tools": []}),
    ],
)
def test_hidden_tools_go(names: str, value: dict[str, Any], expected: dict[str, Any]) -> None:
    """Tools go from every list that offers them; where none is left, nothing that speaks of tools is."""
    assert hidden(*names, **value) == expected


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": {"type": "function", "function": {"name": "a"}}},
        {"tool_choice": {"type": "custom", "custom": {"name": "a"}}},
        {"tool_choice": {"name": "a"}},
        {"function_call": {"name": "a"}},
    ],
)
def test_insisting_on_a_hidden_tool_is_refused(choice: dict[str, Any]) -> None:
    """A request that forces a hidden tool cannot be answered; the error names the tool."""
    with pytest.raises(RequestError, match="'a'") as caught:
        hidden("a", tools=[A, B], **choice)
    assert caught.value.status == 400
    assert hidden("b", tools=[A, B], **choice) == {"tools": [A], **choice}


def test_proxy_tools_are_told_behind_the_clients_own() -> None:
    """Declarations are added up to the limit of tools, and nowhere that tools are not wanted."""
    told = [declaration(f"t{n}", "what it does", {"type": "object"}) for n in range(3)]
    own = [json.dumps(A).encode()]
    body = b'{"tools" : [1.10]}'
    edited = edit(body, advertise(read_request(body, 9), told, own))
    assert json.loads(edited) == {"tools": [A, *map(json.loads, told)]}
    found = request(tools=[A] * 126)
    added = json.loads(edit(found.body, advertise(found, told, own * 126)))
    assert [t["function"]["name"] for t in added["tools"][125:]] == ["a", "t0", "t1"]
    assert len(added["tools"]) == MAX_TOOLS
    assert not advertise(request(tools=[A] * 128), told, own * 128)
    assert not advertise(request(tools=[A], tool_choice="none"), told, own)
    assert not advertise(request(functions=[]), told, [])
    assert not advertise(request(tools=[A]), [], own)


def test_a_declaration() -> None:
    """A tool without a description has none."""
    assert json.loads(declaration("t", "", None)) == {"type": "function", "function": {"name": "t", "parameters": None}}
    assert json.loads(declaration("t", "d", {}))["function"]["description"] == "d"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "required"}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "custom", "custom": {"name": "a"}}}, {"tool_choice": "auto"}),
        (
            {"tool_choice": ALLOWED},
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [A, B]}}},
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
        ),
        ({"tool_choice": {"type": "allowed_tools"}}, {"tool_choice": {"type": "allowed_tools"}}),
        ({"function_call": {"name": "a"}}, {"function_call": "auto"}),
        ({"function_call": "none"}, {"function_call": "none"}),
    ],
)
def test_a_continuation_forces_no_call(value: dict[str, Any], expected: dict[str, Any]) -> None:
    """What forced a call in the first round would force it in every one."""
    assert json.loads(edit(json.dumps(value).encode(), relaxed_choice(value))) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"tools": [A]}, {"tools": [A], "tool_choice": "none"}),
        ({"tools": [A], "tool_choice": "required"}, {"tools": [A], "tool_choice": "none"}),
        ({"functions": [{"name": "a"}]}, {"functions": [{"name": "a"}], "function_call": "none"}),
        ({"tools": [], "functions": []}, {"tools": [], "functions": []}),
        ({}, {}),
    ],
)
def test_the_last_call_of_a_turn_allows_no_calls(value: dict[str, Any], expected: dict[str, Any]) -> None:
    """A choice is set only where there are tools: without them, upstreams refuse it."""
    assert json.loads(edit(json.dumps(value).encode(), closing_choice(value))) == expected


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (entry_of("t", '{"a": 1}'), ToolCall(CallId("c1"), "t", '{"a": 1}')),
        (entry_of("t", {"a": 1}), ToolCall(CallId("c1"), "t", '{"a":1}', unwrapped=True)),
        (entry_of("t", None), ToolCall(CallId("c1"), "t", "null", unwrapped=True)),
        (entry_of("t", call_id=123), ToolCall(CallId("123"), "t", "{}")),
        (entry_of("t", call_id=""), ToolCall(CallId(""), "t", "{}")),
        ({"function": {"name": "t", "id": "in", "arguments": ""}}, ToolCall(CallId("in"), "t", "")),
        ({"id": "c1", "function": {"name": "t", "id": "in"}}, ToolCall(CallId("c1"), "t", "")),
        ({"id": "c1", "custom": {"name": "t", "input": "x"}}, ToolCall(CallId("c1"), "t", "x", Kind.CUSTOM)),
        ({"id": "c1", "custom": {"name": None}}, ToolCall(CallId("c1"), "", "", Kind.CUSTOM)),
        ({"id": "c1", "function": {"name": 5}}, ToolCall(CallId("c1"), "", "")),
        (entry_of(["delete_file"]), ToolCall(CallId("c1"), "", "{}")),
        ({"id": "c1", "custom": {"name": {"is": "t"}, "input": "x"}}, ToolCall(CallId("c1"), "", "x", Kind.CUSTOM)),
        ({"id": "c1", "function": None}, ToolCall(CallId("c1"), "", "")),
        ({"id": "c1", "function": "t"}, ToolCall(CallId("c1"), "", "")),
        ({}, ToolCall(CallId(""), "", "")),
        (None, ToolCall(CallId(""), "", "")),
        ("t", ToolCall(CallId(""), "", "")),
        ([entry_of("t")], ToolCall(CallId(""), "", "")),
    ],
)
def test_every_entry_is_a_call(entry: Any, expected: ToolCall) -> None:
    """Ids that are numbers or stand inside, arguments as values, and entries that are no calls at all are read."""
    assert read_call(entry) == expected


def test_arguments_that_came_as_an_object_keep_their_text() -> None:
    """Where the bytes are known, the numbers in an unwrapped object stay as spelled."""
    calls = b'"tool_calls":[{"id":"a","function":{"name":"t","arguments":{"n": 1.10}}}]'
    body = b"{%s,%s}" % (calls, b'"function_call":{"arguments":{"m":1e2}}')
    found = list(calls_of(json.loads(body), lambda path: (raw(body, path) or b"").decode()))
    assert [(c.text, c.unwrapped, c.kind) for c in found] == [
        ('{"n": 1.10}', True, Kind.FUNCTION),
        ('{"m":1e2}', True, Kind.LEGACY),
    ]


@pytest.mark.parametrize("calls", [None, [], {}, {"0": entry_of("t")}, "text", 5, True, 0.5])
def test_calls_that_are_no_list_are_no_calls(calls: Any) -> None:
    """A message whose `tool_calls` are something else has none, and reading it does not fail."""
    assert list(calls_of({"tool_calls": calls})) == []
    assert read_history([{"role": "assistant", "tool_calls": calls}])[0].kind is EntryKind.TEXT


def test_a_legacy_call_that_mirrors_another_is_not_counted() -> None:
    """Servers that send both forms of one call made one call; another call in the old form is one more."""
    function = {"name": "t", "arguments": "{}"}
    both: dict[str, Any] = {"tool_calls": [entry_of("t")], "function_call": function}
    assert [c.kind for c in calls_of(both)] == [Kind.FUNCTION]
    both["function_call"] = {**function, "name": "u"}
    assert [c.kind for c in calls_of(both)] == [Kind.FUNCTION, Kind.LEGACY]
    assert [c.kind for c in calls_of({"function_call": function, "tool_calls": None})] == [Kind.LEGACY]
    nothings: list[Any] = [None, "auto", 5, []]
    for nothing in nothings:
        assert list(calls_of({"function_call": nothing})) == []


# ---------------------------------------------------------------- the conversation


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hi"}, Entry(0, EntryKind.USER, "hi")),
        ({"role": "system", "content": "be"}, Entry(0, EntryKind.OTHER, "be")),
        ({"role": "developer"}, Entry(0, EntryKind.OTHER)),
        ({"role": "assistant", "content": "x"}, Entry(0, EntryKind.TEXT, "x")),
        ({"role": "assistant", "tool_calls": []}, Entry(0, EntryKind.TEXT)),
        (
            {"role": "assistant", "content": None, "tool_calls": [entry_of("t")]},
            Entry(0, EntryKind.CALLS, calls=(ToolCall(CallId("c1"), "t", "{}"),)),
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, {"text": "b"}, {"x": 1}]},
            Entry(0, EntryKind.RESULT, "ab", call_id="c1"),
        ),
        ({"role": "tool", "tool_call_id": 123}, Entry(0, EntryKind.RESULT, call_id="123")),
        ({"role": "tool"}, Entry(0, EntryKind.RESULT)),
        ({"role": "function", "name": "t", "content": "r"}, Entry(0, EntryKind.RESULT, "r", name="t")),
        ({}, Entry(0, EntryKind.OTHER)),
        ("text", Entry(0, EntryKind.OTHER)),
        (None, Entry(0, EntryKind.OTHER)),
    ],
)
def test_messages_are_entries(message: Any, expected: Entry) -> None:
    """Each message is one entry; what is no message is one too, so that places stay."""
    assert read_history([message]) == [expected]


@pytest.mark.parametrize(
    ("content", "text"),
    [("x", "x"), (None, ""), ([], ""), ([{"text": "a"}, None, {"text": 5}, "b"], "a"), (5, ""), ({"text": "a"}, "")],
)
def test_content_as_text(content: Any, text: str) -> None:
    """A string, or its text parts; what is neither has no text."""
    assert content_text(content) == text


def assistant(**parts: Any) -> dict[str, Any]:
    return {"role": "assistant", **parts}


@pytest.mark.parametrize(
    "same",
    [
        [assistant(), assistant(content=None), assistant(content=""), assistant(content=[]), assistant(tool_calls=[])],
        [
            assistant(content="x"),
            assistant(content=[{"type": "text", "text": "x"}]),
            assistant(content="x", refusal=None),
        ],
        [
            assistant(tool_calls=[entry_of("t", '{"a":1.0,"b":[100]}')]),
            assistant(tool_calls=[entry_of("t", ' {"b": [1e2], "a": 1}')], content=""),
            assistant(tool_calls=[{**entry_of("t", '{"a":1,"b":[100.0]}'), "vendor": 1}]),
        ],
        [assistant(tool_calls=[entry_of("t", "")]), assistant(tool_calls=[entry_of("t", "{}")])],
        [assistant(function_call={"name": "t", "arguments": "{ }"}), assistant(function_call={"name": "t"})],
    ],
)
def test_what_frameworks_change_is_not_looked_at(same: list[dict[str, Any]]) -> None:
    """A message that was kept in another form is the same message."""
    assert len({essence(message) for message in same}) == 1


def test_what_makes_a_message_another() -> None:
    """Role, text, parts, calls and what a result answers tell messages apart."""
    different = [
        assistant(),
        {"role": "user"},
        assistant(content="x"),
        assistant(content=[{"text": "x"}, {"text": ""}]),
        assistant(tool_calls=[entry_of("t")]),
        assistant(tool_calls=[entry_of("u")]),
        assistant(tool_calls=[entry_of("t", call_id="c2")]),
        assistant(tool_calls=[entry_of("t", '{"a":1}')]),
        assistant(tool_calls=[entry_of("t", '{"a":1.5}')]),
        assistant(tool_calls=[entry_of("t", '{"a":"1"}')]),
        assistant(tool_calls=[entry_of("t", '{"a":true}')]),
        assistant(tool_calls=[entry_of("t", "{")]),
        {"role": "tool", "content": "x", "tool_call_id": "c1"},
        {"role": "tool", "content": "x", "tool_call_id": "c2"},
    ]
    assert len({essence(message) for message in different}) == len(different)


@pytest.mark.parametrize("text", ["{", "NaN", '{"a":NaN}', '"\ud83d"', DEEP, '{"a":' + DEEP + "}", "[" * 5000], ids=len)
def test_arguments_without_a_meaning_are_their_text(text: str) -> None:
    """What cannot be read, or nests beyond reason, is compared as it stands."""
    assert meaning(text) == text


@given(st.text(st.characters(), max_size=20))
def test_every_text_has_a_meaning(text: str) -> None:
    """Whatever stands in a history can be compared and digested."""
    meaning(text)
    essence(assistant(content=text, tool_calls=[entry_of("t", text, text)]))


def test_a_digest_is_of_the_whole_conversation() -> None:
    """Another earlier message, its order, or another person makes another digest; later messages do not."""
    messages = [{"role": "user", "content": "a"}, assistant(content="b"), 5, {"role": "user", "content": "c"}]
    whole = digests(request(messages=messages))
    assert len(whole) == len(set(whole)) == 4
    assert digests(request(messages=messages[:2], temperature=1)) == whole[:2]
    assert digests(request(messages=messages), 3) == whole[:3]
    assert digest_with(request(messages=messages[:1]), assistant(content="b")) == whole[1]
    assert digest_with(request(messages=messages[:3]), messages[3]) == whole[3]  # type: ignore[arg-type]  # a message
    others: list[dict[str, Any]] = [
        {"messages": messages[1:2]},
        {"messages": [messages[1], messages[0]]},
        {"messages": messages, "user": "u"},
        {"messages": messages, "prompt_cache_key": "k"},
        {"messages": messages, "safety_identifier": "s"},
    ]
    found = [digests(request(**other))[-1] for other in others]
    assert len({*found, *whole}) == 9


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_empty_identity_is_none(nothing: Any) -> None:
    """Absent, null and empty say the same of who asks."""
    assert request(user=nothing).identity() == request().identity() != request(user="u").identity()
