from __future__ import annotations

from proxy.core.policy.effects import End
from proxy.core.policy.verdicts import Decision, Then


def test_an_end_goes_on_with_the_turn_unless_it_says_otherwise() -> None:
    """What a rule does not say is the least."""
    assert End(Decision.ALLOWED) == End(Decision.ALLOWED, None, "", Then.CONTINUE, failed=False)
