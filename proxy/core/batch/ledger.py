"""The run of a held call: its states, what may happen in each, and what it is as bytes.

A run is claimed before it begins and kept when it has ended; whoever finds a claim waits for its result. A
claim is renewed while its run goes on, so that one that was not renewed in time was cut off by a crash. Such
a run may have had its effect: it counts as done, with an unknown outcome, unless the tool may be run twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from proxy.core.jsontext import parse_own, render

LEASE = 5.0
"""Seconds that a claim holds without being renewed."""
UNKNOWN = "Error: the run of {tool} was cut off; its outcome is unknown, and it was not repeated."


class RunState(StrEnum):
    ABSENT = "absent"
    RUNNING = "running"
    DONE = "done"


class RunEvent(StrEnum):
    CLAIM = "claim"  # somebody wants to run it
    RENEW = "renew"  # it goes on
    FINISH = "finish"  # it has a result
    LAPSE = "lapse"  # its claim was not renewed, and the tool may not be run twice
    RETAKE = "retake"  # its claim was not renewed, and the tool may be run twice
    GIVE_UP = "give_up"  # its client went away, and the tool may be run twice


TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    (RunState.ABSENT, RunEvent.CLAIM): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.RENEW): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.FINISH): RunState.DONE,
    (RunState.RUNNING, RunEvent.LAPSE): RunState.DONE,
    (RunState.RUNNING, RunEvent.RETAKE): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.GIVE_UP): RunState.ABSENT,
}


class IllegalStepError(ValueError):
    """An event that cannot happen in a state."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run. `claim` names who runs it until `until` (Unix seconds); `text` is the result, once there is one."""

    state: RunState = RunState.ABSENT
    claim: str = ""
    until: float = 0.0
    text: str = ""
    failed: bool = False
    blocked: bool = False


def step(run: Run, event: RunEvent) -> Run:
    """The run in its next state. Raises IllegalStepError."""
    try:
        return replace(run, state=TRANSITIONS[run.state, event])
    except KeyError:
        raise IllegalStepError(f"a run that is {run.state} cannot {event}") from None


def claimed(run: Run, claim: str, now: float) -> Run:
    """The run, claimed for the first time or taken over from a claim that lapsed."""
    event = RunEvent.CLAIM if run.state is RunState.ABSENT else RunEvent.RETAKE
    return replace(step(run, event), claim=claim, until=now + LEASE)


def renewed(run: Run, now: float) -> Run:
    return replace(step(run, RunEvent.RENEW), until=now + LEASE)


def finished(run: Run, text: str, *, failed: bool, blocked: bool = False) -> Run:
    return replace(step(run, RunEvent.FINISH), text=text, failed=failed, blocked=blocked)


def lapsed(run: Run, tool: str) -> Run:
    return replace(step(run, RunEvent.LAPSE), text=UNKNOWN.format(tool=tool), failed=True)


def has_lapsed(run: Run, now: float) -> bool:
    return run.state is RunState.RUNNING and now > run.until


def render_run(run: Run) -> bytes:
    return render({"v": 1, **asdict(run)})


def parse_run(data: bytes) -> Run:
    """Bytes to a run. Raises ValueError."""
    value = parse_own(data)
    if not isinstance(value, dict) or value.pop("v", None) != 1:
        raise ValueError("a run of an unknown form")
    try:
        return Run(**{**value, "state": RunState(value["state"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run: {error}") from error
