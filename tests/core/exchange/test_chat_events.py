"""Events on their way out, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.calls import CallId, Owner, ToolCall
from proxy.core.exchange.chat_choice import ChoiceState, HeldEvent, Slot
from proxy.core.exchange.chat_events import Lead, Outgoing, without_end
from proxy.core.exchange.judging import Judged
from proxy.core.jsontext import render
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.sse import Event
from proxy.core.protocol.sse import render as framed
from tests.core.exchange.streams import USAGE, A, B, calls, entry, event, role, text, usage

JUDGED = Judged(ToolCall(CallId(A), "show", "{}"), "{}", Owner.CLIENT, Verdict(Decision.ALLOWED))


def came(value: dict[str, Any]) -> Event:
    return Event(framed(render(value)), render(value))


def of_a_choice(value: dict[str, Any], **more: Any) -> HeldEvent:
    return HeldEvent(came(value), value, 0, (), **more)


def data_of(raw: bytes | None) -> Any:
    assert raw is not None
    return json.loads(raw[6:])


@pytest.fixture
def lead() -> Lead:
    """One that knows the first answer."""
    found = Lead()
    found.learn(role())
    return found


def test_the_first_event_with_an_id_is_the_form_of_our_own(lead: Lead) -> None:
    """Azure's first one has none; usage and padding are nobody's form."""
    fresh = Lead()
    fresh.learn({"id": "", "choices": [], "model": ""})
    fresh.learn({**event(), "usage": None, "obfuscation": "z"})
    fresh.learn({**event(), "id": "later"})
    assert fresh.envelope == lead.envelope
    assert fresh.envelope["id"] == "chatcmpl-1"


def test_an_event_of_our_own_begins_with_the_role_where_none_was_said(lead: Lead) -> None:
    """Once for each choice."""
    deltas = [data_of(lead.chunk(index, {"content": "a"}))["choices"][0]["delta"] for index in (0, 0, 1)]
    assert deltas == [{"role": "assistant", "content": "a"}, {"content": "a"}, {"role": "assistant", "content": "a"}]
    assert data_of(lead.chunk(0, {}, "stop"))["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


def test_events_of_a_first_answer_pass_as_they_came(lead: Lead) -> None:
    """Usage and the last event too, while no round is hidden."""
    outgoing, state = Outgoing(lead, None), ChoiceState()
    for value in (role(), text("a"), event({}, "stop")):
        assert outgoing.emit(0, state, of_a_choice(value)) == came(value).raw
    for apart in (came(usage()), Event(b": ping\n\n", None), Event(b"data: [DONE]\n\n", b"[DONE]")):
        assert outgoing.apart(apart) == apart.raw


def test_usage_and_the_last_event_are_kept_where_rounds_are_hidden(lead: Lead) -> None:
    """They come once, at the very end; what else belongs to no choice passes, under the first id."""
    lead.rounds = 2
    outgoing = Outgoing(lead, 0)
    done = Event(b"data: [DONE]\n\n", b"[DONE]")
    assert outgoing.apart(came(usage())) is None
    assert outgoing.apart(done) is None
    assert lead.usage_event == came(usage())
    assert lead.done_event is done
    assert outgoing.apart(Event(b"data: : x\n\n", b": x")) == b"data: : x\n\n"
    assert data_of(outgoing.apart(came({"id": "other", "choices": [], "x": 1}))) == {
        "id": "chatcmpl-1",
        "choices": [],
        "x": 1,
    }


def test_an_event_of_a_later_answer_becomes_one_of_the_first(lead: Lead) -> None:
    """Id, time, number of the choice; the role is not said again, and usage is added up."""
    lead.rounds, lead.usage, lead.role_sent = 2, USAGE, {1}
    later = {**event({"role": "assistant", "content": "a"}), "id": "other", "created": 1, "usage": USAGE}
    sent = data_of(Outgoing(lead, 1).emit(1, ChoiceState(), of_a_choice(later)))
    doubled = {k: 2 * v for k, v in USAGE.items()}
    assert sent == {**event({"content": "a"}, index=1), "usage": doubled}


@pytest.mark.parametrize("content", ["a", "", None, ["a"]])
def test_the_first_text_of_a_round_is_parted_from_the_one_before(lead: Lead, content: Any) -> None:
    """By a blank line, once; what is no text is left alone."""
    outgoing, state = Outgoing(lead, 0), ChoiceState(parted=True)
    outgoing.emit(0, state, of_a_choice(event({"content": content})))
    sent = data_of(outgoing.emit(0, state, of_a_choice(text("b"))))
    assert sent["choices"][0]["delta"]["content"] == ("b" if content == "a" else "\n\nb")


@pytest.mark.parametrize(
    ("value", "is_sent"),
    [
        (event({"role": "assistant"}, "tool_calls"), False),  # the role was said, the end is gone
        (event({"content": "a"}, "tool_calls"), True),
        (event({}, "tool_calls", usage=USAGE), False),
        (event({}, "tool_calls", x_vendor=1), True),
        (event({}, "tool_calls", system_fingerprint="fp"), False),  # was said before
        ({**event(), "choices": [{"index": 0, "delta": {}, "stop_reason": "x", "finish_reason": "stop"}]}, True),
    ],
)
def test_an_event_without_its_end_is_sent_only_for_what_else_it_says(
    lead: Lead, value: dict[str, Any], is_sent: bool
) -> None:
    """An empty event tells nobody anything."""
    outgoing, state = Outgoing(lead, None), ChoiceState()
    outgoing.emit(0, state, of_a_choice({**role(), "system_fingerprint": "fp"}))
    held = of_a_choice(value)
    assert (outgoing.emit(0, state, held, more=without_end(held)) is not None) is is_sent


def test_what_is_gone_of_an_event_is_not_sent(lead: Lead) -> None:
    """And neither is padding that no longer fits."""
    value = {**event({"content": "a", "reasoning": "b"}), "obfuscation": "zz"}
    held = of_a_choice(value, gone=(("choices", 0, "delta", "reasoning"),))
    assert data_of(Outgoing(lead, None).emit(0, ChoiceState(), held)) == event({"content": "a"})


def test_a_call_whose_entry_cannot_be_told_apart_gets_its_own_number(lead: Lead) -> None:
    """Another name under the number of a call, without an id, is another call for us and so for every reader."""
    state, outgoing = ChoiceState(), Outgoing(lead, None)
    sent = []
    for one in (
        calls(entry(0, A, "show", "{}")),
        calls(entry(0, None, "list", "{}")),
        calls(entry(0, B, "find", "{}")),
    ):
        fragments = tuple(state.assembler.add(one["choices"][0]["delta"], lambda _: ""))
        for call in state.assembler.calls[len(state.slots) :]:
            state.slots.append(Slot(call, since=0.0, out_index=call.ordinal))
        state.slots[-1].judged = JUDGED
        sent.append(data_of(outgoing.emit(0, state, HeldEvent(came(one), one, 0, fragments))))
    numbers = [one["choices"][0]["delta"]["tool_calls"][0]["index"] for one in sent]
    assert numbers == [0, 1, 0]  # ids tell the third apart, as they did in what came
