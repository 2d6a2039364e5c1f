from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.calls import Api, CallId, Kind, Owner, RequestFacts, ToolCall, run_name


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("search", "search"),
        ("  search\n", "search"),
        ("functions.search", "search"),
        ("functions.functions.search", "search"),
        ("functions:search", "search"),
        ("default_api:search", "search"),
        ("default_api.functions . search", "search"),
        (" functions. search ", "search"),
        ("ls<|channel|>commentary", "ls"),
        ("functions.ls<|x", "ls"),
        ("<|a|>", ""),
        ("functions.", ""),
        ("", ""),
        ("my.functions.search", "my.functions.search"),
        ("functions_search", "functions_search"),
        ("functions", "functions"),
        ("fs/delete_file", "fs/delete_file"),
        ("a\n<|b|>\nc", "a"),
        ("multi_tool_use.parallel", "multi_tool_use.parallel"),
    ],
)
def test_a_name_is_read_as_it_would_be_run(name: str, run: str) -> None:
    """White space, prefixes of servers and leaked control tokens are no part of a tool's name."""
    assert run_name(name) == run


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["functions", ".", ":", "default_api", " ", "<|", "x"])).map("".join)
)
def test_a_name_that_was_read_reads_the_same_again(name: str) -> None:
    """Nothing that is taken off is left, however often it was written."""
    assert run_name(run_name(name)) == run_name(name)
    assert run_name(f" functions.{name}") == run_name(name)


def test_what_is_not_said_of_a_call_or_a_request() -> None:
    """A call is a function's unless it says otherwise; a request is a nameless client's chat."""
    call = ToolCall(CallId(""), "t", "")
    assert (call.kind, call.unwrapped, call.namespace) == (Kind.FUNCTION, False, "")
    facts = RequestFacts()
    assert (facts.api, facts.model, facts.tenant, dict(facts.declared)) == (Api.CHAT, "", "", {})
    assert RequestFacts().headers is not facts.headers


def test_closed_sets_are_their_labels() -> None:
    """What metrics, rules and records write is the word itself."""
    assert [f"{o}" for o in Owner] == ["client", "proxy", "upstream"]
    assert [f"{k}" for k in Kind] == ["function", "custom", "legacy", "action", "approval"]
    assert [f"{a}" for a in Api] == ["chat", "responses"]
