from __future__ import annotations

import json
from pathlib import Path

from tests.authoring.files import POLICY, record, write, write_audit
from tests.commands.conftest import Run

DELETE, HIGH = record("delete_order", {"id": 7}), record("search", {"limit": 99}, client="")


def test_differences_are_shown_with_examples(run: Run) -> None:
    """By decision and rule, tool and client; and the exit status says that there are some."""
    write(policy=POLICY)
    write_audit("a.jsonl", DELETE, DELETE, HIGH, {**HIGH, "arguments": "none"}, record("x"))
    write_audit("b.jsonl", DELETE)
    status, told, _ = run("replay", "a.jsonl", "b.jsonl", "--policies", "policy.yaml")
    example = '            2026-10-01T12:00:00Z call_1 team-a delete_order {"id":7}'
    assert (status, told.splitlines()) == (
        1,
        [
            "         3  allowed → blocked by orders/no-deletes",
            example,
            example,
            example,
            "         1  allowed → rewritten by orders/cap-limit",
            '            2026-10-01T12:00:00Z call_1 search {"limit":99}',
            "by tool: delete_order 3, search 1",
            "by client: team-a 3, (none) 1",
            "         1  undecidable: a rule asks for what was not recorded (args)",
            "6 calls: 4 decided otherwise, 1 as before, 1 undecidable",
        ],
    )


def test_examples_are_explained_where_that_is_wanted(run: Run) -> None:
    """In the words of explain."""
    write(policy=POLICY)
    told = run("replay", write_audit("a.jsonl", HIGH), "--policies", "policy.yaml", "--why")[1]
    assert told.splitlines()[2:4] == [
        "                changed   orders/cap-limit (rewrite)  limit: 99 → 10",
        "                            tools: search fits search",
    ]


def test_the_exit_status_is_for_continuous_integration(run: Run) -> None:
    """Nothing decided is no success, nor is a file that is not there."""
    write(policy=POLICY)
    write_audit("well.jsonl", record("x"), {**HIGH, "decision": "rewritten"})
    assert run("replay", "well.jsonl", "--policies", "policy.yaml") == (
        0,
        "2 calls: 0 decided otherwise, 2 as before, 0 undecidable\n",
        "",
    )
    write_audit("empty.jsonl")
    assert run("replay", "empty.jsonl", "--policies", "policy.yaml")[0] == 1
    status, told, problems = run("replay", "none.jsonl", "--policies", "policy.yaml")
    assert (status, told, problems) == (2, "", "none.jsonl: the file cannot be read: No such file or directory\n")


def test_two_sets_are_compared(run: Run) -> None:
    """The second is what there was before."""
    write(policy=POLICY, other=POLICY.replace("limit: 10}", "limit: 20}"))
    write_audit("a.jsonl", DELETE, HIGH)
    status, told, _ = run("replay", "a.jsonl", "--policies", "policy.yaml", "--against", "other.yaml")
    assert (status, told.splitlines()[0]) == (
        1,
        "         1  rewritten by orders/cap-limit → rewritten by orders/cap-limit, with another outcome",
    )


def test_records_that_cannot_be_read_are_counted(run: Run) -> None:
    """And what machines get says so too."""
    write(policy=POLICY)
    path = write_audit("a.jsonl", record("x"), {"record": "tool_call"})
    assert "         1  records that cannot be read" in run("replay", path, "--policies", "policy.yaml")[1]
    found = json.loads(run("replay", path, "--policies", "policy.yaml", "--output", "json")[1])
    assert (found["calls"], found["unreadable"], found["flips"]) == (1, 1, [])


def test_a_broken_record_does_not_take_the_others_with_it(run: Run) -> None:
    """Whatever stands where text belongs."""
    write(policy=POLICY)
    path = write_audit("a.jsonl", {**DELETE, "decision": []}, {**DELETE, "policy": None, "rule": []}, DELETE)
    status, told, problems = run("replay", path, "--policies", "policy.yaml")
    assert (status, problems) == (1, "")
    assert "         2  records that cannot be read" in told
    assert "1 call: 1 decided otherwise" in told


def test_a_file_that_holds_no_lines_is_no_audit_without_calls(run: Run) -> None:
    """Nobody takes it for one."""
    write(policy=POLICY)
    Path("a.jsonl").write_text(json.dumps(DELETE), "utf-16")
    status, told, problems = run("replay", "a.jsonl", "--policies", "policy.yaml")
    assert (status, told) == (2, "")
    assert problems == "a.jsonl: the file cannot be read: it is in UTF-16; expected lines of JSON in UTF-8\n"
