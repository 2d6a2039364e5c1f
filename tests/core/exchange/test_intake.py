"""Events one after another: what waits for an answer, and what is refused."""

from __future__ import annotations

import pytest

from proxy.core.calls import RequestFacts
from proxy.core.exchange.deciding import Decisions
from proxy.core.exchange.intake import Intake
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.steps import Broken, LookUp, Send, Step, StreamLimits
from proxy.core.exchange.turns import Bounds
from proxy.core.protocol.sse import Event
from proxy.errors import UpstreamError
from tests.core.exchange.streams import RULES

ASKS = LookUp((0, 0), "x")


class Letters(Intake):
    """Sends every event on; one with `?` asks, one with `!` is refused."""

    followed = False
    holds = 0
    broken_off = True

    @property
    def held_bytes(self) -> int:
        return self.holds

    @property
    def _may_be_followed(self) -> bool:
        return self.followed

    def _event(self, event: Event) -> list[Step]:
        self._check(event)
        if b"!" in event.raw:
            raise UpstreamError("No.", kind="protocol")
        return [ASKS, Send(event.raw)] if b"?" in event.raw else [Send(event.raw)]

    def _cut_short(self) -> list[Step]:
        return [Send(b"end")]

    def answered(self) -> list[Step]:
        return self._answered([Send(b"yes")])


def letters(**limits: int) -> Letters:
    facts = RequestFacts()
    judge = Judge(RULES.for_request(facts), facts, ())
    most = {"event_bytes": 100, "batch_calls": 3, "held_bytes": 50, **limits}
    return Letters(Decisions(judge, Bounds(1, 1, 1), frozenset()), StreamLimits(**most))


def sent(steps: list[Step]) -> bytes:
    return b"".join(step.data for step in steps if isinstance(step, Send))


def test_events_behind_a_question_of_the_same_bytes_wait_for_its_answer() -> None:
    """Or until it takes its time; those that come later do not."""
    one = letters()
    assert sent(one.feed(b"data: ?\n\ndata: a\n\n", 1.0)) == b"data: ?\n\n"
    assert one.waiting
    assert sent(one.feed(b"data: b\n\n", 2.0)) == b"data: a\n\ndata: b\n\n"
    assert not one.waiting
    assert one.answered() == [Send(b"yes")]
    one.feed(b"data: ?\n\ndata: a\n\n", 3.0)
    assert sent(one.answered()) == b"yesdata: a\n\n"
    one.feed(b"data: ?\n\ndata: a\n\n", 3.0)
    assert sent(one.go_on(4.0)) == b"data: a\n\n"


@pytest.mark.parametrize(
    ("data", "followed", "broken_off", "out"),
    [
        (b'data: {"a":1}', False, True, b'data: {"a":1}end'),
        (b'data: {"a":1}\n', True, True, b'data: {"a":1}\n\n\nend'),
        (b"data: [DONE]", False, True, b"data: [DONE]end"),
        (b'data: {"a":', False, True, b"end"),
        (b"dat", False, True, b"end"),
        (b'data: {"a":', False, False, b'data: {"a":end'),
    ],
)
def test_the_end_of_the_body_ends_what_was_not_ended(data: bytes, followed: bool, broken_off: bool, out: bytes) -> None:
    """An event of it is closed where something of our own may follow; the beginning of one is none, unless all was
    said before it."""
    one = letters()
    one.followed, one.broken_off = followed, broken_off
    assert one.feed(data, 1.0) == []
    assert sent(one.finish(2.0)) == out


def test_an_event_that_is_refused_breaks_off_behind_what_came_before() -> None:
    """What it said is the error."""
    steps = letters().feed(b"data: a\n\ndata: !\n\ndata: b\n\n", 1.0)
    assert sent(steps) == b"data: a\n\n"
    assert isinstance(steps[-1], Broken)


@pytest.mark.parametrize(
    ("data", "holds", "limits"),
    [
        (b"data: " + b"x" * 200 + b"\n\n", 0, {}),
        (b"data: " + b"x" * 200, 0, {}),
        (b"data: [[[[1]]]]\n\n", 0, {"nesting": 3}),
        (b"data: a\n\n", 51, {}),
    ],
)
def test_what_is_too_much_breaks_off(data: bytes, holds: int, limits: dict[str, int]) -> None:
    """An event, whole or not, its nesting, and what is held."""
    one = letters(**limits)
    one.holds = holds
    broken = one.feed(data, 1.0)[-1]
    assert isinstance(broken, Broken)
    assert broken.error.code == "limit_exceeded"
