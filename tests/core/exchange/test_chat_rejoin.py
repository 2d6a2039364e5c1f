"""A chat's history as the model is to see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.batch.record import BatchRecord, CallRecord, Round, RoundResult
from proxy.core.batch.rejoin import TRIMMED, Anchor, Kept, Piece, Progress, PutBatch, PutRound, PutText
from proxy.core.calls import BatchId, CallId, Owner, RequestFacts, ToolCall
from proxy.core.exchange.chat_rejoin import (
    NO_RESULT,
    RawMessages,
    given_calls,
    is_as_sent,
    judge_results,
    render_pieces,
    repaired,
    results_by_index,
)
from proxy.core.exchange.judging import Judge
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.verdicts import ResultOutcome
from proxy.core.protocol.chat import ChatRequest, read_history, read_request
from tests.core.policy.engine import finish, policies, rule

USER = {"role": "user", "content": "hi"}
NO_RULES = policies([])


def request(*messages: Any) -> ChatRequest:
    return read_request(json.dumps({"model": "m", "messages": list(messages)}).encode(), 128)


def called(*ids: str, name: str = "search", **more: Any) -> dict[str, Any]:
    entries = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": entries, **more}


def result(call_id: str, content: Any = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def entry(call_id: str, name: str, args: str = "{}", **more: Any) -> str:
    function = {"name": name, "arguments": args}
    return json.dumps({"id": call_id, "type": "function", "function": function, **more})


def record(call_id: str, name: str, args: str = "{}", **more: Any) -> CallRecord:
    raw = entry(call_id, name, args, extra_content={"sig": 1.10})
    return CallRecord(ToolCall(CallId(call_id), name, args), raw, Owner.CLIENT, more.pop("given_id", ""), **more)


def rendered(made: ChatRequest, *pieces: Piece) -> list[dict[str, Any]]:
    return [json.loads(message) for message in render_pieces(made, pieces, RawMessages(made))]


# ---------------------------------------------------------------- results on their way to the model


def judged(made: ChatRequest, rules: PolicySet) -> list[Any]:
    judge = Judge(rules.for_request(RequestFacts()), RequestFacts(), ())
    found = finish(judge_results(made, RawMessages(made), read_history(made.messages), judge=judge))
    raws = results_by_index(RawMessages(made), found)
    return [(j.call.name, j.verdict.outcome, json.loads(raws[j.index])["content"]) for j in found]


REDACT = policies([rule("search", name="r", result={"redact": [{"pattern": "k[0-9]+", "with": "***"}]})])


@pytest.mark.parametrize(
    ("content", "left", "outcome"),
    [
        ("a k1 b", "a *** b", ResultOutcome.REDACTED),
        ("clean", "clean", ResultOutcome.OK),
        (None, None, ResultOutcome.OK),
        (
            [{"type": "text", "text": "k1"}, {"type": "image"}, {"type": "text", "text": "b"}],
            [{"type": "text", "text": "***"}, {"type": "image"}, {"type": "text", "text": "b"}],
            ResultOutcome.REDACTED,
        ),
    ],
)
def test_a_result_is_redacted_where_it_stands(content: Any, left: Any, outcome: ResultOutcome) -> None:
    """In a string or in its text parts; the other parts stay."""
    made = request(USER, called("a"), result("a", content))
    assert judged(made, REDACT) == [("search", outcome, left)]


def test_a_result_is_judged_by_the_call_that_it_answers() -> None:
    """By its id, or in the old form by its function's name; one of an unknown call meets every rule."""
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}}
    answer = {"role": "function", "name": "search", "content": "k2"}
    made = request(called("a", name="show"), result("a", "k1"), legacy, answer, result("gone", "k3"))
    found = [
        ("show", ResultOutcome.OK, "k1"),
        ("search", ResultOutcome.REDACTED, "***"),
        ("", ResultOutcome.REDACTED, "***"),
    ]
    assert judged(made, REDACT) == found


def test_a_result_in_parts_that_is_replaced_is_one_text() -> None:
    """What a rule puts in its place has no parts."""
    rules = policies([rule("search", result={"replace": {"content": "gone"}})])
    made = request(called("a"), result("a", [{"type": "text", "text": "x"}]))
    assert judged(made, rules) == [("search", ResultOutcome.REPLACED, "gone")]


def test_without_result_rules_nothing_changes() -> None:
    """The messages are the client's own bytes."""
    made = request(USER, called("a"), result("a"))
    raws = RawMessages(made)
    judge = Judge(NO_RULES.for_request(RequestFacts()), RequestFacts(), ())
    entries = read_history(made.messages)
    found = finish(judge_results(made, raws, entries, judge=judge))
    assert results_by_index(raws, found) is raws
    assert is_as_sent([Kept(0), Kept(1), Kept(2)], found, entries)
    assert not is_as_sent([Kept(0), Kept(1)], found, entries)
    assert (len(raws), raws[0], raws[1:]) == (3, json.dumps(USER).encode(), [json.dumps(called("a")).encode(), raws[2]])


# ---------------------------------------------------------------- pieces to messages


def test_hidden_rounds_and_the_text_behind_them_are_put_back() -> None:
    """A result that became too old is a word."""
    call = ToolCall(CallId("h"), "show", "{}")
    hidden = Round('{"role":"assistant","x":1}', (RoundResult(call, "long", blocked=False, failed=False),) * 2)
    made = request(USER, {"role": "assistant", "content": "One\n\nTwo", "name": "x"})
    found = rendered(made, Kept(0), PutRound(hidden, (True, False)), PutText(1, '"Two"'))
    results = [result("h", TRIMMED), result("h", "long")]
    assert found == [
        USER,
        {"role": "assistant", "x": 1},
        *results,
        {"role": "assistant", "content": "Two", "name": "x"},
    ]


def anchor(batch: BatchRecord, shown: dict[int, ToolCall], **more: Any) -> Anchor:
    return Anchor(batch, (0,), shown, more.pop("results", {1: 1}), Progress.WHOLE, **more)


def test_a_batch_is_whole_again_in_the_models_order() -> None:
    """Held calls as the model made them, fields of message and calls too; results follow, under the model's ids."""
    held, given = record("short", "delete_file", result="no"), record("x:0", "search", given_id="call_fresh", stage=0)
    batch = BatchRecord(
        BatchId("b"), '{"role":"assistant","content":"Hm.","reasoning_content":"r"}', "Hm.", (held, given)
    )
    made = request(called("call_fresh", content="Hm.", refusal=None, audio={"id": "z"}), result("call_fresh"))
    found = rendered(made, PutBatch(anchor(batch, {1: ToolCall(CallId("call_fresh"), "search", "{}")}), ("no", 1)))
    message = {"role": "assistant", "content": "Hm.", "reasoning_content": "r", "audio": {"id": "z"}}
    entries = [json.loads(held.raw), json.loads(given.raw)]
    assert found == [message | {"tool_calls": entries}, result("short", "no"), result("x:0")]


@pytest.mark.parametrize(
    ("more", "shown", "args"),
    [
        ({}, "{}", '{"limit":50}'),  # what the client was given and kept
        ({"given": '{"limit":10}'}, '{"limit": 10}', '{"limit":10}'),
        ({"given": '{"limit":10}', "original": True}, '{"limit":10}', '{"limit":50}'),
        ({"given": '{"limit":10}'}, '{"limit":7}', '{"limit":7}'),  # the client edited it
        ({"given": '{"limit":10}', "original": True}, '{"limit":7}', '{"limit":7}'),
    ],
)
def test_the_arguments_that_the_model_sees_of_a_surfaced_call(more: dict[str, Any], shown: str, args: str) -> None:
    """Those that the client was given, or the model's own; an edit of the client's stays its own."""
    call = record("c" * 20, "search", '{"limit":50}', given_id="c" * 20, stage=0, **more)
    batch = BatchRecord(BatchId("b"), '{"role":"assistant","content":null}', "", (call,))
    kept = '{"limit":50}' if not more else shown
    made = request(called("c" * 20), result("c" * 20))
    found = rendered(
        made, PutBatch(anchor(batch, {0: ToolCall(CallId("c" * 20), "search", kept)}, results={0: 1}), (1,))
    )
    assert found[0]["tool_calls"][0]["function"]["arguments"] == args
    assert found[0]["tool_calls"][0]["extra_content"] == {"sig": 1.1}


def test_a_text_that_the_client_changed_and_calls_of_no_batch_stay_the_clients() -> None:
    """They are its own."""
    held, given = record("h", "delete_file", result="no"), record("s", "search", given_id="s", stage=0)
    batch = BatchRecord(BatchId("b"), '{"role":"assistant","content":"Hm."}', "Hm.", (held, given))
    made = request(called("s", "mine", content="Edited."), result("s"))
    shown = {1: ToolCall(CallId("s"), "search", "{}")}
    (message, *_) = rendered(made, PutBatch(anchor(batch, shown, extra=((0, 1),)), ("no", None)))
    assert (message["content"], [c["id"] for c in message["tool_calls"]]) == ("Edited.", ["h", "s", "mine"])


def test_calls_that_are_surfaced_later_are_as_they_are_given() -> None:
    """Under their new ids, with their new arguments, and with what the upstream put on them."""
    batch = BatchRecord(
        BatchId("b"), "{}", "", (record("h", "x"), record("p", "pay", given_id="new", given='{"a":1}', stage=1))
    )
    (call,) = map(json.loads, given_calls(batch, [1]))
    assert call == json.loads(entry("new", "pay", '{"a":1}', extra_content={"sig": 1.10}))


# ---------------------------------------------------------------- orphans


def test_calls_without_a_result_get_one_that_says_so() -> None:
    """Behind the results that are there, at the end of the history too."""
    messages = [called("a", "b"), result("b"), USER, called("c"), {"role": "assistant", "content": "x"}, called("d")]
    found = [json.loads(m) for m in repaired([json.dumps(m).encode() for m in messages])]
    missing = {i: result(i, NO_RESULT) for i in "acd"}
    assert found == [*messages[:2], missing["a"], *messages[2:4], missing["c"], *messages[4:], missing["d"]]


def test_a_history_without_orphans_is_left_alone() -> None:
    """Whatever odd messages are in it."""
    messages = [b"3", b'{"role":"assistant","tool_calls":[null]}', b'{"role":"assistant","tool_calls":null}']
    assert repaired(messages) == messages
