"""What the upstream is asked for a response, and what of an answer goes back into a history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.batch.record import Round, RoundResult
from proxy.core.calls import CallId, Kind, Owner, RequestFacts, ToolCall
from proxy.core.exchange.approvals import Approvals
from proxy.core.exchange.judging import Conclusion, End, Judge, Judged
from proxy.core.exchange.response_rounds import (
    ResponseQuestion,
    batch_message,
    continuation,
    denied_after,
    first_question,
    round_message,
    shown_before,
)
from proxy.core.exchange.turns import ChoiceTurn
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.response_request import declaration, read_request
from proxy.errors import RequestError
from tests.core.policy.engine import policies, rule

COUNT = declaration("count", "Counts.", {"type": "object"})
USER = {"role": "user", "content": "hi"}
REASONING: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": []}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "delete", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "no"}


def asked(
    body: bytes, *, rules: list[Any] | None = None, tools: list[Any] | None = None, **more: Any
) -> ResponseQuestion:
    request = read_request(body, 128)
    chain = policies(rules or []).for_request(RequestFacts(declared=request.declared))
    given: dict[str, Any] = {"declarations": tools or [], "items": None, "previous": None, **more}
    return first_question(request, Judge(chain, RequestFacts(), ()), Approvals.of(request.tools, chain), **given)


def body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "input": [USER], **more}).encode()


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


# ---------------------------------------------------------------- the first question


@pytest.mark.parametrize(
    "sent",
    [
        b'{ "model":"m", "input":"h\\u00e9", "temperature":1.10 }',
        b'{ "input":[ {"role":"user","content":"x","n":1.10} ],"tools":[ {"type":"function","name":"a"} ] }',
        b"no json",
        b'{"model":"m"}',
    ],
)
def test_a_request_in_which_nothing_changes_is_the_clients_own(sent: bytes) -> None:
    """To the byte, whatever it is."""
    question = asked(sent, tools=[("count", COUNT, True)] if b"tools" not in sent else [])
    assert (question.body, question.changed) == (sent, False)


def test_a_string_becomes_a_message_only_where_the_input_is_needed_as_items() -> None:
    """It goes up as it came."""
    question = asked(b'{"input":"h\\u00e9"}')
    assert question.body == b'{"input":"h\\u00e9"}'
    assert question.items == [b'{"role":"user","content":"h\\u00e9"}']


def test_what_is_put_back_stands_in_the_place_of_the_input() -> None:
    """The rest stays as it was spelled; a response goes up under the upstream's own id, or not at all."""
    sent = b'{ "a":1.10, "input":"x", "previous_response_id":"shown" }'
    items = [json.dumps(item).encode() for item in (USER, MESSAGE)]
    assert json.loads(asked(sent, items=items).body)["input"] == [USER, MESSAGE]
    assert asked(sent, previous="last").body == b'{ "a":1.10, "input":"x", "previous_response_id":"last" }'
    assert "previous_response_id" not in json.loads(asked(sent, previous="").body)


@pytest.mark.parametrize(
    ("more", "beside", "expected"),
    [
        ({"tools": [function("a")]}, True, ["a", "count"]),
        ({"tools": [function("a")]}, False, ["a", "count"]),
        ({}, True, []),
        ({}, False, ["count"]),
        ({"tools": [function("count")]}, True, ["count"]),
        ({"tools": [function("secret")]}, False, ["count"]),
        ({"tools": [function("secret")]}, True, ["count"]),
        ({"tools": [function("secret"), function("a")]}, True, ["a", "count"]),
        ({"tools": [function("a")], "tool_choice": "none"}, True, ["a"]),
        ({"tools": [function(f"t{n}") for n in range(128)]}, True, [f"t{n}" for n in range(128)]),
    ],
)
def test_the_tools_of_a_question(more: dict[str, Any], beside: bool, expected: list[str]) -> None:
    """Hidden ones go, proxy tools come behind the client's own, whose names win."""
    question = asked(body(**more), rules=[rule("secret", hide={})], tools=[("count", COUNT, beside)])
    assert [tool["name"] for tool in json.loads(question.body).get("tools", [])] == expected


def test_a_choice_of_a_hidden_tool_is_refused() -> None:
    """A request that insists on it is told so."""
    with pytest.raises(RequestError):
        asked(
            body(tools=[function("secret")], tool_choice=function("secret")),
            rules=[rule("secret", hide={})],
        )


def test_a_choice_stands_where_proxy_tools_take_the_place_of_hidden_ones() -> None:
    """There is something to choose again."""
    sent = body(tools=[function("secret")], tool_choice="auto", parallel_tool_calls=False)
    kept = json.loads(asked(sent, rules=[rule("secret", hide={})], tools=[("count", COUNT, False)]).body)
    assert (kept["tool_choice"], kept["parallel_tool_calls"]) == ("auto", False)
    gone = json.loads(asked(sent, rules=[rule("secret", hide={})]).body)
    assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(gone)


def test_a_hosted_server_asks_where_a_rule_could_hold_its_calls() -> None:
    """Beside other tools, told-of ones and hidden ones; a server that nothing could hold stays as it is."""
    docs = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
    sent = body(tools=[docs, function("a"), {"type": "mcp", "server_label": "x", "allowed_tools": ["read"]}])
    question = asked(sent, rules=[rule("delete", block={"message": "no"})], tools=[("count", COUNT, True)])
    tools = json.loads(question.body)["tools"]
    assert [tool.get("require_approval") for tool in tools] == ["always", None, None, None]
    assert asked(sent).body == sent


# ---------------------------------------------------------------- continuations


def hidden(*items: Any, text: str = "no") -> Round:
    call = ToolCall(CallId("c1"), "delete", "{}")
    return Round(json.dumps(list(items)), (RoundResult(call, text, blocked=True, failed=True),))


def test_a_continuation_is_the_clients_request_with_more_behind_its_input() -> None:
    """Each round's items as they came, and the results behind them."""
    question = asked(b'{ "a":1.10, "input":"x", "previous_response_id":"r" }')
    found = continuation(question, [hidden(REASONING, CALL), hidden(CALL, text="again")], closing=False)
    assert found.startswith(b'{ "a":1.10,')
    value = json.loads(found)
    assert value["input"] == [
        {"role": "user", "content": "x"},
        REASONING,
        CALL,
        RESULT,
        CALL,
        {**RESULT, "output": "again"},
    ]
    assert value["previous_response_id"] == "r"


def test_a_conversation_is_given_the_last_results_alone() -> None:
    """It has what came before."""
    question = asked(body(conversation="conv_1"))
    value = json.loads(continuation(question, [hidden(CALL), hidden(CALL, text="again")], closing=False))
    assert value["input"] == [{**RESULT, "output": "again"}]


@pytest.mark.parametrize(
    ("more", "closing", "expected"),
    [
        ({"tools": [function("a")]}, False, None),
        ({"tools": [function("a")]}, True, "none"),
        ({}, True, None),
        ({"tools": [function("a")], "tool_choice": "required"}, False, "auto"),
        ({"tools": [function("a")], "tool_choice": "required"}, True, "none"),
        ({"tools": [function("a")], "tool_choice": function("a")}, False, "auto"),
    ],
)
def test_the_choice_of_a_continuation(more: dict[str, Any], closing: bool, expected: Any) -> None:
    """A forced call is not forced again, and the last one allows none, where there are tools."""
    value = json.loads(continuation(asked(body(**more)), [hidden(CALL)], closing=closing))
    assert value.get("tool_choice") == expected


# ---------------------------------------------------------------- what is kept of an answer


def judged(item: dict[str, Any], decision: Decision = Decision.BLOCKED) -> Judged:
    call = ToolCall(CallId(item["call_id"]), item["name"], item["arguments"])
    return Judged(call, json.dumps(item), Owner.CLIENT, Verdict(decision, result="no"))


LAYOUT: list[bytes | int] = [json.dumps(REASONING).encode(), 0, json.dumps(MESSAGE).encode()]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (True, [REASONING, CALL, MESSAGE]),
        (False, [{k: v for k, v in CALL.items() if k != "id"}, MESSAGE]),
    ],
)
def test_the_items_of_a_hidden_round(stored: bool, expected: list[Any]) -> None:
    """As they came; of what nobody stored, without what cannot be sent back."""
    assert json.loads(round_message(LAYOUT, [judged(CALL)], stored=stored)) == expected


def test_the_items_of_a_batch_have_numbers_for_its_calls() -> None:
    """They are kept one by one."""
    assert json.loads(batch_message(LAYOUT, stored=True)) == [REASONING, 0, MESSAGE]
    assert json.loads(batch_message(LAYOUT, stored=False)) == [0, MESSAGE]


def test_of_hidden_rounds_the_client_is_shown_all_but_the_calls() -> None:
    """Those that were answered in it, approvals too; a record of what ran upstream is shown."""
    asking = {"id": "mcpr_1", "type": "mcp_approval_request", "name": "x"}
    ran = {"id": "mcp_1", "type": "mcp_call", "name": "x"}
    one = hidden(REASONING, CALL, ran)
    two = Round(
        json.dumps([asking, MESSAGE]),
        (RoundResult(ToolCall(CallId("mcpr_1"), "x", "", Kind.APPROVAL), "", blocked=False, failed=False),),
    )
    shown = shown_before(ChoiceTurn(rounds=[one, two]))
    assert [json.loads(item) for item in shown] == [REASONING, ran, MESSAGE]


@pytest.mark.parametrize(
    ("decisions", "before", "expected"),
    [
        ([], 3, 3),
        ([Decision.BLOCKED], 3, 4),
        ([Decision.BLOCKED, Decision.ALLOWED], 3, 0),
        ([Decision.ALLOWED, Decision.BLOCKED, Decision.PENDING], 3, 2),
        ([Decision.ANSWERED], 3, 0),
    ],
)
def test_denials_when_a_turn_ended(decisions: list[Decision], before: int, expected: int) -> None:
    """In a row, from before the turn; a call that went ahead starts the count again."""
    batch = [judged(CALL, decision) for decision in decisions]
    conclusion = Conclusion(End.PASS, (0,) * len(batch))
    assert denied_after(ChoiceTurn(before), batch, conclusion) == expected
