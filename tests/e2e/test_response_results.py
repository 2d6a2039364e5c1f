"""What rules make of results on their way to the model, whoever keeps the calls that they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.endpoint import Endpoint
from tests.e2e.manners import Client, all_manners, both, remembered
from tests.e2e.responses import A, B, C, Item, action, call, custom, message, output, plain, user
from tests.e2e.sidecall import policy, rule, sidecall
from tests.fake_upstream import FakeUpstream

KEPT = "Tool result withheld by policy p/kept: not for you"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return policy(
        tmp_path,
        rule(
            "redact",
            "search",
            "run",
            "shell",
            "mail.search",
            result={"redact": [{"pattern": "[0-9]{4}", "with": "****"}]},
        ),
        rule("replace", "count", result={"replace": {"content": "many"}}),
        rule("kept", "secret", result={"block": {"message": "not for you"}}),
        rule("short", "long", result={"truncate": {"maxBytes": 8}}),
        rule("no", "delete", block={"message": "no"}),
    )


@both
@all_manners
async def test_results_are_judged_under_the_names_of_their_calls(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Also where only the response before had the names; and the same on every later turn."""
    calls = [call(A, "search"), call(B, "secret"), call(C, "count")]
    for said in (calls, [message("done", 1)], [message("bye", 2)]):
        endpoint.says(*said)
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output(A, "it is 1234"), output(B, "hush"), output(C, "7"))
        await client.say(user("more"))
        outcomes = {"redacted": 1, "blocked": 1, "replaced": 1}
        assert {o: here.total("tool_results_total", outcome=o, owner="client") for o in outcomes} == outcomes
        assert here.total("tool_results_total", tool="search", outcome="redacted") == 1
    results = [output(A, "it is ****"), output(B, KEPT), output(C, "many")]
    assert plain(endpoint.seen[1]) == plain([user(), *calls, *results])
    assert endpoint.seen[2][:7] == endpoint.seen[1]


@both
@remembered
async def test_a_result_of_an_unknown_name_meets_every_rule(
    manner: str, streams: bool, tmp_path: Path, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Nobody here has seen the call: it could be that of any tool."""
    rules = policy(tmp_path, rule("redact", "search", result={"redact": [{"pattern": "[0-9]{4}", "with": "****"}]}))
    endpoint.says(call(A, "other"))
    async with sidecall(upstream.url, policies=[rules]) as elsewhere:
        answer = await Client(elsewhere, manner, streams).say(user())
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams, previous=answer.id)
        await client.say(output(A, "it is 1234"))
    assert endpoint.last["input"] == [output(A, "it is ****")]


@both
@remembered
async def test_a_result_whose_name_is_known_meets_the_rules_of_its_tool_alone(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Names are kept for stored responses while there are rules for results; an id is weak or not."""
    endpoint.says(call("call_1", "other"))
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        await client.say(user())
        await client.say(output("call_1", "it is 1234"))
    assert endpoint.last["input"] == [output("call_1", "it is 1234")]


PARTS = [
    {"type": "input_text", "text": "1234 a"},
    {"type": "input_image", "image_url": "data:,1234"},
    {"type": "input_text", "text": "b 5678"},
]


@both
@pytest.mark.parametrize(
    ("made", "given", "expected"),
    [
        (
            call(A, "search"),
            output(A, PARTS),
            output(A, [{**PARTS[0], "text": "**** a"}, PARTS[1], {**PARTS[2], "text": "b ****"}]),
        ),
        (call(A, "secret"), output(A, PARTS), output(A, KEPT)),
        (call(A, "long"), output(A, "0123456789" * 5), None),
        (custom(A, "run", "x"), output(A, "1234", "custom_tool_call"), output(A, "****", "custom_tool_call")),
        (call(A, "search", namespace="mail"), output(A, "1234"), output(A, "****")),
        (
            action(A, "shell", action={"commands": ["ls"]}),
            output(
                A, [{"stdout": "1234", "stderr": "5678", "outcome": {"type": "exit", "exit_code": 0}}], "shell_call"
            ),
            output(
                A, [{"stdout": "****", "stderr": "****", "outcome": {"type": "exit", "exit_code": 0}}], "shell_call"
            ),
        ),
    ],
)
async def test_outputs_of_every_form(
    made: Item,
    given: Item,
    expected: Item | None,
    streams: bool,
    rules: str,
    upstream: FakeUpstream,
    endpoint: Endpoint,
) -> None:
    """Texts are changed where they stand; what is held back goes whole."""
    endpoint.says(made)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, streams=streams)
        await client.say(user())
        await client.say(given)
    found = endpoint.last["input"][2]
    if expected is None:
        assert found["output"].startswith("01234567")
        assert len(found["output"]) < len(given["output"])
    else:
        assert found == expected


@both
@all_manners
async def test_results_in_a_batch_that_is_put_back(
    manner: str, streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """Rules see them under the names that the batch has, under fresh ids too."""
    batch = [call("call_1", "search"), call("call_2", "delete"), custom("call_3", "run", "x")]
    endpoint.says(*batch)
    endpoint.says(message("done"))
    async with sidecall(upstream.url, policies=[rules]) as here:
        client = Client(here, manner, streams)
        ids = [item["call_id"] for item in (await client.say(user())).calls]
        await client.say(output(ids[0], "1234"), output(ids[1], "5678", "custom_tool_call"))
    results = [output("call_1", "****"), output("call_2", "Tool call blocked by policy p/no: no")]
    assert plain(endpoint.seen[1]) == plain([user(), *batch, *results, output("call_3", "****", "custom_tool_call")])


@both
async def test_results_of_proxy_tools_are_judged(
    streams: bool, rules: str, upstream: FakeUpstream, endpoint: Endpoint
) -> None:
    """In a hidden round, and in a batch that comes back."""
    endpoint.says(call(A, "secret"))
    endpoint.says(call(B, "search"), call(C, "secret"))
    endpoint.says(message("done"))
    tools: list[Any] = [upstream.tool("secret", "hush")]
    async with sidecall(upstream.url, policies=[rules], tools=tools) as here:
        client = Client(here, "previous", streams, tools=("search",))
        await client.say(user())
        await client.say(output(B, "found"))
    assert endpoint.asked[1]["input"][-1] == output(A, KEPT)
    assert endpoint.last["input"] == [output(B, "found"), output(C, KEPT)]
    assert len(upstream.runs["secret"]) == 2


async def test_a_request_in_which_no_result_changes_goes_up_byte_for_byte(rules: str, upstream: FakeUpstream) -> None:
    """Its spelling is its own."""
    sent = (
        b'{ "model":"m", "input":[ {"type":"function_call","call_id":"call_1","name":"search","arguments":"{ }"},'
        b' {"type":"function_call_output","call_id":"call_1","output":"nothing","n":1.10} ] }'
    )
    async with sidecall(upstream.url, policies=[rules]) as here:
        await here.post(sent, path="/v1/responses")
    assert upstream.last.body == sent
