from __future__ import annotations

from typing import Any

from proxy.core.calls import RequestFacts
from proxy.core.policy.explaining import (
    Explanation,
    ResultExplanation,
    explain,
    explain_result,
    explanation_lines,
    explanation_object,
    result_explanation_lines,
    result_explanation_object,
)
from proxy.core.policy.scripted import settle
from proxy.core.policy.trail import Outcome
from tests.core.policy.engine import NO, judge, policies, rule, subject

RULES = policies(
    [
        {"name": "models", "match": {"models": ["o*"]}, "block": NO},
        rule("delete_*", name="no-deletes", block={"message": "Not here.", "then": "stop"}),
        rule("search", name="cap", when="has(args.n) && args.n > 10", rewrite={"clamp": {"n": {"max": 10}}}),
        rule("search", name="later", defer={}),
    ],
    {"mode": "shadow", "rules": [rule(name="all", block=NO)]},
    [rule("search", name="cards", result={"redact": [{"pattern": "[0-9]{4}", "with": "#"}]})],
)
FACTS = RequestFacts(model="gpt")


def explained(name: str, arguments: Any = "{}") -> Explanation:
    return settle(explain(RULES, FACTS, subject(name, arguments)), lambda _: True)


def of_result(name: str, text: str) -> ResultExplanation:
    return settle(explain_result(RULES, FACTS, subject(name), result=text, is_error=False), lambda _: True)


def lines(explanation: Explanation, *, all_rules: bool = True) -> list[str]:
    return [line.text for line in explanation_lines(explanation, all_rules=all_rules)]


def test_the_verdict_is_the_one_that_is_always_found() -> None:
    """Explaining decides nothing."""
    for name, arguments in (("search", {"n": 99}), ("delete_x", {}), ("other", {})):
        assert explained(name, arguments).verdict == judge(RULES, name, arguments, facts=FACTS)


def test_all_rules_are_told_of_in_their_order() -> None:
    """What did not fit, what was done and why, and what comes of it."""
    assert lines(explained("search", {"n": 99})) == [
        "  skipped   p0/models (block)       models: gpt does not fit o*",
        "  skipped   p0/no-deletes (block)   tools: search does not fit delete_*",
        "  changed   p0/cap (rewrite)        n: 99 → 10",
        "              tools: search fits search",
        "              when: has(args.n) && args.n > 10 is true: args.n is 99",
        "  deferred  p0/later (defer)        surfaced when the others of its batch have their results",
        "              tools: search fits search",
        "  ended     p1/all (block, shadow)  blocked: no",
        "decision: rewritten by p0/cap",
        "surfaced when the others of its batch have their results",
        'arguments: {"n":10}',
        "in shadow mode: blocked by p1/all",
    ]


def test_behind_the_end_nothing_was_reached() -> None:
    """What the request left out before is told as that."""
    found = explained("delete_x")
    assert [step.outcome for step in found.steps] == [
        Outcome.SKIPPED,
        Outcome.ENDED,
        Outcome.UNREACHED,
        Outcome.UNREACHED,
        Outcome.UNREACHED,
    ]
    assert lines(found)[-3:] == [
        "decision: blocked by p0/no-deletes",
        "the model is told: Tool call blocked by policy p0/no-deletes: Not here.",
        "the turn ends there",
    ]


def test_of_many_rules_those_that_came_close_can_be_told_alone() -> None:
    """Rules for other tools, and those behind the end, are left out."""
    assert [line.split()[0] for line in lines(explained("delete_x"), all_rules=False)][:2] == ["ended", "tools:"]
    assert lines(explained("search", {"n": 1}), all_rules=False)[0] == (
        "  skipped   p0/cap (rewrite)        when: has(args.n) && args.n > 10 is false: args.n is 1"
    )


def test_calls_in_a_wrapper_are_told_one_by_one() -> None:
    """The verdict is on the whole."""
    uses = {"tool_uses": [{"recipient_name": "delete_x", "parameters": {}}]}
    found = explained("multi_tool_use.parallel", uses)
    assert lines(found)[0] == "in it: delete_x"
    assert [step.outcome for step in found.all_steps][1] is Outcome.ENDED
    assert explanation_object(found)["inner"] != []


def test_a_result_is_told_with_its_text() -> None:
    """Only result rules have a say in it."""
    found = of_result("search", "card 1234\nx")
    assert [line.text for line in result_explanation_lines(found)] == [
        "  changed   p2/cards (result.redact)  redacted",
        "              tools: search fits search",
        "result: redacted",
        "  card #",
        "  x",
    ]
    assert result_explanation_object(found)["result"] == "card #\nx"


def test_machines_are_told_the_same() -> None:
    """Every comparison with what was wanted and found."""
    found = explanation_object(explained("search", {"n": 99}))
    assert (found["decision"], found["policy"], found["rule"], found["args"]) == ("rewritten", "p0", "cap", '{"n":10}')
    assert found["shadows"] == [{"policy": "p1", "rule": "all", "decision": "blocked"}]
    steps: Any = found["steps"]
    assert steps[2] == {
        "policy": "p0",
        "rule": "cap",
        "action": "rewrite",
        "shadow": False,
        "outcome": "changed",
        "said": "n: 99 → 10",
        "compared": [
            {"about": "tools", "wanted": "search", "found": "search", "holds": True},
            {"about": "when", "wanted": "has(args.n) && args.n > 10", "found": "args.n is 99", "holds": True},
        ],
    }


def test_what_could_not_be_told_is_said() -> None:
    """In place of what was found."""
    rules = policies([{"name": "r", "match": {"args": {"n": {"gt": 1}}}, "block": {"message": "no", "then": "fail"}}])
    failed = settle(explain(rules, FACTS, subject("t", {"n": "x"})), lambda _: True)
    assert [line.text for line in explanation_lines(failed)][:2] == [
        "  failed    p0/r (block)  args.n (gt): the value is no number; so the call is blocked",
        "              args: args.n (gt): the value is no number",
    ]
    ended = settle(explain(rules, FACTS, subject("t", {"n": 2})), lambda _: True)
    assert [line.text for line in explanation_lines(ended)][-1] == "the client gets 403"
