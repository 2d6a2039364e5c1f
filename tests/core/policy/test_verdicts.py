from __future__ import annotations

from proxy.core.policy.verdicts import Decision, Verdict


def test_what_is_held() -> None:
    """Every decision either goes ahead or is held."""
    held = {decision for decision in Decision if Verdict(decision).held}
    assert held == {Decision.BLOCKED, Decision.ANSWERED, Decision.DENIED, Decision.PENDING}
