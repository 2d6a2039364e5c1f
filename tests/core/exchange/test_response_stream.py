"""A response's stream through the filter: whatever the upstream does, and wherever its bytes are cut."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.batch.record import ResponseRecord
from proxy.core.exchange.judging import End, Judge
from proxy.core.exchange.recalling import RecalledJudge, recalled_conclusion, recalled_ids
from proxy.core.exchange.response_outgoing import ResponseLead
from proxy.core.exchange.response_stream import ResponseStream
from proxy.core.exchange.steps import Ended, LookUp, Send, Step, StreamLimits
from proxy.core.exchange.turns import LIMIT_REACHED, ChoiceTurn, call_records, ids_to_give
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.sse import EventSplitter
from tests.core.exchange.response_streams import (
    USAGE,
    Event,
    Item,
    approval,
    call,
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
from tests.core.exchange.streams import CAP, NO_DELETES, RULES, WORLD
from tests.core.exchange.test_chat_stream import ACTIONS, rules_for
from tests.core.policy.engine import policies, rule
from tests.responsereader import read_strictly
from tests.responsetranscript import Layouts, relay
from tests.strictreader import data_of
from tests.transcript import BOUNDS, LIMITS, World, lines, single_bytes, ways_to_cut

OVER, HELD, PATH = '{"q":"kelp","limit":50}', '{"q":"kelp","limit":10}', '{"path":"/srv/doomed"}'
NEXT = stream(message("goes on", "msg_next"))
FREE = World(policies())


def values(out: bytes) -> list[Any]:
    return [json.loads(data) for data in data_of(out) if data.startswith(b"{")]


def both_ways(world: World, data: bytes, *more: bytes, **parts: Any) -> Layouts:
    """Relayed whole; byte by byte and cut anywhere it is the same."""
    got = relay(world, data, *more, **copy.deepcopy(parts))
    for pieces in ways_to_cut(data):
        assert lines(relay(world, pieces, *more, **copy.deepcopy(parts)).out) == lines(got.out)
    return got


# ---------------------------------------------------------------- any batch, any verdicts


@dataclass(frozen=True, slots=True)
class Made:
    """What an upstream made: the calls as (tool, mark, id), events, and how well they are formed."""

    batch: list[tuple[str, str, str]]
    events: list[Event]
    formed: bool
    most: int | None

    def __repr__(self) -> str:
        return "\n".join([f"most {self.most}", *(json.dumps(event)[:300] for event in self.events)])

    @property
    def world(self) -> World:
        return rules_for({name for name, _, _ in self.batch}, self.most)


MANNERS = ["openai", "openai", "openai", "pieces", "one_piece", "no_pieces", "custom"]
ODD = ["no_added", "no_done", "no_text", "no_events", "done_alone", "no_item_id", "call_id_for_item_id", "other_id"]


@st.composite
def calls(draw: st.DrawFn, ordinal: int, manners: list[str]) -> tuple[tuple[str, str, str], Item]:
    name = draw(st.sampled_from(sorted(ACTIONS)))
    mark = f"mark{ordinal}x"
    args = json.dumps({"q": mark, "limit": draw(st.sampled_from([3, 10, 11, 50]))})
    strong = "call_" + chr(97 + ordinal) * 20
    call_id = draw(st.sampled_from([strong, strong, strong, f"{name}:{ordinal}"]))
    manner = draw(st.sampled_from(manners))
    cuts = sorted(draw(st.lists(st.integers(1, len(args) - 1), max_size=3, unique=True)))
    item = call(
        name,
        args,
        call_id,
        item_id=f"fc_{ordinal}",
        cuts=cuts if manner == "pieces" else [] if manner == "one_piece" else None,
        custom=manner == "custom",
    )
    return (name, mark, call_id), odd(item, manner)


def odd(item: Item, manner: str) -> Item:
    """An item in the manner of some server."""
    item = copy.deepcopy(item)
    drops = {
        "no_pieces": ("delta",),
        "no_added": ("added",),
        "no_done": ("output_item.done",),
        "no_text": ("arguments.done",),
        "done_alone": ("added", "delta", "arguments.done"),
    }
    item = without(item, *drops.get(manner, ()))
    for event in item.events:
        if manner == "no_item_id":
            event.pop("item_id", None)
        if manner == "call_id_for_item_id" and "item_id" in event:
            event["item_id"] = item.listed["call_id"]
        if manner == "other_id" and event["type"].endswith("item.done"):
            event["item"]["id"] += "_other"
    if manner == "other_id":
        item.listed["id"] += "_last"
    return Item([], item.listed) if manner == "no_events" else item


@st.composite
def made(draw: st.DrawFn) -> Made:
    formed = draw(st.booleans())
    manners = MANNERS if formed else MANNERS + ODD
    batch: list[tuple[str, str, str]] = []
    items: list[Item] = []
    for ordinal in range(draw(st.integers(0, 4))):
        if draw(st.integers(0, 2)) == 0:
            kind = draw(st.sampled_from([message(f"said {ordinal}", f"msg_{ordinal}"), reasoning(f"rs_{ordinal}")]))
            items.append(kind)
        one, item = draw(calls(ordinal, manners))
        batch.append(one)
        items.append(item)
    if draw(st.booleans()):
        items.append(message("at last", "msg_last"))
    status = draw(st.sampled_from(["completed"] * 4 + ["incomplete", "failed"]))
    output: Any = "all" if formed else draw(st.sampled_from(["all", "all", [], None]))
    if output != "all":  # what stands nowhere is no call
        shown = [item for item in items if "call_id" in item.listed]
        batch = [one for one, item in zip(batch, shown, strict=True) if item.events]
        items = [item for item in items if item.events]
    events = numbered(events_of(*items, status=status, output=output))
    if draw(st.booleans()) and formed:
        events = interleaved(events, draw)
    return Made(batch, events, formed, draw(st.sampled_from([None, None, None, 1])))


def interleaved(events: list[Event], draw: st.DrawFn) -> list[Event]:
    """Items at the same time: their events one among the other, each item's own in order, as they begin."""
    middle = [e for e in events if "output_index" in e]
    queues = [
        [e for e in middle if e["output_index"] == n]
        for n in range(1 + max((e["output_index"] for e in middle), default=-1))
    ]
    out: list[Event] = []
    begun = 0
    while any(queues):
        ready = [q for q in queues[: begun + 1] if q] or [queues[begun]]
        queue = draw(st.sampled_from(ready))
        begun += begun < len(queues) - 1 and queue is queues[begun]
        out.append(queue.pop(0))
    fresh = [e for e in events if "output_index" not in e]
    return numbered([{k: v for k, v in e.items() if k != "sequence_number"} for e in (*fresh[:2], *out, fresh[2])])


@settings(max_examples=200, deadline=None, report_multiple_bugs=False)
@given(made())
def test_nothing_of_a_held_call_is_sent_and_surfaced_calls_come_whole_and_in_order(one: Made) -> None:
    """Whatever the batch and the verdicts: held calls leave no trace, the others arrive, and all places agree."""
    data = sse(one.events)
    got = relay(one.world, data, NEXT)
    check(one, got)
    pieces = [data[at : at + 61] for at in range(0, len(data), 61)]
    assert lines(relay(one.world, pieces, NEXT).out) == lines(got.out)


def check(one: Made, got: Layouts) -> None:
    if not one.batch:
        assert got.out == sse(one.events)
        return
    ended = got.ended[0]
    assert sorted(j.call.name for j in ended.batch) == sorted(name for name, _, _ in one.batch)
    by_mark = {mark: call for call in one.batch for mark in [call[1]]}
    order = [next(m for m in by_mark if m in judged.call.text) for judged in ended.batch]
    stages = dict(zip(order, ended.conclusion.stages, strict=True))
    for mark, (name, _, call_id) in by_mark.items():
        if stages[mark] == 0:
            continue
        seen = {by_mark[m][0] for m in by_mark if stages[m] == 0}
        assert not [trace for trace in (mark, call_id, *({name} - seen)) if trace.encode() in got.out]
    if ended.conclusion.end is End.FAIL:
        assert got.error is not None
        return
    assert got.error is None
    surfaced = [mark for mark in order if stages[mark] == 0]
    for event in values(got.out):
        for item in [event.get("item"), *((event.get("response") or {}).get("output") or [])]:
            if item and "call_id" in item and item["status"] == "completed":
                mark = next(m for m in surfaced if m in item.get("arguments", item.get("input", "")))
                judged = ended.batch[order.index(mark)]
                assert (item["name"], item.get("arguments", item.get("input"))) == (judged.call.name, judged.text)
    if one.formed:
        read = read_strictly(got.out)
        assert sorted(text for _, _, text in read.calls) == sorted(ended.batch[order.index(m)].text for m in surfaced)


@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(made())
def test_where_nothing_can_be_held_every_byte_is_as_it_came(one: Made) -> None:
    """However odd the stream is."""
    data = sse(one.events)
    sent = relay(FREE, data).out
    if all(call_id.startswith("call_") for _, _, call_id in one.batch):
        assert sorted(sent.split(b"\n\n")) == sorted(data.split(b"\n\n"))
    if one.formed:
        assert lines(sent) == lines(data)


@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(made())
def test_text_is_out_with_the_bytes_that_complete_it(one: Made) -> None:
    """As long as no call before it is undecided, an event of a message waits for nothing."""
    data = sse(one.events)
    raws = [event.raw for event in EventSplitter().feed(data)]
    calls_before = {e["output_index"] for e in one.events if "call_id" in e.get("item", {}) or "arguments" in e["type"]}
    got = relay(one.world, raws, NEXT)
    for event, sent in zip(one.events, got.feeds, strict=False):
        is_text = event["type"].startswith("response.output_text")
        if is_text and event["output_index"] < min(calls_before, default=99):
            assert event["type"].encode() in sent


def test_the_openai_package_reads_what_is_sent() -> None:
    """Its helper puts the stream together as the proxy meant it."""
    from openai._models import construct_type_unchecked
    from openai._types import omit
    from openai.lib.streaming.responses._responses import ResponseStreamState
    from openai.types.responses import ResponseStreamEvent

    items = [reasoning(), message("Hm."), call("delete_file", PATH), call("search", OVER), call("show", '{"a":1}')]
    for out in (relay(WORLD, stream(*items)).out, relay(WORLD, stream(*items[:3]), stream(*items[3:])).out):
        kind: Any = ResponseStreamEvent
        state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
        for value in values(out):
            state.handle_event(construct_type_unchecked(type_=kind, value=value))
        told = [(i.type, getattr(i, "arguments", None)) for i in state._completed_response.output]
        assert told == [
            ("reasoning", None),
            ("message", None),
            ("function_call", HELD),
            ("function_call", '{"a":1}'),
        ]


# ---------------------------------------------------------------- what comes of calls


def test_a_stream_in_which_nothing_changes_leaves_byte_for_byte() -> None:
    """Also where calls are judged, as long as they come last, one after the other; and what is said behind the end."""
    for data in (
        stream(reasoning(), message("Hm."), call("show", '{"a":1}'), done=True),
        stream(message("Hm."), call("search", '{"limit":3}', custom=True)) + b": ping\n\n",
        stream(reasoning(), message("Hm."), message("More.", "msg_2")),
        stream(approval("look")),
    ):
        assert lines(both_ways(WORLD, data).out) == lines(data)


def test_calls_that_are_dropped_or_changed_are_so_in_every_place() -> None:
    """What comes behind them is numbered anew."""
    items = [reasoning(), call("delete_file", PATH), call("search", OVER), message("Bye.", "msg_2")]
    got = both_ways(WORLD, stream(*items, done=True))
    read = read_strictly(got.out)
    assert read.calls == [("search", items[2].listed["call_id"], HELD)]
    assert (read.text, read.done) == (["Bye."], 1)
    assert b"obfuscation" not in got.out.split(b"function_call_arguments.delta")[1].split(b"\n\n")[0]
    layout = got.layouts[0]
    assert [part if isinstance(part, int) else json.loads(part)["id"] for part in layout] == ["rs_1", 0, 1, "msg_2"]
    raws = [json.loads(judged.raw) for judged in got.ended[0].batch]
    assert raws == [items[1].listed, items[2].listed]  # as the model made them


def test_what_clients_act_on_comes_when_the_batch_is_saved() -> None:
    """Before that the client has a call's beginning and pieces, and every other item."""
    got = relay(WORLD, stream(call("show", '{"a":1}'), message("Bye.", "msg_2")))
    kinds = [value["type"].removeprefix("response.") for value in values(got.saved[0])]
    assert kinds[2:5] == ["output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"]
    assert kinds[-1] == "output_item.done"
    assert values(got.saved[0])[-1]["item"]["type"] == "message"
    assert "function_call_arguments.done" not in kinds
    read_strictly(got.out)


def test_arguments_stream_through_where_the_name_decides() -> None:
    """Each piece with the bytes that complete it."""
    data = stream(call("show", '{"a":1}'))
    raws = [event.raw for event in EventSplitter().feed(data)]
    got = relay(WORLD, raws)
    assert [sent == raw for sent, raw in zip(got.feeds, raws, strict=False)][:5] == [True] * 5


def test_items_behind_an_undecided_call_wait_for_it() -> None:
    """Their place depends on it; those before do not."""
    slow = numbered(events_of(message("one", "msg_1"), call("search", OVER), message("two", "msg_2")))
    late = [e for e in slow if e.get("item_id", "").startswith("fc")][-1:]
    order = [e for e in slow if e not in late]
    at = next(n for n, e in enumerate(order) if e["type"].endswith("completed"))
    dones = [e for e in order if e.get("output_index") == 1 and e["type"].endswith("item.done")]
    order = numbered([e for e in order[:at] if e not in dones] + late + dones + order[at:])
    raws = [event.raw for event in EventSplitter().feed(sse(order))]
    got = relay(WORLD, raws)
    released = next(n for n, sent in enumerate(got.feeds) if b"function_call" in sent)
    assert b"msg_1" in b"".join(got.feeds[:released])
    assert b"msg_2" not in b"".join(got.feeds[:released])
    assert b'"delta":"' in got.feeds[released]
    assert b"msg_2" in got.feeds[released]
    assert read_strictly(got.out).text == ["one", "two"]


def test_a_batch_held_whole_goes_on_in_another_answer() -> None:
    """One response: created and completed once, one id, its items in order, usage added up."""
    first = stream(reasoning(), message("Hm."), call("delete_file", PATH), done=True)
    second = stream(message("It is not allowed.", "msg_2"), id="resp_2", created_at=1700000009, done=True)
    got = both_ways(WORLD, first, second)
    read = read_strictly(got.out)
    assert read.kinds.count("response.created") == read.kinds.count("response.completed") == 1
    assert (read.final["id"], read.text, read.done) == ("resp_1", ["Hm.", "It is not allowed."], 1)
    assert [item["type"] for item in read.final["output"]] == ["reasoning", "message", "message"]
    assert read.final["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]  # type: ignore[operator]
    assert read.final["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}
    assert (got.lead.last_id, got.lead.shown_ids) == ("resp_2", ["resp_1"])
    assert got.lead.number == len(values(got.out))


def test_calls_of_a_later_round_are_governed_too() -> None:
    """Over as many rounds as it takes."""
    rounds = [
        stream(message("Hm."), call("delete_file", PATH)),
        stream(call("delete_file", PATH, "call_bbbbbbbbbbbbbbbbbbb"), id="resp_2"),
        stream(call("search", OVER), call("delete_file", PATH), id="resp_3"),
    ]
    read = read_strictly(both_ways(WORLD, *rounds).out)
    assert read.calls == [("search", "call_search_1234567890abcdef", HELD)]
    assert b"doomed" not in both_ways(WORLD, *rounds).out


def test_a_turn_that_is_stopped_ends_with_a_message_of_our_own() -> None:
    """It says completed, and its id can be found again."""
    world = World(policies([rule("stop_*", block={"message": "That ends it.", "then": "stop"})]))
    got = both_ways(world, stream(message("Hm."), call("show"), call("stop_it")))
    read = read_strictly(got.out)
    assert (read.text, read.calls) == (["Hm.", "That ends it."], [])
    assert read.items[1].begun["id"] == own_message_id("resp_1")
    assert b"function_call" not in got.out


def test_a_failed_turn_gives_nothing_of_its_calls() -> None:
    """What was text has been sent; the server tells the rest."""
    world = World(policies([rule("fail_*", block={"message": "Refused.", "then": "fail"})]))
    got = both_ways(world, stream(message("Hm."), call("show"), call("fail_it")))
    assert got.error is not None
    assert lines(got.out) == lines(stream(message("Hm."), ends=False))


def test_the_limit_of_rounds_is_said_where_nothing_else_is() -> None:
    """The last answer's calls are dropped, and an answer that was cut short says that it is complete."""
    world = World(RULES, bounds=replace(BOUNDS, most=0))
    again = stream(call("show", '{"a":1}'), id="resp_2")
    read = read_strictly(relay(world, stream(call("delete_file", PATH)), again).out)
    assert (read.text, read.calls) == ([LIMIT_REACHED], [])
    cut = stream(id="resp_2", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    out = relay(world, stream(call("delete_file", PATH)), cut).out
    assert b"event: response.completed\n" in out
    read = read_strictly(out)
    assert (read.text, read.final["status"], read.final["incomplete_details"]) == ([LIMIT_REACHED], "completed", None)
    broken = stream(id="resp_2", ends=False)
    read = read_strictly(relay(world, stream(call("delete_file", PATH)), broken).out)
    assert (read.text, read.final["id"]) == ([LIMIT_REACHED], "resp_1")


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("call_id", "world"),
    [
        ("show:0", World(RULES)),
        ("call_bbbbbbbbbbbbbbbbbbb", World(RULES, in_history=frozenset(["call_bbbbbbbbbbbbbbbbbbb"]))),
        ("call_bbbbbbbbbbbbbbbbbbb", World(RULES, in_ledger=frozenset(["call_bbbbbbbbbbbbbbbbbbb"]))),
    ],
)
def test_an_id_that_could_be_anothers_is_given_anew_in_a_split_batch(call_id: str, world: World) -> None:
    """The whole call waits for that, and keeps its arguments, in one piece."""
    got = both_ways(world, stream(call("delete_file"), call("show", '{"a":1}', call_id, item_id="fc_2")))
    read = read_strictly(got.out)
    assert read.calls == [("show", "call_fresh000000000000000001", '{"a":1}')]
    assert call_id.encode() not in got.out
    assert got.out.count(b"function_call_arguments.delta") == 2  # its event line, and its data


def test_an_approval_keeps_the_id_that_the_upstream_knows() -> None:
    """And nothing is looked up for it."""
    world = World(RULES, in_ledger=frozenset(["mcpr_1"]), in_history=frozenset(["mcpr_1"]))
    got = both_ways(world, stream(call("delete_file", PATH), approval("look", item_id="mcpr_1")))
    assert [item["id"] for item in read_strictly(got.out).final["output"]] == ["mcpr_1"]


def test_two_calls_of_one_id_get_two() -> None:
    """Where the batch enters the ledger."""
    twins = [call("show", f'{{"a":{n}}}', "call_aaaaaaaaaaaaaaaaaaa", item_id=f"fc_{n}") for n in range(2)]
    read = read_strictly(both_ways(WORLD, stream(call("delete_file"), *twins)).out)
    assert [(text, call_id[:10]) for _, call_id, text in read.calls] == [
        ('{"a":0}', "call_aaaaa"),
        ('{"a":1}', "call_fresh"),
    ]


# ---------------------------------------------------------------- ends, errors, limits


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_response_that_is_cut_short_surfaces_what_is_not_held(status: str) -> None:
    """Nothing is continued."""
    got = both_ways(WORLD, stream(message("Hm."), call("delete_file", PATH), call("show"), status=status))
    read = read_strictly(got.out)
    assert [name for name, _, _ in read.calls] == ["show"]
    assert read.final["status"] == status
    assert got.ended[0].conclusion.end is End.CUT
    assert got.ended[0].finish == status


def test_a_body_that_ends_in_the_middle_is_cut_short() -> None:
    """What is there of a call that goes ahead is sent, and no end is made up."""
    events = numbered(events_of(message("Hm."), call("show", '{"a":1}'), call("delete_file", PATH), ends=False))
    for count in range(len(events) + 1):
        out = relay(WORLD, sse(events[:count])).out
        assert b"doomed" not in out
        assert b"response.completed" not in out
        assert read_strictly(out).kinds == [e["type"] for e in events[:count] if e.get("output_index") != 2]


@pytest.mark.parametrize("nested", [True, False])
def test_an_error_in_the_middle_ends_what_was_held(nested: bool) -> None:
    """Its word passes under its number, and so does the end that some send behind it, less calls."""
    said = {"code": "server_error", "message": "Sorry.", "param": None}
    error = {"type": "error", **({"error": said} if nested else said)}
    begun = events_of(message("Hm."), call("delete_file", PATH), ends=False)
    end = {"type": "response.failed", "response": response("failed", [call("delete_file", PATH).listed])}
    got = both_ways(WORLD, sse(numbered([*begun, error, end])))
    assert not got.ended
    assert b"delete_file" not in got.out
    sent = values(got.out)
    assert [e["sequence_number"] for e in sent] == list(range(len(sent)))
    assert [e["type"] for e in sent[-2:]] == ["error", "response.failed"]
    assert sent[-1]["response"]["output"] == []
    assert [j.call.name for j in got.told] == ["delete_file"]


@pytest.mark.parametrize(
    ("limits", "data"),
    [
        (replace(LIMITS, event_bytes=600), stream(message("x" * 700))),
        (replace(LIMITS, event_bytes=600), stream(ends=False) + b"data: " + b"x" * 700),
        (replace(LIMITS, batch_calls=2), stream(*(call("show", "{}", f"call_{n}aaaaaaaaaaaaaaa") for n in range(3)))),
        (
            replace(LIMITS, batch_calls=2),
            stream(
                *(without(call("show", "{}", f"call_{n}aaaaaaaaaaaaaaa"), "added", "done", "delta") for n in range(3))
            ),
        ),
        (replace(LIMITS, held_bytes=900), stream(call("stop_it", '{"a":"' + "x" * 900 + '"}'))),
        (replace(LIMITS, nesting=8), stream(call("show", "{}", deep=[[[[[[[[1]]]]]]]]))),
    ],
)
def test_what_is_held_has_a_limit(limits: StreamLimits, data: bytes) -> None:
    """Beyond it the answer is broken off; what came before has been sent."""
    world = World(policies([rule("stop_*", block={"message": "no", "then": "stop"})]), limits=limits)
    got = relay(world, single_bytes(data))
    assert got.error is not None
    assert got.error.code == "limit_exceeded"
    assert got.out.startswith(stream(ends=False))
    assert b"function_call_arguments.done" not in got.out


def test_items_beyond_what_is_remembered_are_needed_only_for_a_turn_that_goes_on() -> None:
    """Where the response does not list them."""
    long = [message("x" * 500, "msg_1"), message("y" * 500, "msg_2")]
    world = World(RULES, limits=replace(LIMITS, held_bytes=1000))
    plain = stream(*long, output=[])
    assert relay(world, plain).out == plain
    assert relay(world, stream(*long, call("delete_file")), NEXT).error is None
    got = relay(world, stream(*long, call("delete_file"), output=[]), NEXT)
    assert got.error is not None
    assert got.error.code == "limit_exceeded"


# ---------------------------------------------------------------- questions


def a_stream(world: World, **parts: Any) -> tuple[ResponseStream, ResponseLead]:
    lead = ResponseLead()
    judge = Judge(world.policies.for_request(world.facts), world.facts, ())
    made = ResponseStream(
        judge,
        lead,
        turn=parts.pop("turn", ChoiceTurn()),
        bounds=world.bounds,
        limits=world.limits,
        used_ids=frozenset(),
        **parts,
    )
    return made, lead


def sent_by(steps: list[Step]) -> bytes:
    return b"".join(step.data for step in steps if isinstance(step, Send))


def test_text_before_a_call_goes_on_while_an_answer_is_long_in_coming() -> None:
    """What belongs to items behind the call waits for it, and what is behind the end for the end."""
    events = numbered(events_of(message("Hm."), call("show", '{"a":1}'), message("Bye.", "msg_2")))
    late = events.pop(next(n for n, e in enumerate(events) if e["type"].endswith("output_text.done")))
    at = next(n for n, e in enumerate(events) if "call_id" in e.get("item", {}))
    filtering, _ = a_stream(WORLD)
    steps = filtering.feed(sse([*events[: at + 1], late]), 0.0)
    assert [type(step) for step in steps if not isinstance(step, Send)] == [LookUp]
    assert filtering.waiting
    assert [e["type"] for e in values(sent_by(filtering.go_on(1.0)))] == ["response.output_text.done"]
    assert sent_by(filtering.feed(sse(events[at + 1 :]), 2.0)) == b""
    assert filtering.over
    ended = filtering.known((0, 0), False, 3.0)
    assert isinstance(ended[-1], Ended)
    assert b"msg_2" in sent_by(ended)
    assert b"arguments.done" not in sent_by(ended)
    assert (ended[-1].held_for, ended[-1].known) == ((3.0,), frozenset())
    last = sent_by(filtering.surface(0, ended[-1].conclusion, [None]))
    assert [e["type"].removeprefix("response.") for e in values(last)] == [
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_the_end_of_an_answer_that_settles_something_is_waited_for() -> None:
    """It has no calls, and its text goes on all the same."""
    filtering, _ = a_stream(WORLD, turn=ChoiceTurn(settles=True))
    *_, ended = steps = filtering.feed(stream(message("Hm.")), 0.0)
    assert isinstance(ended, Ended)
    assert (ended.batch, ended.conclusion.end) == ((), End.PASS)
    assert values(sent_by(steps))[-1]["type"] == "response.output_item.done"
    last = values(sent_by(filtering.surface(0, ended.conclusion, [])))
    assert [event["type"] for event in last] == ["response.completed"]


@pytest.mark.parametrize("may_count", [True, False])
def test_a_call_waits_for_what_the_world_says(may_count: bool) -> None:
    """A limit is asked for, and decides."""
    world = World(policies([rule("search", limit={"max": 1, "per": "1h"})]), may_count=may_count)
    got = both_ways(world, stream(call("search", OVER), call("show")))
    assert [name for name, _, _ in read_strictly(got.out).calls] == ["search"] * may_count + ["show"]


# ---------------------------------------------------------------- streams that are read again


def test_a_stream_can_be_taken_up_at_any_number() -> None:
    """What the client has is not sent again; the rest is the same, under the same numbers."""
    data = stream(reasoning(), call("delete_file", PATH), call("search", OVER), message("Bye.", "msg_2"))
    whole = [event.raw for event in EventSplitter().feed(relay(WORLD, data).out)]
    for after in range(-1, len(whole)):
        assert relay(WORLD, data, lead=ResponseLead(after=after)).out == b"".join(whole[after + 1 :])


def test_what_the_upstream_names_otherwise_is_named_as_the_client_does() -> None:
    """The response before, wherever it is echoed."""
    data = stream(message("Hm."), previous_response_id="resp_theirs")
    out = relay(WORLD, data, lead=ResponseLead(previous=b'"resp_mine"')).out
    assert out == data.replace(b"resp_theirs", b"resp_mine")
    assert relay(WORLD, stream(), lead=ResponseLead(previous=b'"resp_mine"')).out == stream()


def test_a_response_goes_on_from_rounds_that_are_known() -> None:
    """Its beginning and their items are made up."""
    lead = ResponseLead()
    head = {k: v for k, v in response("completed", [], id="resp_0").items() if k not in ("output", "usage")}
    items = [json.dumps(i.listed).encode() for i in (reasoning(), message("Hm."))]
    begun = lead.take_up(head, items)
    lead.usage, lead.rounds = USAGE, 2
    read = read_strictly(begun + relay(WORLD, stream(message("Bye.", "msg_2"), call("show")), lead=lead).out)
    assert read.final["id"] == "resp_0"
    assert [item["type"] for item in read.final["output"]] == ["reasoning", "message", "message", "function_call"]
    assert read.text == ["Hm.", "Bye."]


def test_a_shell_that_the_upstream_runs_is_no_call() -> None:
    """Its items pass."""
    world = World(policies([rule("shell", block={"message": "no"})]))
    data = stream(shell(["rm -rf /"]))
    assert relay(world, data, hosted=["shell"]).out == data
    assert b"rm -rf" not in both_ways(world, data, NEXT).out


def test_calls_that_overlap_keep_the_order_in_which_they_began() -> None:
    """Also when they end the other way around."""
    events = events_of(call("search", OVER), call("show", '{"a":1}'))
    first = [e for e in events if e.get("output_index") == 0]
    second = [e for e in events if e.get("output_index") == 1]
    for order in ([first[:2], second, first[2:]], [first[:1], second[:1], second[1:], first[1:]]):
        mixed = numbered(
            [*events[:2], *itertools.chain(*order), events_of(call("search", OVER), call("show", '{"a":1}'))[-1]]
        )
        read = read_strictly(both_ways(WORLD, sse(mixed)).out)
        assert [(name, text) for name, _, text in read.calls] == [("search", HELD), ("show", '{"a":1}')]


@pytest.mark.parametrize("most", [None, 1])
@pytest.mark.parametrize("weak", [True, False])
def test_a_response_that_is_read_again_is_the_same_event_by_event(most: int | None, weak: bool) -> None:
    """By then the ledger has its ids, and no rule is asked; the numbers are those of the first time."""
    spec: dict[str, Any] = {"rules": [NO_DELETES, CAP]} | ({"batch": {"maxParallel": most}} if most else {})
    world = World(policies(spec))
    show = call("show", '{"a":1}', "show:1" if weak else "", item_id="fc_s")
    data = stream(
        reasoning(), show, message("Hm."), call("delete_file", PATH), call("search", OVER), message("B", "m2")
    )
    first = relay(world, data)
    ended = first.ended[0]
    ids = ids_to_give(ended.batch, ended.conclusion, taken=(), fresh_id=lambda: "call_fresh000000000000000001")
    record = ResponseRecord("resp_1", calls=call_records(ended.batch, ended.conclusion, ids))
    judge = RecalledJudge(Judge(world.policies.for_request(world.facts), world.facts, ()), record)
    calls_again = [judged.call for judged in ended.batch]
    again = ResponseStream(judge, ResponseLead(), turn=ChoiceTurn(), bounds=BOUNDS, limits=LIMITS, used_ids=frozenset())
    steps = again.feed(data, 0.0)
    assert not [step for step in steps if isinstance(step, LookUp)]
    more = again.surface(0, recalled_conclusion(record, calls_again), recalled_ids(record, calls_again))
    assert lines(sent_by([*steps, *more])) == lines(first.out)
