"""Answers of which nobody can say which call, or which approval, their parts are of: they are broken off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.errors import UpstreamError
from tests.core.exchange.response_streams import (
    Item,
    added,
    approval,
    call,
    done,
    events_of,
    message,
    numbered,
    reasoning,
    sse,
    stream,
)
from tests.core.exchange.streams import WORLD
from tests.core.policy.engine import policies, rule
from tests.responsetranscript import Layouts
from tests.responsetranscript import relay as relay_response
from tests.transcript import World, lines, ways_to_cut

PATH = '{"path":"/srv/doomed"}'
NEXT = stream(message("goes on", "msg_next"))
FREE = World(policies())
DELETE, SHOW = call("delete_file", PATH), call("show", PATH)
RECORD = {"id": "mcp_1", "type": "mcp_call", "name": "find", "arguments": "{}", "server_label": "docs", "output": "x"}


def relay(world: World, data: bytes) -> Layouts:
    """However it is cut."""
    got = relay_response(world, data, NEXT)
    for pieces in ways_to_cut(data):
        assert lines(relay_response(world, pieces, NEXT).out) == lines(got.out)
    return got


def refused(data: bytes) -> Layouts:
    """Broken off where a rule could hold a call, and untouched where none could."""
    got = relay(WORLD, data)
    assert isinstance(got.error, UpstreamError)
    assert not [trace for trace in (b"delete_file", b"doomed") if trace in got.out]
    assert lines(relay(FREE, data).out) == lines(data)
    return got


# ---------------------------------------------------------------- pieces of no call


def told(item: dict[str, Any], *pieces: dict[str, Any]) -> bytes:
    """An item, and events under its name."""
    about = {"item_id": item.get("id", "x"), "output_index": 0}
    between = [{**about, **piece} for piece in pieces]
    return stream(Item([added(item), *between, done(item)], item))


@pytest.mark.parametrize("item", [message("a").listed, reasoning().listed, RECORD], ids=lambda item: item["type"])
@pytest.mark.parametrize("event", ["function_call_arguments", "custom_tool_call_input", "new_call_text"])
def test_pieces_of_a_call_in_an_item_that_is_none(item: dict[str, Any], event: str) -> None:
    """No client should take them for the item's, and one that does gets nothing of them."""
    refused(told(item, {"type": f"response.{event}.delta", "delta": PATH}))
    refused(told(item, {"type": f"response.{event}.done", "arguments": PATH, "input": PATH}))


@pytest.mark.parametrize("event", ["custom_tool_call_input", "new_call_text"])
def test_pieces_of_another_kind_of_call(event: str) -> None:
    """A function's call has none of them."""
    got = relay(WORLD, told(SHOW.listed, {"type": f"response.{event}.delta", "delta": PATH}))
    assert isinstance(got.error, UpstreamError)


@pytest.mark.parametrize(
    "event",
    [
        {"type": None, "delta": PATH},
        {"delta": PATH},
        {"type": ["response.function_call_arguments.delta"], "delta": PATH, "item_id": "fc_1", "output_index": 0},
        {"type": "response.new.done", "arguments": PATH, "item_id": "fc_1"},
        {"type": "new", "input": PATH},
        {"type": "", "arguments": {"path": "/srv/doomed"}},
    ],
    ids=json.dumps,
)
def test_arguments_in_an_event_that_nobody_knows(event: dict[str, Any]) -> None:
    """They belong to no call that was judged."""
    end = events_of(message("Hm."))[-1:]
    begun = numbered(events_of(message("Hm."), ends=False))
    data = b"data: " + json.dumps(event | {"sequence_number": len(begun)}, separators=(",", ":")).encode() + b"\n\n"
    got = refused(sse(begun) + data + sse(numbered(end, len(begun) + 1)))
    assert got.out == sse(begun)


def test_what_the_upstream_runs_says_what_it_says() -> None:
    """Arguments of a hosted server's call are no piece of a client's; nor is text of a kind that is new."""
    spoken = {"type": "response.mcp_call_arguments.done", "arguments": "{}"}
    data = told(RECORD, {"type": "response.mcp_call_arguments.delta", "delta": "{}"}, spoken)
    assert lines(relay(WORLD, data).out) == lines(data)
    data = told(reasoning().listed, {"type": "response.new_thought.delta", "delta": "x"})
    assert lines(relay(WORLD, data).out) == lines(data)


# ---------------------------------------------------------------- a call said again


@pytest.mark.parametrize("kind", [None, "Function_Call", "tool_use", ["function_call"]], ids=repr)
@pytest.mark.parametrize("less", [(), ("arguments",), ("arguments", "name"), ("id",), ("id", "arguments")], ids=repr)
def test_the_list_names_a_held_call_again(kind: Any, less: tuple[str, ...]) -> None:
    """Whatever it leaves out, and whatever it calls it: nothing of that is sent."""
    again = {k: v for k, v in DELETE.listed.items() if k not in less} | {"type": kind}
    for output in ([DELETE.listed, again], [again], [again, DELETE.listed]):
        got = relay(WORLD, sse(numbered(events_of(message("Hm."), DELETE, output=[message("Hm.").listed, *output]))))
        held = (b"delete_file", b"doomed", DELETE.listed["call_id"].encode())
        assert not [trace for trace in held if trace in got.out]


def test_an_item_names_a_held_call_again() -> None:
    """In an event of its own."""
    again = {"id": "x_1", "type": "new", "call_id": DELETE.listed["call_id"]}
    got = relay(WORLD, stream(DELETE, Item([done(again)], again)))
    assert isinstance(got.error, UpstreamError)
    assert DELETE.listed["call_id"].encode() not in got.out


def test_the_result_of_a_call_that_the_upstream_has_run_is_none() -> None:
    """It has the call's id, and passes."""
    result = {"id": "fco_1", "type": "function_call_output", "call_id": SHOW.listed["call_id"], "output": "x"}
    data = stream(message("Hm."), SHOW, Item([added(result), done(result)], result))
    assert relay(WORLD, data).error is None


@pytest.mark.parametrize(
    ("once", "twice_"),
    [
        (b'"name":"delete_file"', b'"name":"delete_file","name":"show"'),
        (b'"type":"function_call"', b'"type":"function_call","type":"message"'),
        (b'"name":"delete_file"', b'"name":"delete_file","n\\u0061me":"show"'),
    ],
)
def test_what_a_call_says_twice(once: bytes, twice_: bytes) -> None:
    """In two ways: one client would take the first, another the last. The same said twice is nothing."""
    got = relay(WORLD, stream(message("Hm."), DELETE).replace(once, twice_))
    assert isinstance(got.error, UpstreamError)
    assert b"delete_file" not in got.out
    data = stream(SHOW).replace(b'"name":"show"', b'"name":"show","name":"show"')
    assert relay(WORLD, data).error is None
    assert relay(FREE, stream(DELETE).replace(once, twice_)).error is None


# ---------------------------------------------------------------- approvals


ASKS = approval("find"), approval("drop", PATH)
FINDS = World(policies([rule("drop", block={"message": "no"})]))


def twice(*, added_again: bool = True, listed: int = 2) -> bytes:
    second = ASKS[1] if added_again else Item(ASKS[1].events[1:], ASKS[1].listed)
    output = [item.listed for item in (message("Hm."), *ASKS)]
    return stream(message("Hm."), ASKS[0], second, output=output[: 1 + listed])


@pytest.mark.parametrize("listed", [0, 1, 2])
def test_two_approvals_under_one_id_are_refused(listed: int) -> None:
    """Nobody could say which of them an answer is for."""
    got = relay(FINDS, twice(listed=listed))
    assert isinstance(got.error, UpstreamError)
    assert b"doomed" not in got.out
    assert not got.ended
    assert relay(FREE, twice(listed=listed)).error is None


def test_an_approval_that_only_the_list_has_twice() -> None:
    """Also where it had events under another id."""
    ids = [approval("find", item_id="mcpr_other_1234567890"), ASKS[1]]
    for items in ((ASKS[0],), (ASKS[0], ids[0]), ()):
        got = relay(FINDS, stream(*items, output=[item.listed for item in ASKS]))
        assert isinstance(got.error, UpstreamError)
        assert not got.ended


def test_an_approval_that_is_shown_twice_is_one() -> None:
    """One decision, under one id; as long as it asks for the same."""
    shown = Item([*ASKS[0].events, ASKS[0].events[-1]], ASKS[0].listed)
    got = relay(FINDS, stream(message("Hm."), shown))
    assert [str(judged.call.call_id) for judged in got.told] == [ASKS[0].listed["id"]]
    assert got.error is None
    got = relay(FINDS, twice(added_again=False, listed=1))
    assert isinstance(got.error, UpstreamError)
    assert b"doomed" not in got.out
