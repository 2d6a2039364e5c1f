"""What goes out: numbers, places, the one id; events of our own; the list in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.exchange.response_outgoing import Outgoing, ResponseLead, final_output, shown_items, unstreamed
from proxy.core.exchange.response_reading import Part
from proxy.core.exchange.response_state import HeldEvent, OutputItem, ResponseState
from proxy.core.protocol.sse import Event
from tests.core.exchange.response_streams import call, message, reasoning, response
from tests.responsereader import read_strictly
from tests.strictreader import data_of

ITEMS = [json.dumps(item.listed, separators=(",", ":")).encode() for item in (reasoning(), message("Hm."))]


def held(value: dict[str, Any], item: OutputItem | None = None, part: Part = Part.OTHER, space: str = "") -> HeldEvent:
    data = json.dumps(value, separators=("," + space, ":" + space)).encode()
    return HeldEvent(Event(b"data: " + data + b"\n\n", data), value, value["type"], part, item)


def sent(out: bytes | None) -> Any:
    assert out is not None
    return json.loads(data_of(out)[0])


def outgoing(lead: ResponseLead, *, anew: bool = True) -> Outgoing:
    return Outgoing(lead, frozenset({"shell"}), anew=anew)


def test_numbers_are_counted_from_the_first() -> None:
    """Without gaps, where events may go; else they are the upstream's."""
    for anew, numbers in ((True, [4, 5, 6]), (False, [4, 7, 9])):
        lead = ResponseLead()
        out = outgoing(lead, anew=anew)
        assert [
            sent(out.emit(held({"type": "x", "sequence_number": n})))["sequence_number"] for n in (4, 7, 9)
        ] == numbers
        assert lead.number == numbers[-1] + 1
    lead = ResponseLead()
    assert "sequence_number" not in sent(outgoing(lead).emit(held({"type": "x"})))
    assert "sequence_number" not in sent(lead.own({"type": "y"}))


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("delta", ["a", '"output_index":5', "output_index"])
def test_an_event_whose_numbers_change_keeps_every_other_byte(space: str, delta: str) -> None:
    """Wherever else the words stand in it."""
    item = OutputItem(5, out_index=1)
    lead = ResponseLead(number=3, begun=True)
    value = {"type": "response.output_text.delta", "output_index": 5, "delta": delta, "sequence_number": 12}
    out = outgoing(lead).emit(held(value, item, space=space))
    expected = held(value | {"output_index": 1, "sequence_number": 3}, space=space).event.raw
    assert out == expected


@pytest.mark.parametrize("number", ["1.0", "1e0"])
def test_a_number_that_is_spelled_otherwise_is_no_number(number: str) -> None:
    """It goes on as it came."""
    data = b'{"type":"x","sequence_number":' + number.encode() + b"}"
    event = HeldEvent(Event(b"data: " + data + b"\n\n", data), json.loads(data), "x")
    assert outgoing(ResponseLead(number=7, begun=True)).emit(event) == event.event.raw


def test_an_item_without_a_place_or_gone_has_no_events() -> None:
    """A place that is not said is not added."""
    out = outgoing(ResponseLead())
    assert out.emit(held({"type": "x", "output_index": 0}, OutputItem(0))) is None
    unplaced = held({"type": "x"}, OutputItem(0, out_index=3))
    assert out.emit(unplaced) == unplaced.event.raw


def test_a_later_answer_goes_by_the_first_ones_id_and_time() -> None:
    """In every place where they stand; what it used is added to what was used before."""
    lead = ResponseLead(rounds=2, usage={"total_tokens": 2}, previous=b'"resp_mine"')
    first = response("in_progress", [])
    lead.learn(first)
    later = response("completed", [], id="resp_2", created_at=9, previous_response_id="resp_theirs")
    lead.learn(later)
    assert lead.shown_ids == ["resp_1"]
    out = sent(outgoing(lead).emit(held({"type": "response.completed", "response": later})))["response"]
    assert (out["id"], out["created_at"], out["previous_response_id"]) == ("resp_1", 1700000000, "resp_mine")
    assert out["usage"]["total_tokens"] == 13
    unknown = sent(outgoing(lead).emit(held({"type": "response.completed", "response": later | {"usage": None}})))
    assert unknown["response"]["usage"] == {"total_tokens": 2}
    assert sent(outgoing(lead).emit(held({"type": "x", "response_id": "resp_2"})))["response_id"] == "resp_1"
    assert sent(outgoing(lead).emit(held({"type": "x", "response_id": "resp_0"})))["response_id"] == "resp_0"
    assert "output" not in lead.envelope
    assert "usage" not in lead.envelope


def test_a_response_on_its_way_lists_no_calls() -> None:
    """But those that the upstream runs."""
    output: list[Any] = [message("a").listed, call("show").listed, {"type": "shell_call"}, 7]
    value = {"type": "response.in_progress", "response": response("in_progress", output)}
    assert sent(outgoing(ResponseLead()).emit(held(value)))["response"]["output"] == [output[0], output[2], 7]
    assert outgoing(ResponseLead(), anew=False).emit(held(value)) == held(value).event.raw


def test_an_event_may_change_its_name() -> None:
    """In its line and in its data."""
    value = {"type": "response.incomplete", "response": response("incomplete", [])}
    out = outgoing(ResponseLead()).emit(
        held(value), {("response", "status"): b'"completed"'}, name="response.completed"
    )
    assert out is not None
    assert out.startswith(b"event: response.completed\n")
    assert (sent(out)["type"], sent(out)["response"]["status"]) == ("response.completed", "completed")


def test_a_response_that_is_taken_up_begins_and_shows_its_items() -> None:
    """Under numbers of its own, which go on."""
    lead = ResponseLead()
    head = {k: v for k, v in response("completed", []).items() if k not in ("output", "usage")}
    out = lead.take_up(head, ITEMS[:1])
    out += lead.show(ITEMS[1:])
    assert (lead.places, lead.items, lead.number) == (2, ITEMS, len(data_of(out)))
    out += lead.end(b"[" + b",".join(ITEMS) + b"]", None)
    read = read_strictly(out)
    assert (read.text, read.final["status"], read.created["status"]) == (["Hm."], "completed", "in_progress")


def test_what_the_client_has_is_not_sent_again() -> None:
    """Our own events count as well."""
    lead = ResponseLead(after=1)
    assert lead.own({"type": "a"}) == b""
    assert outgoing(lead).emit(held({"type": "b", "sequence_number": 8})) is None
    assert sent(lead.own({"type": "c"}))["sequence_number"] == 2


def test_the_list_in_the_end() -> None:
    """As it came where nothing goes and nothing is added; made of the items where there is none."""
    state = ResponseState()
    first, only_listed = OutputItem(0, "rs_1", raw=ITEMS[0], out_index=0), OutputItem(1, streamed=False)
    forgotten = OutputItem(2, out_index=1)
    state.items = [first, forgotten, only_listed]
    assert final_output(state, [], []) is None
    assert final_output(state, [b"0"], [b"9"]) == [b"0", ITEMS[0], b"9"]
    state.listing = [(first, ITEMS[0]), (None, b"7"), (only_listed, ITEMS[1])]
    assert final_output(state, [], []) is None
    assert final_output(state, [b"0"], []) == [b"0", ITEMS[0], b"7", ITEMS[1]]
    assert shown_items(state) == [ITEMS[0]]
    assert unstreamed(state) == [ITEMS[1]]
