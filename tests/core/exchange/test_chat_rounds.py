"""What the upstream is asked: first, and again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.batch.record import Round, RoundResult
from proxy.core.calls import CallId, Kind, RequestFacts, ToolCall
from proxy.core.exchange.chat_rounds import Question, continuation, first_question
from proxy.core.exchange.judging import Judge
from proxy.core.protocol.chat import declaration, read_request
from proxy.errors import RequestError
from tests.core.policy.engine import policies, rule

HIDES = policies([rule("secret*", hide={})])
OWN = [("lookup", declaration("lookup", "", {"type": "object"}), False)]
BESIDE = [("lookup", OWN[0][1], True)]
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi", "n": 1}]}
ROUND = Round(
    '{"role":"assistant","content":null}',
    (RoundResult(ToolCall(CallId("a"), "t", "{}"), "no", blocked=True, failed=True),),
)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def ask(value: dict[str, Any], declarations: Any = (), messages: Any = None) -> Question:
    request = read_request(json.dumps(value).encode(), 128)
    facts = RequestFacts(declared=request.declared)
    return first_question(
        request, Judge(HIDES.for_request(facts), facts, {"lookup"}), declarations=declarations, messages=messages
    )


def names(question: Question) -> list[str]:
    return [t["function"]["name"] for t in question.value().get("tools", [])]


def test_a_request_in_which_nothing_has_to_change_goes_on_as_it_came() -> None:
    """Byte for byte."""
    value = {**ASKED, "tools": [tool("show")], "tool_choice": "auto"}
    assert ask(value) == Question(json.dumps(value).encode(), changed=False)


@pytest.mark.parametrize(
    ("tools", "declarations", "found"),
    [
        (["show", "secret"], [], ["show"]),
        (["secret"], [], []),
        (["show"], OWN, ["show", "lookup"]),
        ([], OWN, ["lookup"]),
        ([], BESIDE, []),
        (["show"], BESIDE, ["show", "lookup"]),
        (["secret"], OWN, ["lookup"]),
        (["lookup"], OWN, ["lookup"]),
    ],
)
def test_which_tools_the_model_is_told_of(tools: list[str], declarations: Any, found: list[str]) -> None:
    """Hidden ones go, proxy tools come; a tool of the client's wins over one of the same name."""
    value = {**ASKED, **({"tools": [tool(name) for name in tools]} if tools else {})}
    assert names(ask(value, declarations)) == found


def test_what_belongs_to_hidden_tools_goes_with_the_last_and_stays_with_others() -> None:
    """A choice among no tools is none."""
    value = {**ASKED, "tools": [tool("secret")], "tool_choice": "required", "parallel_tool_calls": False}
    assert ask(value).value() == ASKED
    with_own = ask(value, OWN).value()
    assert (with_own["tool_choice"], with_own["parallel_tool_calls"]) == ("required", False)


def test_a_request_that_insists_on_a_hidden_tool_is_refused() -> None:
    """The client can do something about it."""
    with pytest.raises(RequestError):
        ask({**ASKED, "tools": [tool("secret")], "tool_choice": tool("secret")})


def test_the_history_is_put_in_the_place_of_the_clients() -> None:
    """Other parts stay."""
    question = ask(ASKED, messages=[b'{"role":"user"}', b'{"role":"assistant", "content":1.10}'])
    assert question.body == b'{"model": "m", "messages": [{"role":"user"},{"role":"assistant", "content":1.10}]}'
    assert question.changed
    assert question.messages() == [b'{"role":"user"}', b'{"role":"assistant", "content":1.10}']


def test_a_body_that_is_no_json_is_the_upstreams_to_judge() -> None:
    """Nothing of it is changed."""
    request = read_request(b"{", 128)
    facts = RequestFacts()
    question = first_question(request, Judge(HIDES.for_request(facts), facts, ()), declarations=OWN, messages=None)
    assert question == Question(b"{", changed=False)


@pytest.mark.parametrize(
    ("more", "closing", "then"),
    [
        ({}, False, {}),
        ({"tool_choice": "required"}, False, {"tool_choice": "auto"}),
        ({"tool_choice": "none"}, False, {"tool_choice": "none"}),
        ({"tool_choice": tool("show")}, False, {"tool_choice": "auto"}),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}},
            False,
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
        ),
        ({"n": 3, "seed": 1}, False, {"n": 1, "seed": 1}),
        ({"tools": [tool("show")], "tool_choice": "required"}, True, {"tools": [tool("show")], "tool_choice": "none"}),
        (
            {"functions": [{"name": "f"}], "function_call": {"name": "f"}},
            False,
            {"functions": [{"name": "f"}], "function_call": "auto"},
        ),
        ({"functions": [{"name": "f"}]}, True, {"functions": [{"name": "f"}], "function_call": "none"}),
        ({}, True, {}),
    ],
)
def test_a_continuation_is_the_clients_request_with_its_rounds(
    more: dict[str, Any], closing: bool, then: dict[str, Any]
) -> None:
    """A choice that forces a call does so once; the last call allows none."""
    value = json.loads(continuation(ask({**ASKED, **more}), [ROUND, ROUND], closing=closing))
    hidden = [{"role": "assistant", "content": None}, {"role": "tool", "tool_call_id": "a", "content": "no"}]
    assert value == {**ASKED, **then, "messages": [*ASKED["messages"], *hidden, *hidden]}


def test_the_result_of_a_legacy_call_is_named_by_its_function() -> None:
    """It has no id."""
    legacy = Round("{}", (RoundResult(ToolCall(CallId(""), "f", "{}", Kind.LEGACY), "no", blocked=True, failed=True),))
    value = json.loads(continuation(ask(ASKED), [legacy], closing=False))
    assert value["messages"][-1] == {"role": "function", "name": "f", "content": "no"}
