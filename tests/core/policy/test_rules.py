from __future__ import annotations

import pytest

from proxy.core.policy.expressions import Expression
from proxy.core.policy.matching import CallMatch, RequestMatch
from proxy.core.policy.model import MatchModel
from proxy.core.policy.rules import Allow, Block, Defer, Guard, Origin, Rule, needs_of
from proxy.core.policy.verdicts import Needs, RuleName, Then

FREE = Guard((RequestMatch(),), (CallMatch(exact=False),))
ASKING = Guard((RequestMatch(),), (CallMatch(exact=False),), Expression.compile("args.a == 1"))


def rule(guard: Guard, action: Allow | Block | Defer, *, shadow: bool = False) -> Rule:
    return Rule(Origin(RuleName("p", "r"), shadow, False), guard, action)


def test_which_rules_always_end() -> None:
    """Those without conditions whose action ends the chain, when they are enforced."""
    assert rule(FREE, Allow()).always_ends
    assert not rule(ASKING, Allow()).always_ends
    assert not rule(FREE, Defer()).always_ends
    assert not rule(FREE, Block("", Then.STOP), shadow=True).always_ends


def test_conditions_make_a_guard_need_more() -> None:
    """Arguments by path and expressions are conditions; names are none."""
    conditions = CallMatch.compile(MatchModel.model_validate({"args": {"a": {"equals": 1}}}), exact=False)
    narrowed = Guard((), (CallMatch(exact=False), conditions))
    assert [guard.has_conditions for guard in (FREE, ASKING, narrowed)] == [False, True, True]
    assert [guard.needs for guard in (FREE, ASKING, narrowed)] == [Needs.NAME, Needs.ARGUMENTS, Needs.ARGUMENTS]


@pytest.mark.parametrize(
    ("source", "needs"), [("true", Needs.NAME), ("rawArgs == ''", Needs.ARGUMENTS), ("batch.size > 1", Needs.BATCH)]
)
def test_what_an_expression_needs(source: str, needs: Needs) -> None:
    """The most of what its variables need."""
    assert needs_of(Expression.compile(source)) is needs
    assert needs_of(None) is Needs.NAME
