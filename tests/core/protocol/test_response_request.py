"""Requests for a response: what they say, what is hidden from them, and the conversation that they show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ToolParam
from pydantic import TypeAdapter

from proxy.core.calls import CallId, Kind, RequestFacts, ToolCall
from proxy.core.history import Entry, EntryKind
from proxy.core.jsontext import edit
from proxy.core.protocol.chat import MAX_TOOLS
from proxy.core.protocol.response_request import (
    ResponseRequest,
    advertise,
    closing_choice,
    declaration,
    hide_tools,
    raw_items,
    read_history,
    read_request,
    relaxed_choice,
)
from proxy.errors import RequestError
from tests.core.policy.engine import policies

TOOL: TypeAdapter[Any] = TypeAdapter(ToolParam)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}


def request(**value: Any) -> ResponseRequest:
    return read_request(json.dumps(value).encode(), 128)


A, B, C = tool("a"), tool("b"), {"type": "custom", "name": "c"}
FILES = {"type": "namespace", "name": "fs", "description": "files", "tools": [tool("read"), tool("write")]}
SERVER = {"type": "mcp", "server_label": "docs", "server_url": "http://x", "allowed_tools": ["find", "drop"]}
FILTERED = SERVER | {"allowed_tools": {"tool_names": ["find", "drop"], "read_only": True}}
WEB = {"type": "web_search_preview_2025_03_11"}
SHELL = {"type": "shell", "environment": {"type": "container_auto"}}


# ---------------------------------------------------------------- reading a request


@pytest.mark.parametrize(
    "body", [b"\xef\xbb\xbf{}", b'{"model":"a","model":"b"}', b'{"input":' + b"[" * 200 + b"]" * 200 + b"}"]
)
def test_a_body_that_two_readers_read_differently_is_refused(body: bytes) -> None:
    """As it is for every other wire."""
    with pytest.raises(RequestError, match="cannot be read in one way") as caught:
        read_request(body, 128)
    assert caught.value.code == "invalid_request_body"


@pytest.mark.parametrize("body", [b"", b"{", b"text", b"[]", b"null", b'{"input":}'])
def test_what_is_no_object_is_for_the_upstream_to_judge(body: bytes) -> None:
    """It says nothing and is not changed."""
    found = read_request(body, 128)
    assert (found.body, found.value, found.declared, found.items) == (body, {}, {}, [])
    assert raw_items(found) == []
    assert hide_tools(found, lambda name, space: True) == {}


@pytest.mark.parametrize(
    "body",
    [
        b'{"tools":[%s],"temperature":NaN}',
        b'{"tools":[%s],"user":"\\ud83d"}',
        b'{"tools":[%s],"user":"\xff"}',
        b'{"tools":[%s]} and more',
    ],
)
def test_what_some_upstream_takes_is_read(body: bytes) -> None:
    """Oddities hide no tool, and stay where something else changes."""
    found = read_request(body.replace(b"%s", json.dumps(tool("delete")).encode()), 128)
    expected = body.replace(b'"tools":[%s],', b"").replace(b'"tools":[%s]', b"")
    assert edit(found.body, hide_tools(found, lambda name, space: name == "delete")) == expected


def test_what_a_request_says() -> None:
    """Names of what came before, who speaks, and how the answer is to come."""
    whole = request(
        input=[1],
        tools=[2],
        user="u",
        safety_identifier="s",
        text={"format": {"type": "json_schema"}},
        store=False,
        previous_response_id="resp_1",
        background=True,
        stream=True,
    )
    assert (whole.items, whole.tools, whole.user, whole.wants_json) == ([1], [2], "s", True)
    assert (whole.stored, whole.previous, whole.conversation, whole.remembered) == (False, "resp_1", "", True)
    assert (whole.background, whole.streams) == (True, True)
    assert request(conversation="conv_1").conversation == "conv_1"
    assert request(conversation={"id": "conv_1"}).remembered


def test_fields_of_the_wrong_type_say_nothing() -> None:
    """Nor do those that are not there; what is not said to be forgotten is stored."""
    odd = request(
        input={"a": 1},
        tools="x",
        text={"format": "json_object"},
        store="false",
        previous_response_id=5,
        conversation={"id": None},
        background=1,
        stream="true",
    )
    for found in (odd, request(), request(store=None, text=None, conversation=None, input=None)):
        assert (found.items, found.tools, found.user, found.wants_json) == ([], [], "", False)
        assert (found.stored, found.previous, found.conversation, found.remembered) == (True, "", "", False)
        assert (found.background, found.streams) == (False, False)
        assert (raw_items(found), found.declared, found.hosted) == ([], {}, frozenset())
    assert request(text={"format": {"type": "json_object"}}).wants_json
    assert not request(text={"format": {"type": "text"}}).wants_json


@pytest.mark.parametrize(
    ("given", "items"),
    [
        (b'"hi \\u0041"', [b'{"role":"user","content":"hi \\u0041"}']),
        (b'""', [b'{"role":"user","content":""}']),
        (b'[ {"role" : "user","content":"a"}, 5,"x"]', [b'{"role" : "user","content":"a"}', b"5", b'"x"']),
        (b"[]", []),
        (b"{}", []),
        (b"null", []),
    ],
)
def test_the_input_as_items(given: bytes, items: list[bytes]) -> None:
    """Each with its own bytes; a text is what the user says."""
    found = read_request(b'{"model":"m", "input":' + given + b"}", 128)
    assert raw_items(found) == items
    assert found.items == [json.loads(item) for item in items]


def test_declared_tools() -> None:
    """By the name that a call has: alone, behind a namespace, or the type; of a server its label."""
    found = request(
        tools=[
            A,
            C,
            FILES,
            SERVER,
            WEB,
            {"type": "computer_use_preview"},
            {"type": "apply_patch"},
            {"type": "function", "name": 5},
            {"type": "namespace", "tools": [B]},
            {"type": "namespace", "name": "odd", "tools": "x"},
            {"type": "mcp"},
            {"type": ["x"]},
            {"type": ""},
            {},
            "d",
            None,
        ],
        input=[
            {"type": "tool_search_output", "tools": [tool("late")]},
            {"type": "additional_tools", "tools": [FILES | {"name": "more", "tools": [C]}]},
            {"type": "message", "tools": [tool("no")]},
            5,
        ],
    )
    schema = {"type": "object"}
    assert found.declared == {
        "a": schema,
        "c": None,
        "fs.read": schema,
        "fs.write": schema,
        "docs": None,
        "web_search_preview_2025_03_11": None,
        "web_search_preview": None,
        "web_search": None,
        "computer_use_preview": None,
        "computer_use": None,
        "computer": None,
        "apply_patch": None,
        "late": schema,
        "more.c": None,
    }


@pytest.mark.parametrize(
    ("tools", "added", "hosted"),
    [
        ([SHELL], [], {"shell"}),
        ([{"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}], [], {"shell"}),
        ([{"type": "shell", "environment": {"type": "local"}}], [], set()),
        ([{"type": "shell"}], [], set()),
        ([{"type": "shell", "environment": {"type": 5}}], [], set()),
        ([SHELL, {"type": "shell"}], [], set()),
        ([SHELL], [{"type": "shell"}], set()),
        ([], [SHELL], {"shell"}),
        ([{"type": "tool_search"}], [], {"tool_search"}),
        ([{"type": "tool_search", "execution": "server"}], [], {"tool_search"}),
        ([{"type": "tool_search", "execution": "client"}], [], set()),
        ([A, WEB], [], set()),
    ],
)
def test_tools_that_the_upstream_hosts(tools: list[Any], added: list[Any], hosted: set[str]) -> None:
    """Only where nothing of the request could make them the client's."""
    found = request(tools=tools, input=[{"type": "additional_tools", "role": "developer", "tools": added}])
    assert found.hosted == hosted


# ---------------------------------------------------------------- tools of a request


def hidden(*names: str, **value: Any) -> dict[str, Any]:
    """A request's value after these tools were hidden, by their names alone or behind a namespace."""
    found = request(**value)

    def is_hidden(name: str, space: str) -> bool:
        assert name
        return name in names or f"{space}.{name}" in names

    edited: dict[str, Any] = json.loads(edit(found.body, hide_tools(found, is_hidden)))
    return edited


def allowed(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": "required", "tools": list(tools)}


NAMES = [{"type": "function", "name": "a"}, {"type": "custom", "name": "c"}, {"type": "mcp", "server_label": "docs"}]


@pytest.mark.parametrize(
    ("names", "value", "expected"),
    [
        (["x"], {"tools": [A, FILES, SERVER, WEB]}, {"tools": [A, FILES, SERVER, WEB]}),
        (["a"], {"tools": [A, B, C], "tool_choice": "auto"}, {"tools": [B, C], "tool_choice": "auto"}),
        (["c"], {"tools": [A, C, None, 5, {}]}, {"tools": [A, None, 5, {}]}),
        (["a", "b"], {"tools": [A, B], "tool_choice": "required", "parallel_tool_calls": False, "n": 1}, {"n": 1}),
        (["fs.read"], {"tools": [FILES]}, {"tools": [FILES | {"tools": [tool("write")]}]}),
        (["read"], {"tools": [FILES]}, {"tools": [FILES | {"tools": [tool("write")]}]}),
        (["fs.read", "fs.write"], {"tools": [FILES, A]}, {"tools": [A]}),
        (["fs"], {"tools": [FILES, A]}, {"tools": [A]}),
        (["web.read"], {"tools": [FILES]}, {"tools": [FILES]}),
        (["docs.drop"], {"tools": [SERVER]}, {"tools": [SERVER | {"allowed_tools": ["find"]}]}),
        (["drop"], {"tools": [SERVER]}, {"tools": [SERVER | {"allowed_tools": ["find"]}]}),
        (
            ["docs.drop"],
            {"tools": [FILTERED]},
            {"tools": [SERVER | {"allowed_tools": {"tool_names": ["find"], "read_only": True}}]},
        ),
        (["docs.drop", "docs.find"], {"tools": [SERVER, A]}, {"tools": [A]}),
        (["docs.drop", "docs.find"], {"tools": [FILTERED]}, {}),
        (["docs"], {"tools": [SERVER, A]}, {"tools": [A]}),
        (["mcp"], {"tools": [SERVER, A]}, {"tools": [A]}),
        (["web_search_preview_2025_03_11"], {"tools": [WEB, A]}, {"tools": [A]}),
        (["web_search_preview"], {"tools": [WEB, A]}, {"tools": [A]}),
        (["web_search"], {"tools": [WEB, A]}, {"tools": [A]}),
        (["web_search"], {"tools": [{"type": "web_search_2025_08_26"}, A]}, {"tools": [A]}),
        (["web_search_preview"], {"tools": [{"type": "web_search"}]}, {"tools": [{"type": "web_search"}]}),
        (["computer"], {"tools": [{"type": "computer_use_preview"}, A]}, {"tools": [A]}),
        (["shell"], {"tools": [SHELL, A]}, {"tools": [A]}),
        (["a"], {"tools": [A, B], "tool_choice": allowed(A, B)}, {"tools": [B], "tool_choice": allowed(B)}),
        (
            ["a", "c", "docs"],
            {"tools": [A, B, C, SERVER], "tool_choice": allowed(*NAMES)},
            {"tools": [B], "tool_choice": "none"},
        ),
        (
            ["docs.drop", "docs.find"],
            {"tools": [SERVER, A], "tool_choice": allowed(*NAMES)},
            {"tools": [A], "tool_choice": allowed(*NAMES[:2])},
        ),
        (["a"], {"tools": [A], "tool_choice": allowed(A)}, {}),
        (["a"], {"tool_choice": allowed(A, B)}, {"tool_choice": allowed(B)}),
        (["x"], {"tools": [A], "tool_choice": allowed(A)}, {"tools": [A], "tool_choice": allowed(A)}),
        (
            ["a"],
            {"tools": {"a": 1}, "tool_choice": {"type": "allowed_tools", "tools": 5}},
            {"tools": {"a": 1}, "tool_choice": {"type": "allowed_tools", "tools": 5}},
        ),
        (["a"], {"tools": []}, {"tools": []}),
    ],
)
def test_hidden_tools_go(names: list[str], value: dict[str, Any], expected: dict[str, Any]) -> None:
    """Alone, out of their namespace or server, by type or family; where none is left, nothing speaks of tools."""
    assert hidden(*names, **value) == expected


@pytest.mark.parametrize(
    "odd",
    [
        FILES | {"tools": {"a": 1}},
        FILES | {"tools": "read"},
        FILES | {"tools": [5, None, {"type": "function"}]},
        {"type": "namespace", "tools": []},
        {"type": "mcp"},
        SERVER | {"allowed_tools": [5, None, ""]},
        SERVER | {"allowed_tools": None},
        SERVER | {"allowed_tools": {"read_only": True}},
        {"type": "function"},
        {"type": "custom", "name": None},
        {"type": ["x"]},
        {"type": ""},
    ],
)
def test_what_has_no_name_no_rule_can_mean(odd: dict[str, Any]) -> None:
    """It stays, with every rule that hides something: the upstream has its own word for it."""
    rules = [{"name": "no", "match": {"tools": ["read", "a*"]}, "hide": {}}]
    chain = policies(rules).for_request(RequestFacts())
    found = request(tools=[odd, B])
    assert hide_tools(found, lambda name, space: chain.hidden_by(name, space) is not None) == {}
    assert hidden("read", tools=[odd, B]) == {"tools": [odd, B]}


def test_bytes_of_what_stays_stay() -> None:
    """Only the lists that lose something are written again."""
    body = (
        b'{ "n":1.10, "tools":[ {"type":"namespace","name":"fs","tools":[ {"type":"function","name":"r"}, '
        b'{"name":"w" ,"type":"custom"}]}, {"x":1e2} ]}'
    )
    found = edit(body, hide_tools(read_request(body, 9), lambda name, space: (space, name) == ("fs", "r")))
    assert found == (
        b'{ "n":1.10, "tools":[{"type":"namespace","name":"fs","tools":[{"name":"w" ,"type":"custom"}]},{"x":1e2}]}'
    )


@pytest.mark.parametrize(
    ("choice", "names", "word"),
    [
        ({"type": "function", "name": "a"}, ["a"], "a"),
        ({"type": "function", "name": "read", "namespace": "fs"}, ["fs.read"], "read"),
        ({"type": "custom", "name": "c"}, ["c"], "c"),
        ({"type": "mcp", "server_label": "docs"}, ["docs"], "docs"),
        ({"type": "mcp", "server_label": "docs", "name": "drop"}, ["docs.drop"], "drop"),
        ({"type": "mcp", "server_label": "docs"}, ["docs.drop", "docs.find"], "docs"),
        ({"type": "web_search_preview_2025_03_11"}, ["web_search"], "web_search_preview_2025_03_11"),
        ({"type": "shell"}, ["shell"], "shell"),
    ],
)
def test_insisting_on_a_hidden_tool_is_refused(choice: dict[str, Any], names: list[str], word: str) -> None:
    """A request that forces a hidden tool cannot be answered; the error names the tool."""
    tools = [A, B, C, FILES, SERVER, WEB, SHELL]
    with pytest.raises(RequestError, match=f"'{word}'") as caught:
        hidden(*names, tools=tools, tool_choice=choice)
    assert (caught.value.status, caught.value.code) == (400, "tool_hidden")
    assert hidden("b", tools=tools, tool_choice=choice)["tool_choice"] == choice


def test_proxy_tools_are_told_behind_the_clients_own() -> None:
    """Declarations are added up to the limit of tools, and nowhere that tools are not wanted."""
    told = [declaration(f"t{n}", "what it does", {"type": "object"}) for n in range(3)]
    own = [json.dumps(A).encode()]
    edited = edit(b'{"tools" : [1.10]}', advertise(read_request(b'{"tools" : [1.10]}', 9), told, own))
    assert json.loads(edited) == {"tools": [A, *map(json.loads, told)]}
    assert json.loads(edit(b"{}", advertise(request(), told, []))) == {"tools": [*map(json.loads, told)]}
    found = request(tools=[A] * 126)
    added = json.loads(edit(found.body, advertise(found, told, own * 126)))
    assert [t["name"] for t in added["tools"][125:]] == ["a", "t0", "t1"]
    assert len(added["tools"]) == MAX_TOOLS
    assert not advertise(request(tools=[A] * 128), told, own * 128)
    assert not advertise(request(tools=[A], tool_choice="none"), told, own)
    assert not advertise(request(tools=[A]), [], own)


def test_a_declaration() -> None:
    """A flat function, which its arguments need not follow to the letter; without a description it has none."""
    plain = json.loads(declaration("t", "", {"type": "object"}))
    assert plain == {"type": "function", "name": "t", "parameters": {"type": "object"}, "strict": False}
    assert json.loads(declaration("t", "d", None)) == {**plain, "parameters": None, "description": "d"}
    assert TOOL.validate_python(plain) == plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "required"}, {"tool_choice": "auto"}),
        *(
            ({"tool_choice": choice}, {"tool_choice": "auto"})
            for choice in (*NAMES, {"type": "web_search"}, {"type": "shell"}, {"type": "apply_patch"})
        ),
        ({"tool_choice": allowed(A)}, {"tool_choice": allowed(A) | {"mode": "auto"}}),
        ({"tool_choice": allowed(A) | {"mode": "auto"}}, {"tool_choice": allowed(A) | {"mode": "auto"}}),
    ],
)
def test_a_continuation_forces_no_call(value: dict[str, Any], expected: dict[str, Any]) -> None:
    """What forced a call in the first round would force it in every one."""
    assert json.loads(edit(json.dumps(value).encode(), relaxed_choice(value))) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"tools": [A]}, {"tools": [A], "tool_choice": "none"}),
        ({"tools": [A], "tool_choice": allowed(A)}, {"tools": [A], "tool_choice": "none"}),
        ({"tools": []}, {"tools": []}),
        ({}, {}),
    ],
)
def test_the_last_call_of_a_turn_allows_no_calls(value: dict[str, Any], expected: dict[str, Any]) -> None:
    """A choice is set only where there are tools."""
    assert json.loads(edit(json.dumps(value).encode(), closing_choice(value))) == expected


# ---------------------------------------------------------------- the conversation

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "t", "arguments": "{}"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "user", "content": "hi"}, Entry(0, EntryKind.USER, "hi")),
        (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            Entry(0, EntryKind.USER, "hi"),
        ),
        ({"role": "assistant", "content": "so"}, Entry(0, EntryKind.TEXT, "so")),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            Entry(0, EntryKind.TEXT, "so"),
        ),
        ({"role": "developer", "content": "be"}, Entry(0, EntryKind.OTHER, "be")),
        ({"type": "message", "role": "system", "content": "be"}, Entry(0, EntryKind.OTHER, "be")),
        ({"role": ["user"]}, Entry(0, EntryKind.OTHER)),
        (CALL, Entry(0, EntryKind.CALLS, calls=(ToolCall(CallId("c1"), "t", "{}"),))),
        (
            CALL | {"arguments": {"a": 1}},
            Entry(0, EntryKind.CALLS, calls=(ToolCall(CallId("c1"), "t", '{"a":1}', unwrapped=True),)),
        ),
        (
            {"type": "custom_tool_call", "call_id": "c1", "name": "t", "input": "x"},
            Entry(0, EntryKind.CALLS, calls=(ToolCall(CallId("c1"), "t", "x", Kind.CUSTOM),)),
        ),
        (
            {"type": "mcp_approval_request", "id": "r", "name": "t", "arguments": "{}", "server_label": "d"},
            Entry(0, EntryKind.CALLS, calls=(ToolCall(CallId("r"), "t", "{}", Kind.APPROVAL, namespace="d"),)),
        ),
        (
            {"type": "apply_patch_call", "call_id": "c1", "operation": {"path": "p"}},
            Entry(
                0, EntryKind.CALLS, calls=(ToolCall(CallId("c1"), "apply_patch", '{"path":"p"}', Kind.ACTION, True),)
            ),
        ),
        (
            {"type": "function_call_output", "call_id": "c1", "output": "x", "name": "t"},
            Entry(0, EntryKind.RESULT, "x", call_id="c1", name="t"),
        ),
        ({"type": "custom_tool_call_output", "call_id": "c1"}, Entry(0, EntryKind.RESULT, "", call_id="c1")),
        ({"type": "local_shell_call_output", "id": "c1", "output": "x"}, Entry(0, EntryKind.RESULT, "x", call_id="c1")),
        (
            {"type": "mcp_approval_response", "approval_request_id": "r", "approve": False, "reason": "no"},
            Entry(0, EntryKind.RESULT, "no", call_id="r"),
        ),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, Entry(0, EntryKind.OTHER)),
        ({"type": "item_reference", "id": "fc_1"}, Entry(0, EntryKind.OTHER)),
        ({"id": "fc_1"}, Entry(0, EntryKind.OTHER)),
        ({"type": "mcp_call", "id": "mcp_1", "name": "t", "arguments": "{}"}, Entry(0, EntryKind.OTHER)),
        ({"type": "web_search_call", "id": "ws_1", "action": {}}, Entry(0, EntryKind.OTHER)),
        ({"type": 5}, Entry(0, EntryKind.OTHER)),
        ({}, Entry(0, EntryKind.OTHER)),
        ("text", Entry(0, EntryKind.OTHER)),
        (None, Entry(0, EntryKind.OTHER)),
    ],
)
def test_every_item_is_an_entry(item: Any, expected: Entry) -> None:
    """Whatever it is, so that places of entries are places of items."""
    assert read_history([item]) == [expected]
    assert [entry.index for entry in read_history([item, CALL, item])] == [0, 1, 2]


def test_what_the_upstream_ran_is_no_call_of_a_history() -> None:
    """Nor is its output a result that a client sent."""
    items = [
        {"type": "shell_call", "call_id": "c", "action": {"commands": []}},
        {"type": "shell_call_output", "call_id": "c", "output": []},
        CALL,
    ]
    kinds = [entry.kind for entry in read_history(items, hosted=("shell",))]
    assert kinds == [EntryKind.OTHER, EntryKind.OTHER, EntryKind.CALLS]
    assert [entry.kind for entry in read_history(items)][:2] == [EntryKind.CALLS, EntryKind.RESULT]
