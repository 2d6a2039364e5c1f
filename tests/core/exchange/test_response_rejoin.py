"""A response's input as the model is to see it: items from pieces. What is whole here is tested with clients in
`tests/e2e/test_response_histories.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult
from proxy.core.batch.rejoin import TRIMMED, Anchor, Kept, Piece, Progress, PutBatch, PutRound, PutText
from proxy.core.calls import BatchId, CallId, Kind, Owner, RequestFacts, ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import (
    Rendering,
    Sent,
    given_items,
    item_digest,
    judge_results,
    response_form,
    results_again,
    round_items,
)
from proxy.core.history import EntryKind
from proxy.core.policy.verdicts import ResultOutcome
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.response_items import read_call
from proxy.core.protocol.response_request import ResponseRequest, read_request
from tests.core.policy.engine import finish, policies, rule

Item = dict[str, Any]
USER: Item = {"role": "user", "content": "hi"}
MORE: Item = {"role": "user", "content": "more"}


def function(call_id: str, name: str = "search", arguments: str = "{}") -> Item:
    return {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any = "found", kind: str = "function_call") -> Item:
    return {"type": f"{kind}_output", "call_id": call_id, "output": text}


def reasoning(number: int, **more: Any) -> Item:
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], **more}


def message(text: str, item_id: str = "msg_1") -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": item_id, "type": "message", "role": "assistant", "content": [part]}


def request(*items: Any, **more: Any) -> ResponseRequest:
    return read_request(json.dumps({"model": "m", "input": list(items), **more}).encode(), 128)


def record(item: Item, stage: int | None = 0, **more: Any) -> CallRecord:
    raw = json.dumps(item)
    call = read_call(item, raw.encode())
    assert call is not None
    given = more.pop("given_id", "" if stage is None else str(call.call_id))
    return CallRecord(call, raw, Owner.CLIENT, given, stage=stage, **more)


def anchor(layout: list[Any], calls: list[CallRecord], *, entries: tuple[int, ...], **more: Any) -> Anchor:
    batch = BatchRecord(BatchId("b"), json.dumps(layout), "", tuple(calls))
    shown = {i: c.call for i, c in enumerate(calls) if c.stage is not None}
    return Anchor(batch, entries, more.pop("shown", shown), {}, Progress.WHOLE, **more)


def rendered(items: list[Any], *pieces: Piece) -> list[Item]:
    sent = Sent.of(request(*items))
    return [json.loads(raw) for raw in Rendering(sent, sent.raws).items(pieces)]


def hidden(*items: Item, **results: str) -> Round:
    found = [
        RoundResult(ToolCall(CallId(call_id), "delete", "{}"), text, blocked=True, failed=True)
        for call_id, text in results.items()
    ]
    return Round(json.dumps(list(items)), tuple(found))


def nameless(item: Item) -> Item:
    return {k: v for k, v in item.items() if k != "id"}


# ---------------------------------------------------------------- what was sent


def test_items_that_were_carried_over_stand_first() -> None:
    """Those of an earlier request, then the request's own."""
    sent = Sent.of(request(output("b"), MORE), [json.dumps(output("a"))])
    assert [json.loads(raw) for raw in sent.raws] == list(sent.values) == [output("a"), output("b"), MORE]
    assert [entry.kind for entry in sent.entries] == [EntryKind.RESULT, EntryKind.RESULT, EntryKind.USER]


@pytest.mark.parametrize("named", [{"type": "item_reference", "id": "fc_a"}, {"id": "fc_a"}])
def test_a_reference_to_a_surfaced_call_counts_as_the_call(named: Item) -> None:
    """Under the id that the client has; one to a held call, or to anything else, does not."""
    batch = BatchRecord(
        BatchId("b"), "[0,1]", "", (record(function("a"), given_id="fresh"), record(function("h", "delete"), None))
    )
    sent = Sent.of(request(named, {"type": "item_reference", "id": "fc_h"}, {"id": "other"}))
    found = sent.with_references({BatchId("b"): batch})
    assert [[str(call.call_id) for call in entry.calls] for entry in found.entries] == [["fresh"], [], []]


def test_what_the_message_of_a_turn_is_found_by() -> None:
    """Its id, and where that may come again its text too."""
    long = "msg_0123456789abcdef"
    assert item_digest(message("a", long)) == item_digest(message("b", long))
    assert item_digest(message("a")) == item_digest({"id": "msg_1", "role": "assistant", "content": "a"})
    assert len({item_digest(message("a")), item_digest(message("b")), item_digest(message("a", "msg_2"))}) == 3


@pytest.mark.parametrize(
    ("more", "stored", "remembered"),
    [
        ({}, True, True),
        ({"store": False}, False, False),
        ({"store": False, "previous_response_id": "r"}, False, True),
        ({"conversation": "c"}, True, True),
    ],
)
def test_the_form_of_a_request(more: dict[str, Any], stored: bool, remembered: bool) -> None:
    """Who keeps what of it."""
    form = response_form(request(USER, **more))
    assert (form.stored, form.remembered, form.wants_json) == (stored, remembered, False)


# ---------------------------------------------------------------- results


RULES = policies(
    [
        rule("search", name="redact", result={"redact": [{"pattern": "[0-9]{2}", "with": "#"}]}),
        rule("secret", name="keep", result={"block": {"message": "no"}}),
    ]
)


def judged(*items: Item, calls: dict[str, ToolCall] | None = None) -> list[tuple[ResultOutcome, Item | None]]:
    sent = Sent.of(request(*items))
    judge = Judge(RULES.for_request(RequestFacts()), RequestFacts(), ())
    found = finish(judge_results(sent, calls or {}, judge=judge))
    again = results_again(sent, found)
    assert [raw for i, raw in enumerate(again) if all(j.index != i for j in found)] == [
        raw for i, raw in enumerate(sent.raws) if all(j.index != i for j in found)
    ]
    return [(j.verdict.outcome, None if j.message is None else json.loads(j.message)) for j in found]


def test_a_result_is_judged_under_the_name_of_its_call() -> None:
    """Which stands before it, or is known from elsewhere; of an unknown call by every rule."""
    elsewhere = {"x": ToolCall(CallId("x"), "other", "{}")}
    assert judged(function("a"), output("a", "12")) == [(ResultOutcome.REDACTED, output("a", "#"))]
    assert judged(function("a", "other"), output("a", "12")) == [(ResultOutcome.OK, None)]
    assert judged(output("x", "12"), calls=elsewhere) == [(ResultOutcome.OK, None)]
    [(outcome, changed)] = judged(output("y", "12"))
    assert (outcome, changed) == (ResultOutcome.BLOCKED, output("y", "Tool result withheld by policy p0/keep: no"))


KEPT = "Tool result withheld by policy p0/keep: no"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (output("a", [{"type": "input_text", "text": "x"}]), output("a", KEPT)),
        (output("a", None), output("a", KEPT)),
        (
            output("a", [{"stdout": "x", "outcome": {"type": "exit", "exit_code": 0}}], "shell_call"),
            output("a", [{"stdout": KEPT, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], "shell_call"),
        ),
        (
            {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [{"name": "x"}]},
            {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": []},
        ),
    ],
)
def test_a_result_that_is_kept_back_goes_whole(item: Item, expected: Item) -> None:
    """In the form that its kind asks for."""
    [(outcome, changed)] = judged(item, calls={"a": ToolCall(CallId("a"), "secret", "{}")})
    assert (outcome, changed) == (ResultOutcome.BLOCKED, expected)


def test_an_approval_is_no_result_that_rules_see() -> None:
    """It stays the client's word."""
    given = {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True, "reason": "12"}
    assert judged(given) == [(ResultOutcome.OK, None)]


# ---------------------------------------------------------------- pieces


def test_what_is_kept_keeps_its_bytes() -> None:
    """Numbers, spaces and escapes."""
    made = read_request(b'{"input":[ {"role":"user", "content":"\\u00e9","n":1.10 } ]}', 128)
    sent = Sent.of(made)
    assert Rendering(sent, sent.raws).items([Kept(0)]) == [b'{"role":"user", "content":"\\u00e9","n":1.10 }']


def test_a_batch_stands_in_the_order_of_its_record() -> None:
    """Held calls and the reasoning that led to them come from it, the rest from the client."""
    layout: list[Any] = [reasoning(1), 0, reasoning(2), 1, message("Hm.")]
    calls = [record(function("h", "delete"), None, result="no", blocked=True), record(function("a"))]
    mine = message("Hm.") | {"extra": 1}
    items = [USER, mine, function("a"), output("a")]
    put = PutBatch(anchor(layout, calls, entries=(2,)), ("no", 3))
    assert rendered(items, Kept(0), Kept(1), put) == [
        USER,
        reasoning(1),
        function("h", "delete"),
        function("a"),
        mine,
        output("h", "no"),
        output("a"),
    ]


def test_where_the_upstream_has_the_calls_only_results_are_added() -> None:
    """They are recalled."""
    calls = [record(function("h", "delete"), None, result="no", blocked=True), record(function("a"))]
    put = PutBatch(anchor([0, 1], calls, entries=(0,), recalled=True), ("no", 0))
    assert rendered([output("a"), USER], put, Kept(1)) == [output("h", "no"), output("a"), USER]


def test_a_call_under_a_fresh_id_goes_up_under_its_own() -> None:
    """And its result with it, whatever place that names its call in."""
    shell = {"type": "local_shell_call", "id": "call_2", "call_id": "call_2", "action": {}}
    calls = [record(function("call_1"), given_id="one"), record(shell, given_id="two")]
    mine = [function("one"), {**shell, "call_id": "two"}]
    results = [output("one"), {"type": "local_shell_call_output", "id": "two", "output": "x"}]
    put = PutBatch(anchor([0, 1], calls, entries=(0, 1)), (2, 3))
    assert rendered([*mine, *results], put) == [
        function("call_1"),
        shell,
        output("call_1"),
        {"type": "local_shell_call_output", "id": "call_2", "output": "x"},
    ]


@pytest.mark.parametrize(
    ("given", "original", "shown", "expected"),
    [
        (None, False, '{"n":1}', '{"n":1}'),
        (None, False, '{ "n": 1 }', '{"n":1}'),
        (None, False, '{"n":2}', '{"n":2}'),
        ('{"n":5}', False, '{"n":5}', '{"n":5}'),
        ('{"n":5}', True, '{"n":5}', '{"n":1}'),
        ('{"n":5}', True, '{"n":6}', '{"n":6}'),
    ],
)
def test_the_arguments_of_a_surfaced_call(given: str | None, original: bool, shown: str, expected: str) -> None:
    """What the client was given, or the model's own where a rule wants that; what it edited stays its own."""
    call = record(function("a", arguments='{"n":1}'), given=given, original=original)
    mine = function("a", arguments=shown)
    found = ToolCall(CallId("a"), "search", shown)
    put = PutBatch(anchor([0], [call], entries=(0,), shown={0: found}), (1,))
    assert rendered([mine, output("a")], put)[0]["arguments"] == expected


def test_hidden_rounds_take_what_the_client_shows_of_them() -> None:
    """Its messages and reasoning, in the record's order, once; reasoning that led to a held call in any case."""
    one = hidden(reasoning(1), message("Hm.", "msg_h"), function("x", "delete"), x="no")
    mine = message("Hm.", "msg_h") | {"extra": 1}
    items = [USER, reasoning(1), mine, message("Done."), MORE]
    pieces: list[Piece] = [
        Kept(0),
        Kept(1),
        Kept(2),
        PutRound(one, (False,)),
        PutText(3, json.dumps([message("Done.")])),
        Kept(4),
    ]
    assert rendered(items, *pieces) == [
        USER,
        reasoning(1),
        mine,
        function("x", "delete"),
        output("x", "no"),
        message("Done."),
        MORE,
    ]
    without = [USER, message("Done."), MORE]
    pieces = [Kept(0), PutRound(one, (False,)), PutText(1, json.dumps([message("Done.")])), Kept(2)]
    found = rendered(without, *pieces)
    assert found == [USER, nameless(function("x", "delete")), output("x", "no"), message("Done."), MORE]


def test_reasoning_right_before_a_held_call_comes_back_without_the_client() -> None:
    """A model's call is refused without it."""
    one = hidden(reasoning(1), reasoning(2), function("x", "delete"), reasoning(3), x="no")
    found = rendered([USER, message("Done.")], Kept(0), PutRound(one, (False,)), Kept(1))
    assert found[1:4] == [reasoning(1), reasoning(2), function("x", "delete")]
    assert reasoning(3) not in found


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("rounds", [True, False])
def test_reasoning_that_a_client_let_go(by_id: bool, rounds: bool) -> None:
    """It comes back only behind hidden rounds, with what the client names by its id; without it calls have no ids."""
    layout: list[Any] = [reasoning(1), 0, 1]
    calls = [record(function("a")), record(function("h", "delete"), None, result="no")]
    found = anchor(layout, calls, entries=(1,))
    before = (hidden(function("x", "delete"), x="no"),) if rounds else ()
    found = replace(found, batch=replace(found.batch, rounds=before))
    mine = function("a") if by_id else nameless(function("a"))
    items = rendered([USER, mine, output("a")], Kept(0), PutBatch(found, (2, "no")))
    held = function("h", "delete")
    if by_id and rounds:
        assert items[1:4] == [reasoning(1), function("a"), held]
    else:
        assert items[1:3] == [mine, nameless(held)]


def test_an_approval_keeps_its_id() -> None:
    """It is known by nothing else."""
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "n", "arguments": "{}"}
    one = hidden(reasoning(1), message("Hm.", "msg_h"), asked, function("x", "delete"), mcpr_1="no", x="no")
    found = rendered([USER, message("Done.")], Kept(0), PutRound(one, (False, False)), Kept(1))
    assert found[1:3] == [asked, nameless(function("x", "delete"))]
    calls = [record(function("a")), record(asked, None, result="no")]
    put = PutBatch(anchor([reasoning(1), 0, 1], calls, entries=(1,)), (2, "no"))
    assert rendered([USER, nameless(function("a")), output("a")], Kept(0), put)[2] == asked


def test_a_turn_that_became_one_message_ends_with_it() -> None:
    """Also where it has the id of the first; the record's own words are said with it."""
    one = hidden(message("Hm.", "msg_h"), function("x", "delete"), x="no")
    whole = message("Hm.Done.", "msg_h")
    put = PutText(1, json.dumps([message("Done.", "msg_d")]))
    found = rendered([USER, whole, MORE], Kept(0), PutRound(one, (False,)), put, Kept(2))
    assert found == [USER, function("x", "delete"), output("x", "no"), whole, MORE]


def test_items_under_new_ids_are_known_by_what_they_say() -> None:
    """A conversation gives its items ids of its own."""
    one = hidden(message("Hm.", "msg_h"), function("x", "delete"), x="no")
    mine = [message("Hm.", "msg_1"), message("Done.", "msg_2")]
    put = PutText(2, json.dumps([message("Done.", "msg_d")]))
    found = rendered([USER, *mine], Kept(0), Kept(1), PutRound(one, (False,)), put)
    assert found == [USER, mine[0], function("x", "delete"), output("x", "no"), mine[1]]


def test_a_hidden_call_does_not_take_another_of_its_id() -> None:
    """Some models count their calls anew in every answer."""
    one = hidden(function("call_0", "delete") | {"id": "fc_hidden"}, call_0="no")
    mine = [function("call_0"), output("call_0")]
    found = rendered([USER, *mine, message("Done.")], Kept(0), Kept(1), Kept(2), PutRound(one, (False,)), Kept(3))
    assert [item.get("id") for item in found] == [None, "fc_call_0", None, "fc_hidden", None, "msg_1"]


def test_trimmed_results_of_a_hidden_round() -> None:
    """The call stays, its result is a word."""
    one = hidden(function("x", "delete"), function("y", "delete"), x="long", y="short")
    found = rendered([USER, message("Done.")], Kept(0), PutRound(one, (True, False)), Kept(1))
    assert found[3:5] == [output("x", TRIMMED), output("y", "short")]


def test_a_message_of_our_own_goes_up_without_its_id() -> None:
    """A reference to it goes up as what it says, where that is known, and else not at all."""
    own = message("enough", own_message_id("r"))
    bare = {k: v for k, v in own.items() if k != "id"}
    name = {"type": "item_reference", "id": own["id"]}
    assert rendered([own, name], Kept(0), Kept(1)) == [bare]
    assert rendered([USER, name], Kept(0), PutText(1, json.dumps([own]))) == [USER, bare]


def test_an_item_of_another_turn_is_not_taken() -> None:
    """Of two messages that say the same, each stays in its turn."""
    said = {"type": "message", "role": "assistant", "content": "Hm."}
    one = hidden({**said, "id": "msg_h"}, function("x", "delete"), x="no")
    items = [USER, said, MORE, said, message("Done.")]
    pieces: list[Piece] = [
        Kept(0),
        Kept(1),
        Kept(2),
        PutRound(one, (False,)),
        Kept(3),
        PutText(4, json.dumps([message("Done.")])),
    ]
    found = rendered(items, *pieces)
    assert found == [USER, said, MORE, said, function("x", "delete"), output("x", "no"), message("Done.")]


def test_notes_stand_behind_all_results() -> None:
    """Of kinds whose results have no room for words."""
    click = {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "click"}}
    calls = [record(click, None, result="no", blocked=True), record(function("a"))]
    put = PutBatch(anchor([0, 1], calls, entries=(0,)), ("no", 1))
    found = rendered([function("a"), output("a")], put)
    assert [item["type"] for item in found] == [
        "computer_call",
        "function_call",
        "computer_call_output",
        "function_call_output",
        "message",
    ]
    round_ = Round(json.dumps([click]), (RoundResult(calls[0].call, "no", blocked=True, failed=True),))
    assert [json.loads(item)["type"] for item in round_items(round_)] == [
        "computer_call",
        "computer_call_output",
        "message",
    ]


# ---------------------------------------------------------------- calls that are surfaced later


def test_calls_that_are_given_later_have_the_ids_that_clients_expect() -> None:
    """Their own, under the call id and with the arguments that the client gets; a made one where it was taken off."""
    bare = {k: v for k, v in function("call_1").items() if k != "id"}
    free = {"type": "custom_tool_call", "call_id": "call_2", "name": "run", "input": "x"}
    calls = (
        record(function("a"), stage=1, given='{"n":5}'),
        record(bare, stage=1, given_id="call_one"),
        record(free, stage=1, given_id="call_two"),
    )
    assert calls[2].call.kind is Kind.CUSTOM
    batch = BatchRecord(BatchId("b"), "[0,1,2]", "", calls)
    assert [json.loads(item) for item in given_items(batch, [0, 1, 2])] == [
        function("a", arguments='{"n":5}'),
        {**bare, "call_id": "call_one", "id": "fc_one"},
        {**free, "call_id": "call_two", "id": "ctc_two"},
    ]
