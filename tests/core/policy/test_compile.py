from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Owner, RequestFacts
from proxy.core.policy.compile import Handled, PolicyProblems, compile_policies
from proxy.core.policy.decide import DefaultAction, Needs, RuleName
from proxy.core.policy.model import read_document
from tests.core.policy.engine import NO, documents, policies, rule, source


def test_names_are_unique() -> None:
    """Two rules of one policy, or two policies of a set, do not share a name."""
    twice = [read_document(source([rule(block=NO), rule(allow={})], "same")), read_document(source([], "same"))]
    with pytest.raises(PolicyProblems) as raised:
        compile_policies(twice, default_action=DefaultAction.ALLOW)
    assert [(p.document, p.path) for p in raised.value.problems] == [
        (0, ("spec", "rules", 1, "name")),
        (1, ("metadata", "name")),
    ]


def test_a_set_knows_its_names() -> None:
    """Policies and rules are listed in their order."""
    found = policies([rule(name="b", block=NO), rule(name="a", result={"block": {}})], [rule(name="h", hide={})])
    assert found.policies == ("p0", "p1")
    assert found.rules == (RuleName("p0", "b"), RuleName("p0", "a"), RuleName("p1", "h"))
    assert (len(found), found.rules_count, bool(found)) == (2, 3, True)


def test_a_digest_tells_sets_apart() -> None:
    """The same documents have the same digest, others another."""
    first, again = (compile_policies(documents([rule(block=NO)]), default_action=DefaultAction.ALLOW) for _ in "12")
    other = policies([rule(block={"message": "other"})])
    blocking = policies([rule(block=NO)], default=DefaultAction.BLOCK)
    assert first.digest == again.digest
    assert len({first.digest, other.digest, blocking.digest}) == 3


@pytest.mark.parametrize(
    ("found", "empty"),
    [
        (policies(), True),
        (policies([]), True),
        (policies(default=DefaultAction.BLOCK), False),
        (policies([rule(allow={})]), False),
        (policies({"batch": {"maxParallel": 1}}), False),
        (policies({"batch": {"maxParallel": 1}, "mode": "shadow"}), True),
    ],
)
def test_a_set_is_empty_when_it_can_touch_nothing(found: Any, empty: bool) -> None:
    """A default that blocks and a limit on parallel calls govern without a rule."""
    assert found.is_empty is empty


@pytest.mark.parametrize(
    ("handled", "holds", "results"),
    [(Handled(), True, True), (Handled(results=False), True, False), (Handled(calls=False), False, True)],
)
def test_a_python_object_has_a_say_in_what_it_handles(handled: Handled, holds: bool, results: bool) -> None:
    """One that looks at results alone holds no call, and the other way round; the rule counts once."""
    found = compile_policies(
        documents([rule(middleware="a.b:c")]), default_action=DefaultAction.ALLOW, handles=lambda target: handled
    )
    chain = found.for_request(RequestFacts())
    assert (chain.could_hold, chain.has_result_rules) == (holds, results)
    assert chain.needs("t", Owner.CLIENT) is (Needs.ARGUMENTS if holds else Needs.NAME)
    assert (found.middleware, found.rules) == (frozenset({"a.b:c"}), (RuleName("p0", "r"),))
