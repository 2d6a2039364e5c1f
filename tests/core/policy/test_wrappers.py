from __future__ import annotations

from proxy.core.calls import RequestFacts
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.policy.views import CallView
from proxy.core.policy.wrappers import calls_in_wrapper, together
from tests.core.policy.engine import subject


def calls(arguments: object) -> list[tuple[str, str, bool]]:
    view = CallView(RequestFacts(), subject("multi_tool_use.parallel", arguments))
    return [(call.name, call.text, call.unwrapped) for call in calls_in_wrapper(view)]


def test_the_calls_of_a_wrapper() -> None:
    """Parameters are an object, or its text, or left out."""
    uses = [
        {"recipient_name": "a", "parameters": {"x": 1}},
        {"recipient_name": "b", "parameters": '{"x": 1}'},
        {"recipient_name": "c"},
        {"recipient_name": 1, "parameters": [1]},
    ]
    assert calls({"tool_uses": uses}) == [
        ("a", '{"x":1}', True),
        ("b", '{"x": 1}', False),
        ("c", "{}", True),
        ("", "[1]", True),
    ]


def test_what_cannot_be_read_has_no_name() -> None:
    """There is always one call at least."""
    unreadable: list[object] = ["[]", "{", {"tool_uses": []}]
    assert [name for given in unreadable for name, _, _ in calls(given)] == ["", "", ""]


def test_verdicts_are_put_together() -> None:
    """A held one stands for all; otherwise the first that a rule gave is named."""
    free, named = Verdict(Decision.ALLOWED), Verdict(Decision.ALLOWED, "p", "r", deferred=True)
    held = Verdict(Decision.BLOCKED, "p", "b", result="no")
    assert together([free, named], "text") == Verdict(Decision.ALLOWED, "p", "r", text="text", deferred=True)
    assert together([free, held], "text") == held
