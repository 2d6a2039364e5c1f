"""What servers do to a response's stream: each quirk in words, and what a client gets of it.

Two rules are in force: `delete_file` is blocked, and `limit` of `search` is held at most at 10.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import UpstreamError
from tests.core.exchange.response_streams import (
    Event,
    Item,
    added,
    approval,
    call,
    done,
    events_of,
    message,
    numbered,
    reasoning,
    response,
    shell,
    sse,
    stream,
    without,
)
from tests.core.exchange.streams import RULES, WORLD
from tests.core.policy.engine import policies, rule
from tests.responsereader import read_strictly
from tests.responsetranscript import Layouts, relay
from tests.strictreader import data_of
from tests.transcript import World, lines, single_bytes

OVER, HELD, PATH = '{"q":"kelp","limit":50}', '{"q":"kelp","limit":10}', '{"path":"/srv/doomed"}'
DELETE, SEARCH, SHOW = call("delete_file", PATH), call("search", OVER), call("show", '{"a":1}')
FREE = World(policies())
NEXT = stream(message("goes on", "msg_next"))
FC = SHOW.listed["id"]


def values(out: bytes) -> list[Any]:
    return [json.loads(data) for data in data_of(out) if data.startswith(b"{")]


def governed(data: bytes, world: World = WORLD) -> Layouts:
    """Relayed whole and byte by byte."""
    got = relay(world, data, NEXT)
    assert lines(relay(world, single_bytes(data), NEXT).out) == lines(got.out)
    assert b"doomed" not in got.out
    return got


def changed(item: Item, change: Callable[[Event], None]) -> Item:
    item = copy.deepcopy(item)
    for event in item.events:
        change(event)
    return item


def texts_of(out: bytes, name: str = "search") -> list[str]:
    """What each place of a stream says of the arguments of a call, less pieces."""
    found = []
    for event in values(out):
        for item in [event.get("item"), *((event.get("response") or {}).get("output") or [])]:
            if item and item.get("name") == name:
                found.append(item["arguments"])
        if event["type"].endswith("arguments.done") and event.get("name", name) == name:
            found.append(event["arguments"])
    return found


# ---------------------------------------------------------------- untouched


NEW = {"id": "x", "type": "new"}
RUN_UPSTREAM: list[dict[str, Any]] = [
    {"id": "ws_1", "type": "web_search_call", "status": "completed"},
    {"id": "mcp_1", "type": "mcp_call", "name": "delete_file", "arguments": "{}", "server_label": "docs"},
    {"id": "ts_1", "type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}},
]


def run(item: dict[str, Any]) -> Item:
    """A call that the upstream runs."""
    ran = {"type": f"response.{item['type']}.completed", "item_id": item["id"], "output_index": 0}
    return Item([added(item), ran, done(item)], item)


def nameless(item: Item) -> Item:
    listed = {k: v for k, v in item.listed.items() if k != "id"}
    return Item(changed(item, strip_ids).events, listed)


def strip_ids(event: Event) -> None:
    event.pop("item_id", None)
    if "item" in event:
        event["item"].pop("id", None)


UNTOUCHED: dict[str, bytes] = {
    "comments, and an event without data": b": ping\n\n" + stream(message("a")) + b"event: keepalive\n\n",
    "a last event of chat completions": stream(SHOW, done=True),
    "line ends of every kind": stream(SHOW).replace(b"\n", b"\r\n"),
    "no numbers": sse(events_of(message("a"), SHOW)),
    "no event lines": b"".join(b"data: " + d + b"\n\n" for d in data_of(stream(SHOW))),
    "a status that needs an action": stream(SHOW).replace(b'"completed","error"', b'"requires_action","error"'),
    "an unknown event": sse([*numbered(events_of()), {"type": "keepalive", "sequence_number": 3}]),
    "an item of an unknown kind": stream(Item([added(NEW), done(NEW)], NEW)),
    "data that are no object": stream(SHOW) + b"data: 7\n\n",
    "numbers that begin at one": sse(numbered(events_of(SHOW), 1)),
    "a call without an id of its item": stream(nameless(SHOW)),
    "an output that is null": stream(message("a"), output=None),
    "the upstream's own calls": stream(*map(run, RUN_UPSTREAM)),
}


@pytest.mark.parametrize("data", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_needs_no_change_leaves_byte_for_byte(data: bytes) -> None:
    """Also where rules are in force."""
    assert lines(governed(data).out) == lines(data)


# ---------------------------------------------------------------- where a call shows


def call_ids(event: Event) -> None:
    if "item_id" in event:
        event["call_id"] = f"call_{event.pop('item_id')[3:]}"


def ids_as_item_ids(event: Event) -> None:
    if "item_id" in event:
        event["item_id"] = f"call_{event['item_id'][3:]}"


def other_ids(event: Event) -> None:
    if event["type"].endswith("item.done"):
        event["item"]["id"] += "_b"


def one_place(event: Event) -> None:
    event["output_index"] = 0


SHAPES: dict[str, Callable[[Item], Item]] = {
    "as OpenAI has it": lambda item: item,
    "no pieces": lambda item: without(item, "delta"),
    "no beginning": lambda item: without(item, "added"),
    "no end": lambda item: without(item, "item.done"),
    "no text of its own": lambda item: without(item, "arguments.done"),
    "pieces alone": lambda item: without(item, "added", "arguments.done", "item.done"),
    "its item alone": lambda item: without(item, "added", "delta", "arguments.done"),
    "its text alone": lambda item: without(item, "added", "delta", "item.done"),
    "nothing but in the list": lambda item: Item([], item.listed),
    "without ids of items": lambda item: changed(item, strip_ids),
    "with the call's id in the place of the item's": lambda item: changed(item, call_ids),
    "with the call's id as the item's": lambda item: changed(item, ids_as_item_ids),
    "with another id when it is done": lambda item: changed(item, other_ids),
    "with another id in the list": lambda item: Item(item.events, {**item.listed, "id": "fc_z"}),
    "with arguments as an object": lambda item: changed(item, unwrapped),
}


def unwrapped(event: Event) -> None:
    for place in (event, event.get("item", {})):
        if place.get("arguments"):
            place["arguments"] = json.loads(place["arguments"])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("listed", [True, False])
def test_a_call_is_judged_wherever_it_shows_and_all_places_agree(shape: Callable[[Item], Item], listed: bool) -> None:
    """A held one leaves no trace, a changed one is changed everywhere; where it is not shown, it is not added."""
    data = stream(message("Hm."), *(shape(item) for item in (DELETE, SEARCH)), output="all" if listed else [])
    got = governed(data)
    if not listed and b"kelp" not in data:
        assert not got.ended
        return
    assert [j.call.name for j in got.ended[0].batch] in (["delete_file", "search"], ["", ""])
    if got.ended[0].batch[0].call.name:
        assert b"delete_file" not in got.out
        said = [json.loads(t) if isinstance(t, str) and t else t for t in texts_of(got.out)]
        assert [t for t in said if t] == [json.loads(HELD)] * len([t for t in said if t])
        assert len(said) == len(texts_of(data))
    assert b'kelp\\",\\"limit\\":5' not in got.out


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_items_that_share_a_place_are_told_apart(kind: str) -> None:
    """By their ids; the client gets each at a place of its own."""
    items = [message("Hm."), DELETE, call("search", OVER, custom=kind == "custom"), message("Bye.", "msg_2")]
    events = events_of(*items)
    for event in events:
        if "output_index" in event:
            event["output_index"] = 0
    read = read_strictly(governed(sse(numbered(events))).out)
    assert read.text == ["Hm.", "Bye."]
    assert [text for _, _, text in read.calls] == [HELD if kind == "function" else OVER]


def test_places_that_disagree_are_made_to() -> None:
    """What was decided is what the client gets, whichever place it acts on."""
    other = {"arguments": '{"a":2}', "name": "delete_file", "call_id": "call_other_aaaaaaaaaaaa", "namespace": "x"}

    def lie(event: Event) -> None:
        if event["type"].endswith("item.done"):
            event["item"] |= other

    liar = changed(SHOW, lie)
    liar.listed = liar.listed | other
    read = read_strictly_but_texts(governed(stream(liar)).out)
    assert read == {("show", SHOW.listed["call_id"], None)}  # its name was enough to decide
    by_arguments = World(policies([rule("show", rewrite={"clamp": {"a": {"max": 10}}})]))
    for item in (liar, changed(SHOW, lambda e: e.update(delta=PATH) if "delta" in e else None)):
        got = governed(stream(item), by_arguments)
        call_made = got.ended[0].batch[0].call
        assert read_strictly(got.out).calls == [(call_made.name, call_made.call_id, call_made.text)]
        assert json.loads(got.ended[0].batch[0].raw)["arguments"] == call_made.text


def read_strictly_but_texts(out: bytes) -> set[tuple[Any, ...]]:
    items = [i for e in values(out) for i in [e.get("item"), *((e.get("response") or {}).get("output") or [])] if i]
    return {(i["name"], i["call_id"], i.get("namespace")) for i in items}


def test_what_is_judged_is_the_item_that_is_done() -> None:
    """If that is there; a name that comes late decides as well."""

    def late(event: Event) -> None:
        if event["type"].endswith("added"):
            del event["item"]["name"]

    assert read_strictly_but_texts(governed(stream(changed(SHOW, late))).out)
    assert b"delete" not in governed(stream(changed(DELETE, late))).out
    got = governed(stream(changed(SEARCH, late)))
    assert read_strictly(got.out).calls == [("search", SEARCH.listed["call_id"], HELD)]


@pytest.mark.parametrize("ends", [True, False])
def test_arguments_that_come_with_the_beginning_come_once(ends: bool) -> None:
    """As text of the item, where there are no pieces."""

    def whole_at_once(event: Event) -> None:
        if event["type"].endswith("added"):
            event["item"]["arguments"] = OVER

    at_once = changed(without(SEARCH, "delta", *(() if ends else ("done",))), whole_at_once)
    assert set(texts_of(governed(stream(at_once)).out)) == {HELD}
    twice = governed(stream(changed(SEARCH, whole_at_once)))
    assert read_strictly(twice.out).calls == [("search", SEARCH.listed["call_id"], HELD)]
    read = read_strictly(governed(stream(changed(call("search", '{"a":1}'), whole_at_once))).out)
    assert read.calls == [("search", SEARCH.listed["call_id"], '{"a":1}')]


def test_pieces_behind_the_whole_do_not_go_on() -> None:
    """Where they could change what was judged."""
    late = SEARCH.events[1] | {"delta": PATH}
    item = Item([*SEARCH.events[:-1], late, SEARCH.events[-1], late], SEARCH.listed)
    assert read_strictly(governed(stream(item)).out).calls == [("search", SEARCH.listed["call_id"], HELD)]


# ---------------------------------------------------------------- what changes on the way


def test_a_message_that_turns_into_a_call_is_one_from_then_on() -> None:
    """What it showed as a message is out; nothing of the call follows that."""
    told = message("Hm.", "fc_delete_file_1234567890abcdef")
    item = Item([*told.events[:3], DELETE.events[-1]], DELETE.listed)
    got = governed(stream(item))
    assert [e["type"] for e in values(got.out)][-1] == "response.completed"
    assert b"function_call" not in got.out
    assert [j.call.name for j in got.ended[0].batch] == ["delete_file"]
    free = Item([*told.events[:3], call("show", item_id=told.listed["id"]).events[-1]], SHOW.listed)
    assert b'"name":"show"' in governed(stream(free)).out


@pytest.mark.parametrize(
    "other", [message("x", SHOW.listed["id"]), call("show", custom=True, item_id=SHOW.listed["id"])]
)
@pytest.mark.parametrize("listed", [True, False])
def test_a_call_that_turns_into_something_else_breaks_the_answer_off(other: Item, listed: bool) -> None:
    """Two readers could take it for two things."""
    item = Item(SHOW.events, other.listed) if listed else Item([*SHOW.events[:2], other.events[-1]], SHOW.listed)
    got = relay(WORLD, stream(item))
    assert isinstance(got.error, UpstreamError)
    assert b"item.done" not in got.out


def test_an_item_that_had_to_be_taken_for_a_call_and_is_none_goes_on() -> None:
    """With what waited behind it."""
    item = {"id": "x_1", "type": "probe_call", "status": "completed"}
    search: dict[str, Any] = {
        "id": "ts_1",
        "type": "tool_search_call",
        "call_id": None,
        "arguments": {},
        "status": "completed",
    }
    ended = Item([added(search), done(search | {"execution": "server"})], search | {"execution": "server"})
    data = stream(Item([added(item), done(item)], item), ended, message("Hm."), SHOW)
    assert lines(governed(data).out) == lines(data)


def test_an_item_that_begins_again_is_another() -> None:
    """Also under the same id: then each is judged."""
    again = call("delete_file", PATH, "call_delete_again_12345", item_id=SHOW.listed["id"])
    got = governed(stream(SHOW, again))
    assert [j.call.name for j in got.ended[0].batch] == ["show", "delete_file"]
    assert read_strictly(got.out).calls == [("show", SHOW.listed["call_id"], '{"a":1}')]


def test_a_list_in_another_order_stays_in_it() -> None:
    """Each of its items is what was streamed."""
    got = governed(stream(SHOW, SEARCH, output=[SEARCH.listed, SHOW.listed]))
    final = values(got.out)[-1]["response"]["output"]
    assert [(i["name"], i["arguments"]) for i in final] == [("search", HELD), ("show", '{"a":1}')]


def test_a_list_that_lacks_a_call_changes_nothing() -> None:
    """Clients that act on what was streamed have it, and so has the turn."""
    got = governed(stream(reasoning(), DELETE, SEARCH, output=[reasoning().listed]))
    assert [json.loads(i)["id"] if isinstance(i, bytes) else i for i in got.layouts[0]] == ["rs_1", 0, 1]
    assert values(got.out)[-1]["response"]["output"] == [reasoning().listed]
    assert set(texts_of(got.out)) == {HELD, ""}


def test_a_hidden_round_shows_items_that_only_its_list_has() -> None:
    """They would be nowhere else."""
    got = governed(stream(Item([], message("Hm.").listed), DELETE))
    assert read_strictly(got.out).text == ["Hm.", "goes on"]
    stops = World(policies([rule("delete_file", block={"message": "no", "then": "stop"})]))
    assert read_strictly(governed(stream(Item([], message("Hm.").listed), DELETE), stops).out).text == ["Hm.", "no"]


def test_a_hidden_round_without_a_list_is_told_by_its_events() -> None:
    """Its items stand in the list of the last."""
    got = governed(stream(reasoning(), message("Hm."), DELETE, output=None))
    read = read_strictly(got.out)
    assert [i["type"] for i in read.final["output"]] == ["reasoning", "message", "message"]


# ---------------------------------------------------------------- calls of other kinds


def no_command(word: str) -> World:
    return World(
        policies([rule("shell", when=f"args.commands.exists(c, c.contains('{word}'))", block={"message": "no"})])
    )


@pytest.mark.parametrize("blocked", [True, False])
def test_a_call_of_the_shell_is_judged_by_its_commands(blocked: bool) -> None:
    """Its events name only the place; allowed, it leaves as it came."""
    world = World(
        policies([rule("shell", when="args.commands.exists(c, c.contains('doomed'))", block={"message": "no"})])
    )
    data = stream(message("Hm."), shell(["ls", "rm -rf /srv/doomed" if blocked else "pwd"]))
    got = governed(data, world)
    assert (b"shell" in got.out) is not blocked
    assert blocked or lines(got.out) == lines(data)


def test_commands_that_are_not_those_of_the_action_do_not_go_on() -> None:
    """The action is what was judged."""
    world = World(
        policies([rule("shell", when="args.commands.exists(c, c.contains('evil'))", block={"message": "no"})])
    )
    item = changed(shell(["ls"]), lambda e: e.update(delta=PATH) if "delta" in e else None)
    item.events[0]["item"]["action"] = {"commands": [PATH]}
    got = governed(stream(item), world)
    assert [e["item"]["action"]["commands"] for e in values(got.out) if "item" in e] == [["ls"], ["ls"]]
    assert b"shell_call_command" not in got.out
    by_name = governed(stream(shell(["ls", "pwd"])), World(RULES))
    assert by_name.out == stream(shell(["ls", "pwd"]))


def test_a_rewritten_action_is_so_in_every_place() -> None:
    """Its parts are left out."""
    world = World(policies([rule("shell", rewrite={"merge": {"timeout_ms": 5}})]))
    got = governed(stream(shell(["ls"])), world)
    items = [e["item"] for e in values(got.out) if "item" in e] + values(got.out)[-1]["response"]["output"]
    assert [i["action"].get("timeout_ms") for i in items][1:] == [5, 5]


@pytest.mark.parametrize("blocked", [True, False])
def test_an_approval_is_a_call(blocked: bool) -> None:
    """It has no pieces, and keeps its id."""
    world = World(policies([rule("look", when="args.path.contains('doomed')", block={"message": "no"})]))
    data = stream(approval("look", PATH if blocked else '{"path":"a"}'))
    got = governed(data, world)
    assert (b"mcpr_" in got.out) is not blocked
    assert blocked or lines(got.out) == lines(data)


# ---------------------------------------------------------------- what could hide a call


CHUNK = {"choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"name": "delete_file"}}]}}]}
PART = {"type": "response.content_part.done", "item_id": "msg_1", "output_index": 0, "part": DELETE.listed}
HIDING: dict[str, bytes] = {
    "no JSON": b'data: {"type":"response.output_item.done","item":{"type":"function_call","name":"delete_file"\n\n',
    "text behind the value": b'data: {"type":"response.output_item.done","item":{"type":"shell_call"}} x\n\n',
    "an approval in no JSON": b'data: {"item":{"type":"mcp_approval_request"}\n\n',
    "an event line without data": b'event: response.output_item.done\n{"item":{"type":"function_call"}}\n\n',
    "a call among the parts of a message": sse([PART]),
    "a call in an event of its own kind": sse([{"type": "response.tools.ready", "calls": [DELETE.listed]}]),
    "a call inside an item": sse([done({"type": "bundle", "id": "b", "items": [DELETE.listed]})]),
    "a call beside the end": sse([events_of()[-1] | {"item": DELETE.listed}]),
    "a call beside an error": sse([{"type": "error", "message": "Sorry.", "item": DELETE.listed}]),
    "a call inside an error": sse([{"type": "error", "error": {"call": DELETE.listed}}]),
    "an output that is no list": sse([{"type": "response.completed", "response": {"output": {"0": DELETE.listed}}}]),
    "a list in the output": sse([{"type": "response.completed", "response": {"output": [[DELETE.listed]]}}]),
    "a call inside an item of the output": sse(
        [{"type": "response.completed", "response": {"output": [{"type": "bundle", "x": DELETE.listed}]}}]
    ),
    "items in the place of an item": sse([{"type": "response.output_item.done", "item": [DELETE.listed]}]),
    "a response that is a list": sse([{"type": "response.created", "response": [DELETE.listed]}]),
    "a key in capitals": sse([{"type": "response.output_item.done", "Item": DELETE.listed}]),
    "a chunk of a chat stream": b"data: " + json.dumps(CHUNK).encode() + b"\n\n",
    "a chunk beside an event": sse([{"type": "response.note", **CHUNK}]),
    "chunks in a list": b"data: " + json.dumps([CHUNK]).encode() + b"\n\n",
    "events in a list": b"data: " + json.dumps([DELETE.events[1]]).encode() + b"\n\n",
    "two values": b"data: {}" + json.dumps(DELETE.events[-1]).encode() + b"\n\n",
    "a comma too many": b"data: " + json.dumps(DELETE.events[-1])[:-1].encode() + b",}\n\n",
    "lines behind a comment": b": ping\n" + json.dumps(DELETE.events[-1]).encode() + b"\n\n",
    "a call beside a piece of another": sse([SHOW.events[1] | {"note": DELETE.listed}]),
}


@pytest.mark.parametrize("event", HIDING.values(), ids=HIDING)
def test_an_event_that_could_hide_a_call_breaks_the_answer_off(event: bytes) -> None:
    """It is not passed on unread."""
    got = relay(WORLD, stream(message("Hm."), ends=False) + event)
    assert isinstance(got.error, UpstreamError)
    assert got.out == stream(message("Hm."), ends=False)


def test_an_event_without_a_type_is_what_its_name_says() -> None:
    """Some clients go by that; where the two differ, the data count."""
    end = events_of(DELETE)[-1]
    nameless = sse([{k: v for k, v in end.items() if k != "type"} | {"type": ""}]).replace(b'"type":""', b'"x":0', 1)
    named = nameless.replace(b"event: \n", b"event: response.completed\n")
    got = governed(stream(*[DELETE], ends=False) + named)
    assert [j.call.name for j in got.ended[0].batch] == ["delete_file"]
    lying = stream(DELETE, SHOW).replace(b"event: response.output_item.done", b"event: response.output_text.delta")
    assert b"doomed" not in governed(lying).out


def test_an_item_beside_a_response_is_judged() -> None:
    """An event may have both."""
    both = events_of()[0] | DELETE.events[-1]
    for kind in (both["type"], "response.created", "response.note"):
        got = governed(stream(message("Hm."), ends=False) + sse([both | {"type": kind}]))
        assert b"delete_file" not in got.out
        assert [j.call.name for j in got.ended[0].batch] == ["delete_file"]


def test_an_end_without_a_response_ends_it() -> None:
    """What is known of the response stays."""
    got = governed(stream(message("Hm."), DELETE, ends=False) + sse([{"type": "response.completed"}]))
    assert [j.call.name for j in got.ended[0].batch] == ["delete_file"]
    assert got.lead.last_id == "resp_1"


def test_a_response_that_begins_with_calls_begins_without() -> None:
    """They are judged when they come."""
    events = numbered(events_of(DELETE, SHOW))
    events[0]["response"] = response("in_progress", [DELETE.listed, message("Hm.").listed])
    got = governed(sse(events))
    assert values(got.out)[0]["response"]["output"] == [message("Hm.").listed]
    assert relay(FREE, sse(events)).out == sse(events)


def test_nothing_of_a_call_follows_the_end() -> None:
    """What is none does, under its number."""
    late = numbered(
        [
            *events_of(SHOW),
            *DELETE.events,
            events_of(DELETE)[-1],
            {"type": "response.note"},
            {"type": "odd", "x": DELETE.listed},
        ]
    )
    got = governed(sse(late, done=True))
    kinds = [e["type"] for e in values(got.out)]
    assert kinds[-2:] == ["response.completed", "response.note"]
    assert got.out.endswith(b"data: [DONE]\n\n")


def test_events_of_calls_without_any_address_belong_to_the_newest() -> None:
    """A client that reads them so gets what was judged."""

    def bare(event: Event) -> None:
        for key in ("item_id", "output_index"):
            event.pop(key, None)

    got = governed(stream(changed(SEARCH, bare)))
    assert set(texts_of(got.out)) == {HELD, ""}
    assert [e["delta"] for e in values(got.out) if "delta" in e] == [HELD]


def test_a_hosted_tool_of_the_same_kind_is_no_call() -> None:
    """Its items and their events pass."""
    data = stream(shell(["ls"]), message("Hm."))
    world = World(policies([rule("shell", block={"message": "no"})]))
    assert relay(world, data, hosted=["shell"]).out == data
    layout = relay(world, data, hosted=["shell"]).layouts[0]
    assert [json.loads(part)["id"] for part in layout if isinstance(part, bytes)] == ["sh_1", "msg_1"]


# ---------------------------------------------------------------- anything at all


@st.composite
def mangled(draw: st.DrawFn) -> list[Event]:
    """A stream of which events are lost, said twice, or out of order, and names left out."""
    names = draw(st.lists(st.sampled_from(["delete_file", "search", "show"]), min_size=1, max_size=4))
    items = [
        call(name, PATH if name == "delete_file" else OVER, f"call_{n}_aaaaaaaaaaaaaaaa", custom=draw(st.booleans()))
        for n, name in enumerate(names)
    ]
    items.insert(draw(st.integers(0, len(items))), message("Hm."))
    events = copy.deepcopy(events_of(*items, output=draw(st.sampled_from(["all", [], None]))))
    for _ in range(draw(st.integers(0, 12))):
        at = draw(st.integers(0, len(events) - 1))
        match draw(st.sampled_from(["lose", "twice", "move", "unname", "unplace", "untie"])):
            case "lose" if len(events) > 1:
                del events[at]
            case "twice":
                events.insert(draw(st.integers(0, len(events))), copy.deepcopy(events[at]))
            case "move":
                events.insert(draw(st.integers(0, len(events) - 1)), events.pop(at))
            case "unname" if "output_index" in events[at]:
                events[at].pop("item_id", None)
            case "unplace" if "item_id" in events[at]:
                events[at].pop("output_index", None)
            case "untie" if "item" in events[at]:
                events[at]["item"].pop("id", None)
    return numbered(events)


def test_pieces_of_a_call_behind_a_part_of_something_else_that_was_never_begun() -> None:
    """Nothing says that they belong to it, and it went out: they are refused."""
    part = {"type": "response.content_part.added", "item_id": "msg_1", "output_index": 3, "part": {"text": ""}}
    piece = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "/srv/doomed"}
    got = relay(WORLD, sse(numbered([part, piece])), NEXT, NEXT)
    assert isinstance(got.error, UpstreamError)
    assert b"doomed" not in got.out


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(mangled())
def test_whatever_becomes_of_a_stream_nothing_of_a_held_call_is_sent(events: list[Event]) -> None:
    """And what is sent has no gaps in its numbers."""
    data = sse(events)
    got = relay(WORLD, data, NEXT, NEXT)
    pieces = [data[at : at + 61] for at in range(0, len(data), 61)]
    assert lines(relay(WORLD, pieces, NEXT, NEXT).out) == lines(got.out)
    assert got.error is None or isinstance(got.error, UpstreamError)
    if all(judged.call.name for ended in got.ended for judged in ended.batch):  # else nobody can say whose it is
        assert b"doomed" not in got.out
    assert b"delete_file" not in got.out
    numbers = [event["sequence_number"] for event in values(got.out)]
    assert numbers == list(range(min(numbers, default=0), max(numbers, default=-1) + 1))
