"""Items of responses: calls, results, what is told again, and what goes back."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam, ResponseOutputItem
from pydantic import TypeAdapter

from proxy.core import jsontext
from proxy.core.arguments import read_arguments
from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.protocol.response_items import (
    call_type,
    edited_call,
    is_call_type,
    is_reference,
    item_identities,
    item_identity,
    message_item,
    message_text,
    read_call,
    read_record,
    read_result,
    result_items,
    sent_back,
)

INPUT: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
OUTPUT: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)


def raw_of(item: Any) -> bytes:
    return json.dumps(item).encode()


def call_of(item: dict[str, Any], *hosted: str) -> ToolCall | None:
    return read_call(item, raw_of(item), hosted=hosted)


def read(item: dict[str, Any]) -> ToolCall:
    found = call_of(item)
    assert found is not None
    return found


def action(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "id": "i1", "call_id": "c1", **members}


FUNCTION = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "search",
    "arguments": '{"q": 1}',
    "status": "completed",
}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": "text"}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "d", "name": "find", "arguments": "{}"}
SHELL = action("shell_call", action={"commands": ["ls"]}, status="completed")
LOCAL_SHELL = action("local_shell_call", action={"type": "exec", "command": ["ls"], "env": {}}, status="completed")
PATCH = action("apply_patch_call", operation={"type": "delete_file", "path": "a"}, status="completed")
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
COMPUTER = action("computer_call", action=CLICK, pending_safety_checks=[], status="completed")
NAMED, TEXT = (Kind.ACTION, True), (Kind.ACTION, False)
SEARCH = action("tool_search_call", execution="client", arguments={"goal": "x"}, status="completed")


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (FUNCTION, ToolCall(CallId("c1"), "search", '{"q": 1}')),
        (FUNCTION | {"namespace": "web"}, ToolCall(CallId("c1"), "search", '{"q": 1}', namespace="web")),
        (FUNCTION | {"arguments": {"q": 1}}, ToolCall(CallId("c1"), "search", '{"q": 1}', unwrapped=True)),
        (FUNCTION | {"arguments": None}, ToolCall(CallId("c1"), "search", "null", unwrapped=True)),
        (FUNCTION | {"arguments": ""}, ToolCall(CallId("c1"), "search", "")),
        ({"type": "function_call"}, ToolCall(CallId(""), "", "")),
        (FUNCTION | {"name": None, "call_id": 7}, ToolCall(CallId("7"), "", '{"q": 1}')),
        (CUSTOM, ToolCall(CallId("c1"), "patch", "text", Kind.CUSTOM)),
        (CUSTOM | {"namespace": "fs"}, ToolCall(CallId("c1"), "patch", "text", Kind.CUSTOM, namespace="fs")),
        (CUSTOM | {"input": None}, ToolCall(CallId("c1"), "patch", "", Kind.CUSTOM)),
        (CUSTOM | {"input": {"a": 1}}, ToolCall(CallId("c1"), "patch", '{"a":1}', Kind.CUSTOM)),
        (APPROVAL, ToolCall(CallId("mcpr_1"), "find", "{}", Kind.APPROVAL, namespace="d")),
        (APPROVAL | {"arguments": {}}, ToolCall(CallId("mcpr_1"), "find", "{}", Kind.APPROVAL, True, "d")),
        (SHELL, ToolCall(CallId("c1"), "shell", '{"commands": ["ls"]}', Kind.ACTION, True)),
        (SHELL | {"action": None}, ToolCall(CallId("c1"), "shell", "{}", Kind.ACTION, True)),
        (SHELL | {"action": "ls"}, ToolCall(CallId("c1"), "shell", '"ls"', Kind.ACTION, True)),
        ({"type": "shell_call", "action": {}}, ToolCall(CallId(""), "shell", "{}", Kind.ACTION, True)),
        (
            LOCAL_SHELL,
            ToolCall(CallId("c1"), "local_shell", '{"type": "exec", "command": ["ls"], "env": {}}', Kind.ACTION, True),
        ),
        (
            {"type": "local_shell_call", "id": "i1", "action": {}},
            ToolCall(CallId("i1"), "local_shell", "{}", Kind.ACTION, True),
        ),
        (PATCH, ToolCall(CallId("c1"), "apply_patch", '{"type": "delete_file", "path": "a"}', Kind.ACTION, True)),
        (COMPUTER, ToolCall(CallId("c1"), "computer", json.dumps(CLICK), Kind.ACTION, True)),
        (SEARCH, ToolCall(CallId("c1"), "tool_search", '{"goal": "x"}', Kind.ACTION, True)),
        (action("odd_call", action={"a": 1}), ToolCall(CallId("c1"), "odd", '{"a": 1}', Kind.ACTION, True)),
        (action("odd_call", arguments={"a": 1}), ToolCall(CallId("c1"), "odd", '{"a": 1}', Kind.ACTION, True)),
        (action("odd_call", input="x"), ToolCall(CallId("c1"), "odd", '"x"', Kind.ACTION, True)),
        (action("odd_call"), ToolCall(CallId("c1"), "odd", "{}", Kind.ACTION, True)),
        (action("odd_call", name="t", arguments="{}"), ToolCall(CallId("c1"), "t", '"{}"', *TEXT, "odd_call")),
        (action("odd_call", name="t", arguments=" "), ToolCall(CallId("c1"), "t", "{}", *TEXT, "odd_call")),
        (action("odd_call", name="t"), ToolCall(CallId("c1"), "t", "{}", *NAMED, "odd_call")),
        (action("odd_call", name=["t"]), ToolCall(CallId("c1"), "", "{}", *NAMED, "odd_call")),
        ({"type": "odd_call", "name": "t", "input": "x"}, ToolCall(CallId(""), "t", '"x"', *TEXT, "odd_call")),
        (SHELL | {"name": "t"}, ToolCall(CallId("c1"), "shell", '{"commands": ["ls"]}', *NAMED)),
    ],
)
def test_what_somebody_has_to_answer_is_a_call(item: dict[str, Any], expected: ToolCall) -> None:
    """Whatever its type: by its name, or where the type names the tool, by that."""
    assert call_of(item) == expected
    assert is_call_type(item["type"])


UNREADABLE: list[Any] = [None, "Function_Call", "function_call ", "tool_use", "", ["function_call"], {}, 5]


@pytest.mark.parametrize("kind", UNREADABLE, ids=repr)
def test_what_looks_like_a_call_is_one(kind: Any) -> None:
    """Where its type says nothing that anybody knows, it is a function's call, by whichever place has its text."""
    odd = FUNCTION | {"type": kind}
    assert call_of(odd) == call_of(FUNCTION)
    assert call_of({k: v for k, v in odd.items() if k != "call_id"}) == ToolCall(CallId(""), "search", '{"q": 1}')
    assert call_of({"type": kind, "call_id": "c1", "arguments": "{}"}) == ToolCall(CallId("c1"), "", "{}")
    used = {"type": kind, "id": "c1", "name": "search", "input": {"q": 1.10}}
    assert read_call(used, b'{"input":{"q":1.10}}') == ToolCall(CallId(""), "search", '{"q":1.10}', unwrapped=True)
    assert call_of(used | {"output": None}) == call_of(used)
    assert call_of(odd | {"output": "done"}) is None
    assert call_of({"type": kind, "name": "search"}) is None
    assert call_type({"type": kind, "name": "search"}, whole=False) == "function_call"
    assert call_type({"type": kind, "id": "x"}, whole=False) == ""


def test_an_odd_call_is_changed_where_its_text_stands() -> None:
    """With two texts it has none that a rule could read."""
    used = raw_of({"type": "tool_use", "name": "t", "input": {"q": 1}})
    assert edited_call(used, read(json.loads(used)), call_id="c2", text='{"q":2}') == (
        b'{"type": "tool_use","name": "t","input": {"q":2},"call_id":"c2"}'
    )
    both = read(FUNCTION | {"type": "tool_use", "input": {"q": 2}})
    assert both == ToolCall(CallId("c1"), "search", '["{\\"q\\": 1}",{"q": 2}]', unwrapped=True)
    assert read_arguments(both).value is None


def test_a_call_of_an_unknown_type_is_answered_by_its_type() -> None:
    """Not by its name, whatever that is."""
    for name in ("shell", "t", ""):
        call = read(action("odd_call", name=name, arguments="{}"))
        (own,) = map(json.loads, result_items(call, "why", blocked=True))
        assert own == {"type": "odd_call_output", "call_id": "c1", "output": "why"}


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"type": None, "call_id": "c1"},
        {"type": ["function_call"], "call_id": "c1"},
        {"type": "reasoning", "id": "rs_1", "name": "x", "arguments": "{}"},
        FUNCTION | {"type": "function_call_output"},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "mcp_call", "id": "mcp_1", "name": "find", "arguments": "{}", "server_label": "d"},
        action("web_search_call", action={"type": "search"}),
        action("file_search_call"),
        action("code_interpreter_call"),
        action("image_generation_call"),
        action("function_call_output", output="x"),
        {"type": "program", "id": "p", "call_id": "c1", "code": "x"},
        SEARCH | {"execution": "server"},
        {"type": "tool_search_call", "call_id": None, "arguments": {}},
        {"type": "odd_call", "action": {}},
    ],
)
def test_what_the_upstream_runs_or_says_is_no_call(item: dict[str, Any]) -> None:
    """Nor is what nobody could answer."""
    assert call_of(item) is None


def test_tools_that_the_upstream_hosts() -> None:
    """A request may say so of a tool that else is the client's; what an item says of itself counts more."""
    assert call_of(SHELL, "shell") is None
    assert call_of(SHELL, "function", "local_shell") is not None
    assert call_of(FUNCTION, "function", "search") is not None
    bare = {key: value for key, value in SEARCH.items() if key != "execution"}
    assert (call_of(bare, "tool_search"), call_of(bare) is None) == (None, False)
    assert call_of(SEARCH, "tool_search") is not None


def test_types_alone() -> None:
    """What may turn out to be a call is held until that is known."""
    assert [kind for kind in ("tool_search_call", "x_call", "mcp_approval_request") if is_call_type(kind)] == [
        "tool_search_call",
        "x_call",
        "mcp_approval_request",
    ]
    others = ("mcp_call", "message", "reasoning", "function_call_output", "mcp_list_tools", "compaction", "", "call")
    assert not any(map(is_call_type, others))


def test_numbers_of_an_action_stay_as_spelled() -> None:
    """Rules, and what they rewrite, see the text of the item."""
    raw = b'{"type":"shell_call","call_id":"c","action":{ "timeout_ms":1.10, "n":12345678901234567890123}}'
    found = read_call(json.loads(raw), raw)
    assert found is not None
    assert found.text == '{ "timeout_ms":1.10, "n":12345678901234567890123}'
    assert read_call({"type": "shell_call", "action": {"n": 1}}, b"") == ToolCall(
        CallId(""), "shell", '{"n":1}', Kind.ACTION, True
    )


@pytest.mark.parametrize(
    ("members", "value"),
    [
        ({"action": None, "actions": [CLICK]}, {"actions": [CLICK]}),
        ({"actions": [CLICK]}, {"actions": [CLICK]}),
        ({"action": CLICK, "actions": None}, CLICK),
        ({"action": CLICK, "actions": []}, CLICK | {"actions": []}),
        ({"action": {"type": "wait"}, "actions": [CLICK]}, {"type": "wait", "actions": [CLICK]}),
        ({"action": "x", "actions": [CLICK]}, {"actions": [CLICK]}),
    ],
)
def test_nothing_to_be_done_stands_beside_what_rules_see(members: dict[str, Any], value: Any) -> None:
    """A computer's action and its list of actions are one object, whichever a client reads; both can be rewritten."""
    item = action("computer_call", **members)
    call = read(item)
    assert read_arguments(call).value == value
    new = {**value, "more": 1} if "type" in value else value
    if "actions" in new:
        new = {**new, "actions": [{"type": "wait"}]}
    changed = json.loads(edited_call(raw_of(item), call, text=json.dumps(new)))
    assert read_arguments(read(changed)).value == new


def test_conditions_see_actions_as_arguments() -> None:
    """An action is an object like the arguments of a function."""
    value = read_arguments(read(PATCH)).value
    assert value == {"type": "delete_file", "path": "a"}


def test_records_of_hosted_servers() -> None:
    """What the upstream has run by itself is read, and nothing else is taken for it."""
    item = {"type": "mcp_call", "id": "mcp_1", "server_label": "d", "name": "find", "arguments": '{"a": 1}'}
    assert read_record(item) == ToolCall(CallId("mcp_1"), "find", '{"a": 1}', namespace="d")
    assert read_record({"type": "mcp_call", "arguments": {"a": 1}}) == ToolCall(CallId(""), "", '{"a":1}')
    assert read_record(FUNCTION) is None
    assert read_record({}) is None


# ---------------------------------------------------------------- changed calls


@pytest.mark.parametrize(
    ("item", "text", "changed"),
    [
        (FUNCTION, '{"q": 2}', {"arguments": '{"q": 2}'}),
        (FUNCTION | {"arguments": {"q": 1}}, '{"q": 2}', {"arguments": {"q": 2}}),
        (FUNCTION | {"arguments": {"q": 1}}, "no JSON", {"arguments": "no JSON"}),
        ({"type": "function_call", "call_id": "c1"}, "{}", {"arguments": "{}"}),
        (CUSTOM, "5", {"input": "5"}),
        (CUSTOM | {"input": {"a": 1}}, "5", {"input": "5"}),
        (SHELL, '{"commands": []}', {"action": {"commands": []}}),
        (SHELL | {"action": None}, '{"commands": []}', {"action": {"commands": []}}),
        (action("shell_call"), '{"commands": []}', {"action": {"commands": []}}),
        (PATCH, '{"type": "x"}', {"operation": {"type": "x"}}),
        (SEARCH, "{}", {"arguments": {}}),
        (action("odd_call", arguments={"a": 1}), "{}", {"arguments": {}}),
        (COMPUTER | {"actions": [CLICK]}, '"x"', {"action": "x", "actions": None}),
    ],
)
def test_new_arguments_stand_where_the_old_did(item: dict[str, Any], text: str, changed: dict[str, Any]) -> None:
    """In the shape that they came in; all else stays, and an id changes only where it is another."""
    call = read(item)
    expected = {key: value for key, value in {**item, **changed}.items() if value is not None}
    assert json.loads(edited_call(raw_of(item), call, text=text)) == expected
    renamed = edited_call(raw_of(item), call, text=text, call_id="c2")
    assert json.loads(renamed) == expected | {"call_id": "c2"}
    assert edited_call(raw_of(item), call, text=call.text, call_id=call.call_id) == raw_of(item)
    assert edited_call(raw_of(item), call) == raw_of(item)


def test_bytes_that_do_not_change_stay() -> None:
    """Order, spelling and unknown members are never rendered again."""
    raw = b'{ "x":1.10,"type":"function_call","call_id":"c1", "name":"n","arguments":"{}", "y":NaN }'
    call = read_call(jsontext.parse_lenient(raw), raw)
    assert call is not None
    assert edited_call(raw, call, text='{"a":1}') == raw.replace(b'"{}"', b'"{\\"a\\":1}"')


def test_an_approval_stays_as_it_is() -> None:
    """The upstream knows it by its id, and runs what it has."""
    raw = raw_of(APPROVAL)
    assert edited_call(raw, read(APPROVAL), call_id="c2", text="{}1") == raw


@given(st.text(), st.text())
def test_any_text_comes_back(text: str, other: str) -> None:
    """What is written is read again, for arguments and for free text."""
    for item in (FUNCTION, CUSTOM):
        data = edited_call(raw_of(item), read(item), text=text, call_id=other)
        found = read_call(json.loads(data), data)
        assert found is not None
        assert (found.text, found.call_id) == (text, other)


# ---------------------------------------------------------------- results

CALLS = [FUNCTION, CUSTOM, APPROVAL, SHELL, LOCAL_SHELL, PATCH, COMPUTER, SEARCH]


@pytest.mark.parametrize(
    ("item", "blocked", "expected"),
    [
        (FUNCTION, True, {"type": "function_call_output", "call_id": "c1", "output": "why"}),
        (CUSTOM, False, {"type": "custom_tool_call_output", "call_id": "c1", "output": "why"}),
        (
            APPROVAL,
            True,
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "why"},
        ),
        (APPROVAL, False, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}),
        (
            SHELL,
            True,
            {
                "type": "shell_call_output",
                "call_id": "c1",
                "output": [{"stdout": "", "stderr": "why", "outcome": {"type": "exit", "exit_code": 1}}],
            },
        ),
        (
            SHELL,
            False,
            {
                "type": "shell_call_output",
                "call_id": "c1",
                "output": [{"stdout": "why", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
        ),
        (LOCAL_SHELL, True, {"type": "local_shell_call_output", "id": "c1", "output": "why"}),
        (PATCH, True, {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "why"}),
        (PATCH, False, {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "why"}),
        (
            SEARCH,
            True,
            {
                "type": "tool_search_output",
                "call_id": "c1",
                "execution": "client",
                "status": "completed",
                "tools": [],
            },
        ),
        (action("odd_call"), True, {"type": "odd_call_output", "call_id": "c1", "output": "why"}),
    ],
)
def test_a_result_is_the_item_that_its_call_asks_for(
    item: dict[str, Any], blocked: bool, expected: dict[str, Any]
) -> None:
    """Where that has no room for words, they stand in a note behind it."""
    own, *more = map(json.loads, result_items(read(item), "why", blocked=blocked))
    assert own == expected
    note = {"type": "message", "role": "developer", "content": "why"}
    assert more == ([note] if item is SEARCH else [])
    answered = expected.get("call_id") or expected.get("approval_request_id") or expected["id"]
    assert read(item).call_id == answered
    result = read_result(own)
    assert result is not None
    assert result[0] == answered


def test_a_denial_without_a_word_has_no_reason() -> None:
    """An empty one would be shown."""
    (own,) = result_items(read(APPROVAL), "", blocked=True)
    assert "reason" not in json.loads(own)


def test_a_computer_shows_a_blank_screen() -> None:
    """Its output is a picture that can be read, and what is to be said follows."""
    own, note = map(json.loads, result_items(read(COMPUTER), "why", blocked=True))
    assert (own["type"], own["call_id"], note["content"]) == ("computer_call_output", "c1", "why")
    kind, data = own["output"]["image_url"].split(",")
    assert kind == "data:image/png;base64"
    png = base64.b64decode(data, validate=True)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(png):
        size = int.from_bytes(png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert int.from_bytes(png[at + 8 + size : at + 12 + size]) == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert chunks[b"IHDR"] == bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0])
    assert zlib.decompress(chunks[b"IDAT"]) == b"\x00\xff"


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("item", CALLS, ids=lambda item: item["type"])
def test_results_are_what_an_sdk_sends(item: dict[str, Any], blocked: bool) -> None:
    """Each validates as an input item, and has no member that such an item does not know."""
    for own in map(json.loads, result_items(read(item), "why", blocked=blocked)):
        assert _plain(INPUT.validate_python(own)) == own


def _plain(value: Any) -> Any:
    """A validated value as JSON has it: pydantic gives iterators for lists."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else [_plain(one) for one in value]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "function_call_output", "call_id": "c", "output": "x", "name": "n"}, ("c", "x", "n")),
        ({"type": "function_call_output", "call_id": 5, "output": None}, ("5", "", "")),
        ({"type": "function_call_output"}, ("", "", "")),
        (
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "a"}, {"type": "input_image"}, 5, {"text": "b"}],
            },
            ("c", "a\nb", ""),
        ),
        (
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": "b"}]},
            ("c", "a\nb", ""),
        ),
        ({"type": "computer_call_output", "call_id": "c", "output": {"image_url": "x"}}, ("c", "", "")),
        ({"type": "local_shell_call_output", "id": "c", "output": "x"}, ("c", "x", "")),
        ({"type": "local_shell_call_output", "id": "o", "call_id": "c", "output": "x"}, ("c", "x", "")),
        ({"type": "shell_call_output", "id": "o", "output": []}, ("", "", "")),
        ({"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}, ("r", "", "")),
        ({"type": "mcp_approval_response", "approval_request_id": "r", "reason": "no"}, ("r", "no", "")),
        ({"type": "tool_search_output", "call_id": "c", "tools": []}, ("c", "", "")),
        ({"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []}, None),
        (FUNCTION, None),
        ({"type": "program_output", "call_id": "c", "result": "x"}, None),
        ({"type": 5}, None),
        ({}, None),
    ],
)
def test_what_answers_a_call(item: dict[str, Any], expected: tuple[str, str, str] | None) -> None:
    """By which id, with which words, and of which tool where it says so."""
    assert read_result(item) == expected


def test_outputs_of_hosted_tools_are_records() -> None:
    """What the upstream has run by itself answers nobody."""
    output = {"type": "shell_call_output", "call_id": "c", "output": []}
    assert read_result(output, hosted=("shell",)) is None
    assert read_result({"type": "function_call_output", "call_id": "c"}, hosted=("shell",)) == ("c", "", "")


# ---------------------------------------------------------------- items that come and go


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (FUNCTION, {"id"}),
        (CUSTOM, {"id"}),
        (SHELL, {"id"}),
        ({"type": "mcp_call", "id": "mcp_1", "name": "n"}, {"id"}),
        (SHELL | {"call_id": None}, set()),
        ({"type": "function_call", "call_id": "c"}, set()),
        (APPROVAL, set()),
        (LOCAL_SHELL, set()),
        (COMPUTER, set()),
        ({"type": "web_search_call", "id": "ws_1"}, set()),
        ({"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": []}, set()),
        ({"type": "reasoning", "id": "rs_1", "encrypted_content": "", "summary": []}, None),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, None),
        ({"type": "message", "id": "msg_1", "role": "assistant", "content": []}, set()),
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, set()),
        ({"id": "x"}, set()),
        ("odd", set()),
    ],
)
def test_what_goes_back(item: Any, expected: set[str] | None) -> None:
    """All of it where the upstream stored it; else nothing that only an upstream which stored it would know."""
    raw = raw_of(item).replace(b'{"type": ', b'{ "type" : ')
    assert sent_back(raw, stored=True) == raw
    found = sent_back(raw, stored=False)
    if not expected:
        assert found == (raw if expected is not None else None)
        return
    assert found is not None
    assert json.loads(found) == {key: value for key, value in item.items() if key not in expected}


def test_an_item_that_no_strict_reader_takes_goes_back() -> None:
    """As far as it was let in, it can be sent on."""
    raw = b'{"type":"function_call","id":"fc_1","call_id":"c","arguments":"\xff","n":NaN}'
    assert sent_back(raw, stored=False) == raw.replace(b'"id":"fc_1",', b"")


@pytest.mark.parametrize("item", CALLS, ids=lambda item: item["type"])
def test_what_goes_back_is_what_an_sdk_sends(item: dict[str, Any]) -> None:
    """The items of these tests are an upstream's, and valid as input without what was taken from them."""
    found = sent_back(raw_of(item), stored=False)
    assert found is not None
    assert INPUT.validate_json(found)["type"] == item["type"]
    if item is not SHELL:  # its environment is left out
        OUTPUT.validate_python(item)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (FUNCTION, [("id", "fc_1"), ("call", "c1")]),
        ({"type": "item_reference", "id": "fc_1"}, [("id", "fc_1")]),
        ({"id": "fc_1"}, [("id", "fc_1")]),
        ({"type": "function_call", "call_id": "c1", "id": ""}, [("call", "c1")]),
        ({"type": "function_call_output", "call_id": "c1"}, []),
        ({"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}, [("id", "rs_1"), ("reasoning", "x")]),
        ({"type": "reasoning", "encrypted_content": "x"}, [("reasoning", "x")]),
        ({"type": "reasoning", "encrypted_content": None}, []),
        ({"role": "assistant", "content": "hi"}, [("message", "hi")]),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
            [("message", "hi")],
        ),
        ({"role": "assistant", "content": []}, []),
        ({"role": "user", "content": "hi"}, []),
        (
            {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "read", "output": "x"},
            [("record", '[null,"docs","read",null,"x",null]'), ("id", "mcp_1")],
        ),
        ({"type": "compaction", "encrypted_content": "x"}, []),
        ({"id": 5}, []),
        ({}, []),
    ],
)
def test_what_an_item_is_told_by(item: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Its id first; then what a client that keeps no ids would keep. A record may have lost its id."""
    assert item_identities(item) == expected
    assert item_identity(item) == (expected[0] if expected else None)


def test_references() -> None:
    """An item that only names another may leave out its type."""
    assert is_reference({"type": "item_reference", "id": "a"})
    assert is_reference({"id": "a"})
    assert is_reference({"type": None, "id": "a"})
    others: list[dict[str, Any]] = [{"id": "a", "role": "user"}, {"id": 5}, {}, FUNCTION]
    assert not any(map(is_reference, others))


def test_messages() -> None:
    """A message of our own is an output item, and its text is read as that of any other."""
    own = message_item("The end.", "msg_1")
    assert OUTPUT.validate_python(own).id == "msg_1"
    assert _plain(INPUT.validate_python(own)) == own
    assert message_text(own) == "The end."
    assert message_text({"content": "a"}) == "a"
    assert message_text({"content": [{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}) == "a"
    assert message_text({}) == ""
