"""Items of a response that no client of the API knows, and that some client could take for a call: they are judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.policy.verdicts import DefaultAction
from tests.core.exchange.response_streams import Item, added, call, done, events_of, message, numbered, sse, stream
from tests.core.exchange.streams import WORLD
from tests.core.policy.engine import policies, rule
from tests.responsereader import read_strictly
from tests.responsetranscript import Layouts
from tests.responsetranscript import relay as relay_response
from tests.strictreader import data_of
from tests.transcript import World, lines, ways_to_cut

PATH, CALL_ID = '{"path":"/srv/doomed"}', "call_odd_1234567890abcdef"
NEXT = stream(message("goes on", "msg_next"))
TYPES: list[Any] = [None, "Function_Call", "tool_use", ["function_call"], "new_call"]


def odd(kind: Any, name: Any = "delete_file", args: Any = PATH, **more: Any) -> Item:
    """A call of a type that nobody knows, as OpenAI streams a function's."""
    item = call("x", PATH, CALL_ID)
    fresh = {**item.listed, "type": kind, "name": name, "arguments": args, **more}
    return Item([added({**fresh, "arguments": ""}), *item.events[1:-1], done(fresh)], fresh)


def plain(item: Item) -> Item:
    """The same without events of a function's call."""
    return Item([item.events[0], item.events[-1]], item.listed)


def relay(world: World, data: bytes) -> Layouts:
    """However it is cut."""
    got = relay_response(world, data, NEXT)
    for pieces in ways_to_cut(data):
        assert lines(relay_response(world, pieces, NEXT).out) == lines(got.out)
    return got


def items_of(out: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [json.loads(d) for d in data_of(out) if d.startswith(b"{")][-1]["response"]["output"]
    return found


@pytest.mark.parametrize("kind", TYPES, ids=repr)
@pytest.mark.parametrize("name", ["delete_file", ["delete_file"]], ids=repr)
def test_a_call_of_no_known_type_is_judged_by_its_name(kind: Any, name: Any) -> None:
    """Nothing of it is sent when that is held: no event of it, no entry of the list."""
    got = relay(WORLD, stream(message("Hm."), plain(odd(kind, name))))
    assert [item["id"] for item in items_of(got.out)] == ["msg_1", "msg_next"]
    assert not [trace for trace in (b"delete_file", b"doomed", CALL_ID.encode()) if trace in got.out]
    assert [judged.call.name for judged in got.told] == ["" if isinstance(name, list) else "delete_file"]


@pytest.mark.parametrize("kind", TYPES[:-1], ids=repr)
def test_pieces_are_those_of_the_call(kind: Any) -> None:
    """They are judged with it, and go no further."""
    got = relay(WORLD, stream(message("Hm."), odd(kind)))
    assert b"doomed" not in got.out
    assert CALL_ID.encode() not in got.out


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_what_may_go_goes_as_it_came(kind: Any) -> None:
    """To the byte, in its place."""
    data = stream(message("Hm."), plain(odd(kind, "show")))
    assert lines(relay(WORLD, data).out) == lines(data)


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_arguments_are_changed_wherever_they_stand(kind: Any) -> None:
    """In an item, and in the list."""
    for args in ('{"limit":50}', {"limit": 50}):
        got = relay(WORLD, stream(message("Hm."), plain(odd(kind, "search", args))))
        (item,) = (i for i in items_of(got.out) if i["id"] != "msg_1")
        assert item["arguments"] == (json.loads('{"limit":10}') if isinstance(args, dict) else '{"limit":10}')
        assert b"50" not in got.out


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_what_no_rule_names_is_blocked_where_that_is_what_holds(kind: Any) -> None:
    """By default too."""
    world = World(policies([rule("search", allow={})], default=DefaultAction.BLOCK))
    got = relay(world, stream(message("Hm."), plain(odd(kind, "show"))))
    assert [item["id"] for item in items_of(got.out)] == ["msg_1", "msg_next"]


def test_a_name_that_is_not_the_one_that_was_judged_is_not_shown() -> None:
    """Of a type that nobody knows, where the name alone was looked at."""
    made = plain(odd("new_call", "show"))
    late = Item([made.events[0], done({**made.listed, "name": "delete_file"})], {**made.listed, "name": "delete_file"})
    got = relay(WORLD, stream(late))
    assert b"delete_file" not in got.out
    assert [item["name"] for item in items_of(got.out)] == ["show"]
    nameless = {k: v for k, v in made.listed.items() if k != "name"}
    got = relay(WORLD, stream(Item([added(nameless), late.events[1]], late.listed)))
    assert b"delete_file" not in got.out


def test_an_item_that_turns_out_to_be_none_comes_whole() -> None:
    """What has a name as it begins waits until it is whole: a record has its output by then."""
    begun = {"id": "new_1", "type": "new_search", "name": "delete_file"}
    for whole in (begun, {**begun, "arguments": "{}", "output": "found"}):
        data = stream(Item([added(begun), done(whole)], whole), message("Hm."))
        assert lines(relay(WORLD, data).out) == lines(data)


def test_an_odd_call_that_only_the_list_has() -> None:
    """It is judged at the end."""
    got = relay(WORLD, sse(numbered(events_of(message("Hm."), output=[message("Hm.").listed, odd(None).listed]))))
    assert b"delete_file" not in got.out
    read_strictly(got.out)


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_an_odd_item_that_only_the_list_has_is_shown_when_the_turn_goes_on(kind: Any) -> None:
    """As an item of its own, whatever its type is."""
    note = {"id": "note_1", "type": kind, "note": "x"}
    listed = [message("Hm.").listed, note, odd("new_call").listed]
    got = relay(WORLD, sse(numbered(events_of(message("Hm."), output=listed))))
    assert [item["id"] for item in items_of(got.out)][:2] == ["msg_1", "note_1"]
