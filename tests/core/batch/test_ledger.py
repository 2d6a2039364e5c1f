from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.batch.ledger import (
    LEASE,
    TRANSITIONS,
    IllegalStepError,
    Run,
    RunEvent,
    RunState,
    claimed,
    finished,
    has_lapsed,
    lapsed,
    parse_run,
    render_run,
    renewed,
    step,
)

NOW = 1000.5
TABLE = {
    RunState.ABSENT: {RunEvent.CLAIM: RunState.RUNNING},
    RunState.RUNNING: {
        RunEvent.RENEW: RunState.RUNNING,
        RunEvent.FINISH: RunState.DONE,
        RunEvent.LAPSE: RunState.DONE,
        RunEvent.RETAKE: RunState.RUNNING,
        RunEvent.GIVE_UP: RunState.ABSENT,
    },
    RunState.DONE: {},
}
RUNNING = Run(RunState.RUNNING, "me", NOW)
DONE = Run(RunState.DONE, "me", NOW, "text", failed=True)

runs = st.builds(
    Run,
    st.sampled_from(RunState),
    claim=st.text(st.characters(), max_size=8),
    until=st.floats(allow_nan=False, allow_infinity=False),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    failed=st.booleans(),
    blocked=st.booleans(),
)


@pytest.mark.parametrize("event", RunEvent)
@pytest.mark.parametrize("state", RunState)
def test_every_state_with_every_event(state: RunState, event: RunEvent) -> None:
    """A step that the table has leads to its state and changes nothing else; every other step is refused."""
    run = Run(state, "me", NOW, "text", failed=True, blocked=True)
    to = TABLE[state].get(event)
    if to is None:
        with pytest.raises(IllegalStepError, match=f"a run that is {state} cannot {event}"):
            step(run, event)
    else:
        assert step(run, event) == Run(to, "me", NOW, "text", failed=True, blocked=True)
        assert TRANSITIONS[state, event] is to


def test_a_run_that_is_done_stays_done() -> None:
    """Nothing leads out of the last state, so that nothing runs twice."""
    assert not [event for state, event in TRANSITIONS if state is RunState.DONE]
    changes: list[Callable[[], Run]] = [
        lambda: claimed(DONE, "you", NOW),
        lambda: renewed(DONE, NOW),
        lambda: finished(DONE, "again", failed=False),
        lambda: lapsed(DONE, "t"),
    ]
    for change in changes:
        with pytest.raises(IllegalStepError):
            change()


def test_a_run_is_claimed_for_a_time() -> None:
    """Who claims a run holds it for one lease, and for another with each renewal."""
    run = claimed(Run(), "me", NOW)
    assert run == Run(RunState.RUNNING, "me", NOW + LEASE)
    assert renewed(run, NOW + 2) == Run(RunState.RUNNING, "me", NOW + 2 + LEASE)
    assert claimed(run, "you", NOW + 9) == Run(RunState.RUNNING, "you", NOW + 9 + LEASE)
    with pytest.raises(IllegalStepError):
        renewed(Run(), NOW)


@pytest.mark.parametrize(
    ("run", "now", "over"),
    [
        (RUNNING, NOW, False),
        (RUNNING, NOW + 0.001, True),
        (RUNNING, NOW - 1, False),
        (Run(), NOW, False),
        (DONE, NOW + 99, False),
    ],
)
def test_only_a_claim_lapses(run: Run, now: float, over: bool) -> None:
    """A claim is over when its time has passed; what is absent or done has no claim."""
    assert has_lapsed(run, now) is over


def test_how_a_run_ends() -> None:
    """With its result, or with the word that its outcome is unknown."""
    assert finished(RUNNING, "42", failed=False) == Run(RunState.DONE, "me", NOW, "42")
    refused = finished(RUNNING, "no", failed=True, blocked=True)
    assert refused == Run(RunState.DONE, "me", NOW, "no", failed=True, blocked=True)
    cut = lapsed(RUNNING, "pay")
    assert (cut.state, cut.failed, cut.blocked) == (RunState.DONE, True, False)
    assert "pay" in cut.text
    assert "unknown" in cut.text
    with pytest.raises(IllegalStepError):
        finished(Run(), "x", failed=False)
    with pytest.raises(IllegalStepError):
        lapsed(Run(), "x")


@given(runs)
def test_a_run_comes_back_from_its_bytes(run: Run) -> None:
    """What is kept is read again as it was."""
    assert parse_run(render_run(run)) == run


def test_halves_of_pairs_in_a_result_are_kept() -> None:
    """A result with half a surrogate pair is no reason to lose a run."""
    run = finished(RUNNING, "a\ud83d", failed=False)
    assert parse_run(render_run(run)) == run


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\xff",
        b"[]",
        b'"text"',
        b"5",
        b"null",
        b"{}",
        b'{"v":2,"state":"done"}',
        b'{"v":1}',
        b'{"v":1,"state":"lost"}',
        b'{"v":1,"state":["done"]}',
        b'{"v":1,"state":"done","more":1}',
    ],
)
def test_what_is_no_run_is_an_error_of_value(data: bytes) -> None:
    """Bytes of another form, and bytes that are none of ours, are refused in one way."""
    with pytest.raises(ValueError):
        parse_run(data)
