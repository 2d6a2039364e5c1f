from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.batch.record import (
    BatchRecord,
    CallRecord,
    ResponseRecord,
    ResumeRecord,
    Round,
    RoundResult,
    TurnRecord,
    UnknownRecordError,
    parse_record,
    render_record,
    says_the_same,
)
from proxy.core.calls import BatchId, CallId, Kind, Owner, ToolCall
from proxy.core.jsontext import parse_own, render

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["\ud83d", '{"n":1.10}', ""])
calls = st.builds(
    ToolCall,
    texts.map(CallId),
    texts,
    texts,
    kind=st.sampled_from(Kind),
    unwrapped=st.booleans(),
    namespace=texts,
)
call_records = st.builds(
    CallRecord,
    calls,
    texts,
    st.sampled_from(Owner),
    texts,
    given=st.none() | texts,
    original=st.booleans(),
    stage=st.none() | st.integers(0, 3),
    result=st.none() | texts,
    blocked=st.booleans(),
)
rounds = st.builds(
    Round,
    texts,
    st.lists(st.builds(RoundResult, calls, texts, st.booleans(), st.booleans()), max_size=2).map(tuple),
)
several_rounds = st.lists(rounds, max_size=2).map(tuple)
batches = st.builds(
    BatchRecord, texts.map(BatchId), texts, texts, st.lists(call_records, max_size=3).map(tuple), several_rounds
)
turns = st.builds(TurnRecord, texts, several_rounds, unclear=st.booleans())
resumes = st.builds(ResumeRecord, texts, texts, texts, several_rounds, st.none() | batches)
responses = st.builds(
    ResponseRecord,
    texts,
    owed=st.lists(st.builds(RoundResult, calls, texts, st.booleans(), st.booleans()), max_size=2).map(tuple),
    carried=st.lists(texts, max_size=2).map(tuple),
    denied=st.integers(0, 9),
    calls=st.lists(call_records, max_size=2).map(tuple),
    before=texts,
    usage=texts,
    said=texts,
    own=texts,
)

BATCH = BatchRecord(
    BatchId("b"),
    "{}",
    "",
    (CallRecord(ToolCall(CallId("c"), "t", "{}"), "{}", Owner.CLIENT, "c", stage=0),),
    (Round("{}", (RoundResult(ToolCall(CallId("h"), "t", "{}"), "r", blocked=False, failed=False),)),),
)
FORM = parse_own(render_record(BATCH))


@given(batches | turns | resumes | responses)
def test_a_record_comes_back_from_its_bytes(record: Any) -> None:
    """What was written once is read the same, with every text to the byte, half pairs included."""
    assert parse_record(render_record(record), type(record)) == record


@given(batches)
def test_the_same_record_is_the_same_bytes(record: BatchRecord) -> None:
    """A record that was read is written as it was."""
    data = render_record(record)
    assert render_record(parse_record(data, BatchRecord)) == data


def changed(**parts: Any) -> bytes:
    return render({**FORM, "record": {**FORM["record"], **parts}})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b'"text"',
        b"null",
        b"{}",
        render({**FORM, "v": 2}),
        render({"v": 1}),
        render({"v": 1, "record": None}),
        render({"v": 1, "record": []}),
        changed(calls=None),
        changed(calls=[{}]),
        changed(calls=[{**FORM["record"]["calls"][0], "owner": "nobody"}]),
        changed(calls=[{**FORM["record"]["calls"][0], "more": 1}]),
        changed(calls=[{**FORM["record"]["calls"][0], "call": {"call_id": "c"}}]),
        changed(rounds=[{"message": "{}"}]),
        changed(rounds=[5]),
        render_record(TurnRecord("x", ())),
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    """A record of another form, of another kind, or no record at all is refused in one way."""
    with pytest.raises(UnknownRecordError):
        parse_record(data, BatchRecord)


def test_a_record_of_a_later_release_says_so() -> None:
    """Whoever looks into the log sees which form was met and which is known."""
    with pytest.raises(UnknownRecordError, match="form 7, known is 1"):
        parse_record(render({**FORM, "v": 7}), BatchRecord)


@pytest.mark.parametrize(
    "data",
    [
        render_record(BATCH),
        render({"v": 1, "record": {"response_id": "r"}}),
        render_record(ResponseRecord("r")).replace(b'"owed":[]', b'"owed":[{}]'),
        render_record(ResponseRecord("r")).replace(b'"said"', b'"sad"'),
    ],
)
def test_what_is_no_record_of_a_response_is_refused(data: bytes) -> None:
    """Whatever is missing or too much of it."""
    with pytest.raises(UnknownRecordError):
        parse_record(data, ResponseRecord)


def round_of(call_id: str, text: str, message: str) -> tuple[Round, ...]:
    call = ToolCall(CallId(call_id), "t", "{}")
    return (Round(message, (RoundResult(call, text, blocked=False, failed=False),)),)


@pytest.mark.parametrize(
    ("message", "text", "same"),
    [
        ('[{"type":"reasoning","n":1},{"type":"function_call","call_id":"two"}]', "r", True),
        ('[{"type":"reasoning","n":2},{"type":"function_call","call_id":"one"}]', "r", False),
        ('[{"type":"reasoning","n":1},{"type":"function_call","call_id":"one"}]', "s", False),
    ],
)
def test_turns_of_items_say_the_same_under_other_ids(message: str, text: str, same: bool) -> None:
    """A request that is sent again is answered alike, with other calls' ids."""
    one = round_of("one", "r", '[{"type":"reasoning","n":1},{"type":"function_call","call_id":"one"}]')
    assert says_the_same(TurnRecord("[]", one), TurnRecord("[]", round_of("two", text, message))) is same
