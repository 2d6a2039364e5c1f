"""Calls of every kind that a response may have: functions, custom tools, namespaces, and tools of the API's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, both
from tests.e2e.responses import A, B, C, Item, action, call, custom, message, output, plain, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

NO = blocked("not here", "no")
SHELL = {"commands": ["rm -rf /"], "timeout_ms": 1000}
LOCAL = {"type": "exec", "command": ["rm", "-rf"], "env": {}}
PATCH = {"type": "delete_file", "path": "a"}
CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}


def exit_of(text: str) -> list[dict[str, Any]]:
    return [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]


OWN: dict[str, tuple[Item, Item]] = {
    "shell": (action(A, "shell", action=SHELL), output(A, exit_of(NO), "shell_call")),
    "local_shell": (
        action(A, "local_shell", action=LOCAL),
        {"type": "local_shell_call_output", "id": A, "output": NO},
    ),
    "apply_patch": (
        action(A, "apply_patch", operation=PATCH),
        {**output(A, NO, "apply_patch_call"), "status": "failed"},
    ),
    "future": (action(A, "future", action={"do": "it"}), output(A, NO, "future_call")),
}


@both
@pytest.mark.parametrize("manner", ["full", "previous", "stateless"])
@pytest.mark.parametrize("tool", OWN)
async def test_a_tool_of_the_apis_own_is_blocked(
    tool: str, manner: str, streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """By its type; its result is the item that its kind asks for, in a continuation and beside others."""
    made, result = OWN[tool]
    for said in ([made], [call(B, "search"), {**made, "call_id": C, "id": f"{made['id']}2"}], [message("done")]):
        endpoint.says(*said)
    rules = policy(tmp_path, rule("no", tool, block={"message": "not here"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        assert (await client.say(user())).names == ["search"]
        await client.say(output(B, "found"))
    second = {**result, **({"id": C} if "id" in result else {"call_id": C})}
    assert plain(endpoint.seen[1][1:]) == plain([made, result])
    assert [i for i in endpoint.seen[2][3:] if "output" in i] == [output(B, "found"), second]


@both
async def test_a_computers_result_has_a_note_behind_all_results(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A screen has no room for words."""
    click = action(A, "computer", action=CLICK, pending_safety_checks=[])
    endpoint.says(click, call(B, "search"))
    endpoint.says(message("done"))
    rules = policy(tmp_path, rule("no", "computer", block={"message": "not here"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        await client.say(output(B, "found"))
    assert endpoint.seen[1][1:3] == [click, call(B, "search")]
    screen, found, note = endpoint.seen[1][3:]
    assert screen["type"] == "computer_call_output"
    assert screen["output"]["type"] == "computer_screenshot"
    assert (found, note) == (
        output(B, "found"),
        {"type": "message", "role": "developer", "content": NO},
    )


@both
@pytest.mark.parametrize("made", [made for made, _ in OWN.values()])
async def test_what_no_rule_holds_passes_as_it_came(
    made: Item, streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """With its result, which the client sends in its own way."""
    endpoint.says(made)
    endpoint.says(message("done"))
    rules = policy(tmp_path, rule("no", "delete", block={"message": "not here"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        assert (await client.say(user())).items == [made]
        answered = {"type": f"{made['type']}_output", "call_id": A, "output": [{"stdout": "ok"}]}
        await client.say(answered)
    assert endpoint.last["input"] == [user(), made, answered]


@both
async def test_rules_read_what_a_tool_of_the_apis_own_is_to_do(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Its action is its arguments: a rule can judge it, and change it."""
    endpoint.says(
        action(A, "shell", action=SHELL),
        action(B, "shell", action={"commands": ["ls"], "timeout_ms": 9000}),
    )
    rules = policy(
        tmp_path,
        {
            "name": "no",
            "match": {"tools": ["shell"]},
            "when": "args.commands.exists(c, c.startsWith('rm'))",
            "block": {"message": "not here"},
        },
        rule("cap", "shell", rewrite={"clamp": {"timeout_ms": {"max": 500}}}),
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=streams).say(user())
    assert answer.items == [action(B, "shell", action={"commands": ["ls"], "timeout_ms": 500})]


@both
async def test_a_shell_that_the_upstream_runs_is_a_record(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """It has run: nothing of it is held, and nobody owes it a result."""
    ran = [action(A, "shell", action=SHELL), output(A, [{"stdout": "ok"}], "shell_call")]
    endpoint.says(*ran, message("done", 1))
    endpoint.says(message("bye", 2))
    rules = policy(tmp_path, rule("no", "shell", block={"message": "not here"}))
    tools: list[Any] = [{"type": "shell", "environment": {"type": "container_auto"}}]
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams, tools=tools)
        ran[1]["id"] = "sho_1"
        assert (await client.say(user())).items == [*ran, message("done", 1)]
        await client.say(user("more"))
        assert here.total("tool_calls_total") == 0
    assert endpoint.last["input"] == [user(), *ran, message("done", 1), user("more")]


@both
async def test_a_search_for_tools_that_the_client_runs_is_a_call(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """One that the server runs is not."""
    mine = action(A, "tool_search", arguments={"q": "x"}, execution="client")
    theirs = {**action(B, "tool_search", arguments={"q": "y"}, execution="server"), "call_id": None}
    endpoint.says(theirs, mine, call(C, "search"))
    rules = policy(tmp_path, rule("no", "tool_search", block={"message": "not here"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        answer = await Client(here, streams=streams).say(user())
    assert answer.items == [theirs, call(C, "search")]


@both
async def test_custom_tools_with_free_text(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Judged and changed by `args.input`, answered by outputs of their own kind."""
    held, shown = custom(A, "run", 'rm "x" \\ é'), custom(B, "run", "ls")
    endpoint.says(held, shown)
    endpoint.says(message("done"))
    rules = policy(
        tmp_path,
        {
            "name": "no",
            "match": {"tools": ["run"], "args": {"input": {"regex": "^rm"}}},
            "block": {"message": "not here"},
        },
        rule("mark", "run", rewrite={"expr": "{'input': args.input + ' -l'}"}),
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert answer.items == [custom(B, "run", "ls -l")]
        await client.say(output(B, "files", "custom_tool_call"))
    results = [output(A, NO, "custom_tool_call"), output(B, "files", "custom_tool_call")]
    assert endpoint.seen[1] == [user(), held, custom(B, "run", "ls -l"), *results]


@both
@pytest.mark.parametrize(("pattern", "held"), [("delete", 2), ("files.delete", 1), ("mail.*", 1), ("files.*", 1)])
async def test_tools_behind_a_namespace_match_with_it_and_without(
    pattern: str, held: int, streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The namespace stays on the call, in the continuation and for the client."""
    batch = [call(A, "delete", namespace="files"), call(B, "delete", namespace="mail"), call(C, "search")]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    rules = policy(tmp_path, rule("no", pattern, block={"message": "not here"}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        answer = await client.say(user())
        assert len(answer.calls) == 3 - held
        assert all(item in batch for item in answer.items)
        await client.say(*(output(item["call_id"], "ok") for item in answer.calls))
    assert endpoint.seen[1][1:4] == batch


@both
async def test_a_function_whose_arguments_are_no_text(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """An object that came bare is judged as the object that it is, and stays bare."""
    bare = {**call(A, "cap"), "arguments": {"limit": 99, "q": 1.10}}
    if streams:
        bare["arguments"] = json.dumps(bare["arguments"])
    endpoint.says(bare)
    rules = policy(tmp_path, rule("cap", "cap", rewrite={"clamp": {"limit": {"max": 10}}}))
    async with sidecall(upstream.url, policies=[rules]) as here:
        item = (await Client(here, streams=streams).say(user())).items[0]
    found: Any = item["arguments"]
    assert (json.loads(found) if streams else found) == {"limit": 10, "q": 1.1}
    assert isinstance(found, str) is streams


@both
async def test_calls_of_every_kind_are_counted_by_name_and_owner(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A name that the request does not declare is `other`."""
    endpoint.says(action(A, "shell", action=SHELL), custom(B, "search", "x"), call(C, "made_up"))
    rules = policy(tmp_path, rule("no", "delete", block={"message": "not here"}))
    tools: list[Any] = ["search", {"type": "shell"}]
    async with sidecall(upstream.url, policies=[rules]) as here:
        await Client(here, streams=streams, tools=tools).say(user())
        labels = {"api": "responses", "owner": "client", "decision": "allowed"}
        counted = {name: here.total("tool_calls_total", tool=name, **labels) for name in ("shell", "search", "other")}
    assert counted == {"shell": 1, "search": 1, "other": 1}
