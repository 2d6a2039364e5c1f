"""Hosted MCP servers: the upstream asks before it calls them where a rule could say no, and the rules answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import blocked
from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both
from tests.e2e.responses import A, approval, approved, call, message, output, plain, ran, server, stream, user, whole
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

NO = blocked("not here", "no")
READ, DELETE = approval("read", number=1, path="a"), approval("delete", number=2, path="b")


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(tmp_path, rule("no", "docs.delete", block={"message": "not here"}))


def asking(endpoint: Endpoint) -> list[Any]:
    """What each request said of approval."""
    return [
        tool.get("require_approval") for request in endpoint.asked for tool in request["tools"] if "server_url" in tool
    ]


@both
@all_manners
async def test_a_server_that_runs_without_asking_asks_the_rules(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """What they allow is approved in the client's place, what they block is denied with a reason; the client sees
    neither question nor answer, and the next turn has both."""
    done = [ran("read", asked=READ["id"]), message("Read, not deleted.", 1)]
    endpoint.says(READ, DELETE)
    endpoint.says(*done)
    endpoint.says(message("bye", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams, tools=[server(require_approval="never")])
        answer = await client.say(user())
        assert answer.items == done
        await client.say(user("more"))
        labels = {"api": "responses", "owner": "upstream"}
        assert here.total("tool_calls_total", decision="allowed", **labels) == 1
        assert here.total("tool_calls_total", decision="blocked", **labels) == 1
        assert here.total("tool_calls_total") == 2
    answers = [approved(READ), approved(DELETE, False, reason=NO)]
    assert asking(endpoint) == ["always"] * 3
    assert plain(endpoint.seen[1]) == plain([user(), READ, DELETE, *answers])
    assert plain(endpoint.seen[2]) == plain([*endpoint.seen[1], *done, user("more")])
    assert [item for item in endpoint.seen[1] if item.get("type") == "mcp_approval_request"] == [READ, DELETE]


@both
@pytest.mark.parametrize("setting", [{}, {"require_approval": "always"}, {"require_approval": {"always": {}}}])
async def test_a_client_that_wants_to_be_asked_still_is(
    setting: dict[str, Any], streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """For what the rules allow; what they block is denied in its place."""
    endpoint.says(READ, DELETE)
    endpoint.says(ran("read", asked=READ["id"]), message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams, tools=[server(**setting)])
        assert (await client.say(user())).items == [READ]
        await client.say(approved(READ, reason="go"))
        assert here.total("tool_calls_total") == 2
    assert endpoint.last["input"] == [approved(READ, reason="go"), approved(DELETE, False, reason=NO)]


@both
@pytest.mark.parametrize("surfaced", [True, False])
async def test_a_client_that_is_asked_for_some_tools(
    surfaced: bool, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Only those that it lets run without asking are approved in its place."""
    names = ["other"] if surfaced else ["read"]
    endpoint.says(READ)
    if not surfaced:
        endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        tools = [server(require_approval={"never": {"tool_names": names}})]
        answer = await Client(here, streams=streams, tools=tools).say(user())
    assert answer.items == ([READ] if surfaced else [message("done")])
    assert set(asking(endpoint)) == {"always"}


@both
async def test_a_server_that_no_rule_can_hold_is_left_alone(
    streams: bool, tmp_path: Path, upstream: FakeUpstream
) -> None:
    """The request goes up byte for byte, and what has run is counted once as a record."""
    items = [ran("read"), message("done")]
    upstream.script(stream(*items) if streams else whole(*items))
    own = {"name": "no", "match": {"owner": "client", "tools": ["delete"]}, "block": {"message": "not here"}}
    rules = policy(tmp_path, own)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams, tools=[server("mail", require_approval="never")])
        sent = json.dumps(client.request(user()), indent=1).encode()
        got = await client.post(sent)
        labels = {"api": "responses", "owner": "upstream", "decision": "allowed"}
        assert here.total("tool_calls_total", **labels) == here.total("tool_calls_total") == 1
    assert upstream.last.body == sent
    assert got.data == (stream(*items) if streams else whole(*items)).data()


@both
@pytest.mark.parametrize("allowed", [["read", "list"], {"tool_names": ["read"]}])
async def test_a_server_whose_tools_are_named_asks_only_where_one_of_them_could_be_held(
    allowed: Any, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """None of these could."""
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        tools = [server(allowed_tools=allowed, require_approval="never")]
        await Client(here, streams=streams, tools=tools).say(user())
    assert asking(endpoint) == ["never"]


@both
@all_manners
async def test_an_approval_beside_a_clients_call(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """The answer to the question comes with the result of the call."""
    batch = [READ, call(A, "search"), DELETE]
    endpoint.says(*batch)
    endpoint.says(ran("read", asked=READ["id"]), message("done", 1))
    endpoint.says(message("bye", 2))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams, tools=["search", server(require_approval="never")])
        assert (await client.say(user())).items == [call(A, "search")]
        await client.say(output(A, "found"))
        await client.say(user("more"))
        assert here.total("tool_calls_total") == 3
    answers = [approved(READ), output(A, "found"), approved(DELETE, False, reason=NO)]
    assert plain(endpoint.seen[1]) == plain([user(), *batch, *answers])
    assert endpoint.seen[2][: len(endpoint.seen[1])] == endpoint.seen[1]


@both
@pytest.mark.parametrize("acts", [{"rewrite": {"merge": {"path": "c"}}}, {"answer": {"content": "no file"}}])
async def test_a_rule_that_cannot_act_on_what_the_upstream_runs_blocks(
    acts: dict[str, Any], streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Neither arguments nor a result of the upstream's own can be put in its place: that is an evaluation error."""
    endpoint.says(READ)
    endpoint.says(message("I may not."))
    rules = policy(tmp_path, rule("odd", "docs.read", **acts))
    async with sidecall(upstream.url, policies=[rules]) as here:
        tools = [server(require_approval="never")]
        assert (await Client(here, streams=streams, tools=tools).say(user())).texts == ["I may not."]
        assert here.value("policy_errors_total", policy="p", rule="odd") == 1
    reason = "Tool call blocked by policy p/odd: the rule could not be evaluated"
    assert endpoint.last["input"][-1] == approved(READ, False, reason=reason)


@both
async def test_rules_tell_hosted_calls_by_their_owner(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """`owner: upstream` is the upstream's alone."""
    endpoint.says(approval("search"), call(A, "search"))
    own = {"name": "no", "match": {"owner": "upstream"}, "block": {"message": "not here"}}
    async with sidecall(upstream.url, policies=[policy(tmp_path, own)]) as here:
        answer = await Client(here, streams=streams, tools=["search", server()]).say(user())
    assert answer.items == [call(A, "search")]


@both
async def test_hidden_servers_and_their_tools(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """A server goes whole by its label, one of its tools from the list of those that are allowed."""
    rules = policy(tmp_path, rule("hide", "mail", "docs.delete", hide={}))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        tools = [server(allowed_tools=["read", "delete"], require_approval="never"), server("mail")]
        await Client(here, streams=streams, tools=tools).say(user())
    assert [(t["server_label"], t["allowed_tools"]) for t in endpoint.last["tools"]] == [("docs", ["read"])]


@both
async def test_a_stopped_turn_denies_what_was_asked_in_it(
    streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Nothing of a turn that a rule ended runs, at the upstream neither."""
    rules = policy(tmp_path, rule("stop", "docs.delete", block={"message": "enough", "then": "stop"}))
    endpoint.says(READ, DELETE)
    endpoint.says(message("bye"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, "previous", streams, tools=[server(require_approval="never")])
        assert (await client.say(user())).texts == ["enough"]
        await client.say(user("more"))
    denied = [(item.get("approve"), item.get("approval_request_id")) for item in endpoint.last["input"][:2]]
    assert denied == [(False, READ["id"]), (False, DELETE["id"])]


@both
async def test_two_approvals_under_one_id_are_refused(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Neither is given: nobody could say which of them was meant."""
    endpoint.says(message("Hm."), READ, {**DELETE, "id": READ["id"]})
    async with sidecall(upstream.url, policies=[rules]) as here:
        got = await Client(here, streams=streams, tools=[server(require_approval="never")]).send(user())
    assert got.status == (200 if streams else 502)
    assert b"asked for under one id" in got.data
    assert len(endpoint.seen) == 1
