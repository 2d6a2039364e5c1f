from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.policy.decide import Decision, ResultOutcome, ResultVerdict, RuleName, Shadow
from proxy.core.policy.results import cut
from tests.core.policy.engine import UNEVALUATED, judge_result, policies, rule

CARD = "paid with 4111111111111111, ok"
RULES = [
    rule("card", name="card", result={"redact": [{"pattern": "[0-9]{16}", "with": "[card]"}, {"pattern": "ok"}]}),
    rule("secret", name="secret", result={"replace": {"content": "(not shown)"}}),
    rule("long", name="long", result={"truncate": {"maxBytes": 20}}),
    rule("virus", name="virus", result={"block": {"message": "That was infected."}}),
    rule("checked", name="checked", when='result.contains("password")', result={"block": {"message": "A password."}}),
    rule("failing", name="failing", when="isError", result={"replace": {"content": "It failed."}}),
]


def withheld(message: str, where: str = "p0/r") -> str:
    return f"Tool result withheld by policy {where}: {message}"


@pytest.mark.parametrize(
    ("tool", "result", "seen", "outcome"),
    [
        ("card", CARD, "paid with [card], [redacted]", ResultOutcome.REDACTED),
        ("card", "cash", "cash", ResultOutcome.OK),
        ("Secret", "hunter2", "(not shown)", ResultOutcome.REPLACED),
        ("virus", "X5O!P", withheld("That was infected.", "p0/virus"), ResultOutcome.BLOCKED),
        ("checked", "my password", withheld("A password.", "p0/checked"), ResultOutcome.BLOCKED),
        ("checked", "nothing", "nothing", ResultOutcome.OK),
        ("failing", "fine", "fine", ResultOutcome.OK),
        ("long", "short", "short", ResultOutcome.OK),
        ("free", CARD, CARD, ResultOutcome.OK),
    ],
)
def test_the_model_sees_of_a_result(tool: str, result: str, seen: str, outcome: ResultOutcome) -> None:
    """Each action does what it says, and only to what its rule matches."""
    assert judge_result(RULES, tool, result) == ResultVerdict(seen, outcome)


def test_an_error_is_known() -> None:
    """`isError` is what the caller says."""
    assert judge_result(RULES, "failing", "x", is_error=True).text == "It failed."


def test_every_rule_acts_and_the_last_listed_first() -> None:
    """The outermost rule sees a result last, and what rules before it made of it."""
    rules = [
        rule(name="a", when="result == 'outer'", result={"redact": [{"pattern": "outer", "with": "outermost"}]}),
        rule(name="b", result={"redact": [{"pattern": "inner", "with": "outer"}]}),
        rule(name="c", result={"redact": [{"pattern": "raw", "with": "inner"}]}),
    ]
    assert judge_result(rules, "t", "raw").text == "outermost"


def test_the_outcome_is_the_one_that_took_most_away() -> None:
    """A result that was kept back and then redacted was kept back."""
    rules = [
        rule(name="a", result={"redact": [{"pattern": "p0"}]}),
        rule(name="b", result={"block": {"message": "no"}}),
    ]
    verdict = judge_result(rules, "t", "x")
    assert verdict == ResultVerdict("Tool result withheld by policy [redacted]/b: no", ResultOutcome.BLOCKED)


def test_a_rule_that_cannot_be_evaluated_keeps_the_result_back() -> None:
    """By the policy's failure policy."""
    rules = [rule(when="int(result) > 1", result={"redact": [{"pattern": "x"}]})]
    error = (RuleName("p0", "r"),)
    assert judge_result(rules, "t", "x") == ResultVerdict(withheld(UNEVALUATED), ResultOutcome.BLOCKED, error)
    ignoring = policies({"failurePolicy": "Ignore", "rules": rules})
    assert judge_result(ignoring, "t", "x") == ResultVerdict("x", ResultOutcome.OK, error)


def test_shadow_rules_are_noted_and_not_applied() -> None:
    """What they would have done is told."""
    rules = [rule(name="a", result={"block": {}}), rule(name="b", result={"replace": {"content": ""}})]
    verdict = judge_result(policies({"mode": "shadow", "rules": rules}), "t", "x")
    assert (verdict.text, verdict.outcome) == ("x", ResultOutcome.OK)
    assert verdict.shadows == (Shadow("p0", "b", Decision.REWRITTEN), Shadow("p0", "a", Decision.BLOCKED))


def test_a_result_of_unknown_name_meets_every_rule() -> None:
    """Whatever the rule's match says; its expression still counts."""
    narrow = {"tools": ["t"], "notTools": ["*"], "owner": "proxy", "args": {"a": {"equals": 1}}}
    hiding = {"name": "r", "match": narrow, "result": {"replace": {"content": "gone"}}}
    assert judge_result([hiding], "", "x").text == "gone"
    assert judge_result([hiding], "t", "x").text == "x"
    assert judge_result([{**hiding, "when": "result == 'y'"}], "", "x").text == "x"


def test_a_result_rule_may_look_at_the_call() -> None:
    """Arguments are those of the call."""
    rules = [
        {"name": "r", "match": {"args": {"a": {"equals": 1}}}, "when": "args.b == 2", "result": {"block": {}}},
    ]
    assert judge_result(rules, "t", "x", arguments={"a": 1, "b": 2}).outcome is ResultOutcome.BLOCKED
    assert judge_result(rules, "t", "x", arguments={"a": 2, "b": 2}).outcome is ResultOutcome.OK


def test_a_long_result_is_cut_with_a_note() -> None:
    """The cut is behind a whole character."""
    verdict = judge_result(RULES, "long", "caf\u00e9 " * 50)
    assert verdict == ResultVerdict(
        "caf\u00e9 caf\u00e9 caf\u00e9 ca\n(cut: 20 of 300 bytes shown)", ResultOutcome.TRUNCATED
    )
    assert cut("caf\u00e9", 4) == "caf\n(cut: 3 of 5 bytes shown)"
    assert cut("caf\u00e9", 5) == "caf\u00e9"


@given(st.text(), st.integers(0, 40))
def test_a_cut_keeps_a_beginning(text: str, most: int) -> None:
    """What stays is a beginning of the text that fits, and the same every time."""
    found = cut(text, most)
    kept = found if found == text else found.rpartition("\n")[0]
    assert text.startswith(kept)
    assert found == text or len(kept.encode("utf-8", "surrogatepass")) <= most


def test_ready_names_beside_patterns() -> None:
    """What is found by name and by pattern goes, in the order in which it is listed."""
    finding = [{"name": "email", "with": "[mail]"}, {"pattern": "mail", "with": "M"}, {"name": "creditCard"}]
    rules = [rule("t", result={"redact": finding})]
    verdict = judge_result(rules, "t", "bob@example.com paid by 4111 1111 1111 1111")
    assert verdict == ResultVerdict("[M] paid by [redacted]", ResultOutcome.REDACTED)
    assert judge_result(rules, "t", "4111 1111 1111 1112").outcome is ResultOutcome.OK
