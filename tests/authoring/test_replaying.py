from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from proxy.authoring import replaying
from proxy.authoring.replaying import Replay, replay, replay_object
from proxy.authoring.sources import load_set
from tests.authoring.files import POLICY, record, write, write_audit

DELETE, HIGH, LOW = record("delete_order", {"id": 7}), record("search", {"limit": 99}), record("search", {"limit": 1})


def replayed(*records: dict[str, Any], against: str = "", why: bool = False, policy: str = POLICY) -> Replay:
    write(policy=policy, other=against or POLICY)
    other = load_set(["other.yaml"], {}) if against else None
    return replay([write_audit("audit.jsonl", *records)], load_set(["policy.yaml"], {}), other, why=why)


def flips(found: Replay) -> list[tuple[str, str, int]]:
    return [(str(flip.before), str(flip.after), count) for flip, count in found.flips.most_common()]


def test_calls_that_are_decided_otherwise_are_counted() -> None:
    """By decisions and rules, tool and client."""
    blocked = {**DELETE, "decision": "blocked", "policy": "old", "rule": "r"}
    found = replayed(DELETE, DELETE, HIGH, LOW, blocked, {**LOW, "decision": "answered", "policy": "o", "rule": "r"})
    assert flips(found) == [
        ("allowed", "blocked by orders/no-deletes", 2),
        ("allowed", "rewritten by orders/cap-limit", 1),
        ("answered by o/r", "allowed", 1),
    ]
    assert (found.calls, found.decided, found.flipped) == (6, 6, 4)
    assert found.tools == {"delete_order": 2, "search": 2}
    assert found.clients == {"team-a": 4}
    assert not found.is_well


def test_what_cannot_be_decided_is_counted_by_what_is_not_known() -> None:
    """A rule by name decides all the same."""
    bare = {"arguments": "redacted", "args": {"limit": "number"}}
    found = replayed({**HIGH, **bare}, {**DELETE, **bare, "decision": "blocked"})
    assert (found.undecidable, found.decided, found.flipped) == ({"args": 1}, 1, 0)
    assert found.is_well


def test_a_replay_that_decides_nothing_is_not_well() -> None:
    """Nothing was shown then."""
    assert not replayed({**HIGH, "arguments": "none"}).is_well
    assert not replayed({"message": "request"}).is_well


def test_two_sets_are_compared_with_each_other() -> None:
    """Whatever was decided then; also by the arguments and results that come of it."""
    assert flips(replayed(DELETE, HIGH, against=POLICY.replace("delete_*", "drop_*"))) == [
        ("allowed", "blocked by orders/no-deletes", 1)
    ]
    assert flips(replayed(HIGH, against=POLICY.replace("limit: 10}", "limit: 5}"))) == [
        ("rewritten by orders/cap-limit", "rewritten by orders/cap-limit", 1)
    ]
    assert flips(replayed(DELETE, against=POLICY.replace("Not here.", "Never."))) == [
        ("blocked by orders/no-deletes", "blocked by orders/no-deletes", 1)
    ]
    assert flips(replayed(DELETE, HIGH, LOW, against=POLICY)) == []


def test_each_difference_has_examples() -> None:
    """Three of each, with the reason where that is wanted."""
    found = replayed(*[DELETE] * 5, HIGH, why=True)
    assert [len(examples) for examples in found.examples.values()] == [3, 1]
    ((_, (example,)),) = [item for item in found.examples.items() if item[0].after.rule == "cap-limit"]
    assert (example.call_id, example.tool, example.client, example.args) == (
        "call_1",
        "search",
        "team-a",
        '{"limit":99}',
    )
    assert [line.text.strip() for line in example.why] == [
        "changed   orders/cap-limit (rewrite)  limit: 99 → 10",
        "tools: search fits search",
        "when: has(args.limit) && args.limit > 10 is true: args.limit is 99",
    ]
    assert all(example.why == () for examples in replayed(DELETE).examples.values() for example in examples)


def test_an_example_shows_no_arguments_that_were_not_recorded() -> None:
    """A redacted record has none."""
    found = replayed({**DELETE, "arguments": "redacted"})
    ((example,),) = found.examples.values()
    assert example.args == ""


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may make up as many as it likes."""
    monkeypatch.setattr(replaying, "_MOST_NAMES", 2)
    found = replayed(*[record(f"delete_{n}") for n in (1, 2, 3, 4, 1)])
    assert found.tools == {"delete_1": 2, "delete_2": 1, "(other)": 2}


def test_machines_are_told_everything() -> None:
    """In one object."""
    found = replay_object(replayed(DELETE, {**HIGH, "arguments": "none"}, why=True))
    assert found == {
        "calls": 2,
        "decided": 1,
        "flipped": 1,
        "unreadable": 0,
        "undecidable": {"args": 1},
        "flips": [
            {
                "before": {"decision": "allowed", "policy": "", "rule": ""},
                "after": {"decision": "blocked", "policy": "orders", "rule": "no-deletes"},
                "count": 1,
                "examples": [
                    {
                        "time": 1790856000.0,
                        "callId": "call_1",
                        "tool": "delete_order",
                        "client": "team-a",
                        "args": '{"id":7}',
                        "why": [
                            "ended     orders/no-deletes (block)  blocked: Not here.",
                            "tools: delete_order fits delete_*",
                        ],
                    }
                ],
            }
        ],
        "tools": {"delete_order": 1},
        "clients": {"team-a": 1},
    }


def test_memory_does_not_grow_with_the_records() -> None:
    """It takes a small part of what the file takes, and examples are few."""
    write(policy=POLICY)
    policies = load_set(["policy.yaml"], {})
    path = write_audit("many.jsonl", *[record("search", {"limit": 99, "text": "x" * 4000})] * 2000)
    tracemalloc.start()
    try:
        assert replay([path], policies, None).flipped == 2000
        assert tracemalloc.get_traced_memory()[1] < Path(path).stat().st_size / 4
    finally:
        tracemalloc.stop()
