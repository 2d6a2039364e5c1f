from __future__ import annotations

from typing import Any

import pytest

from proxy.core.policy.compile import PolicyProblems, compile_policies
from proxy.core.policy.decide import DefaultAction, RuleName
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
