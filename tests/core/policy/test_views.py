from __future__ import annotations

import pytest

from proxy.core.calls import Kind, Owner, RequestFacts
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.views import CallView
from tests.core.policy.engine import subject


def view(text: str) -> CallView:
    return CallView(RequestFacts(), subject("t", text))


def test_looking_is_remembered_when_an_enforced_rule_looks() -> None:
    """A rule in shadow mode looks and leaves no trace."""
    seen = view('{"a":1,"a":2}')
    seen.enforced = False
    assert seen.arguments() == {"a": 2}
    assert (seen.looked, seen.new_text) == (False, None)
    seen.enforced = True
    seen.arguments()
    assert (seen.looked, seen.new_text) == (True, '{"a":2}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "no JSON object"),
        ("{} x", "text behind"),
        ('"{} x"', "text behind"),
        ('{"a":1,"a":2}', ""),
    ],
)
def test_what_does_not_parse_is_said(text: str, said: str) -> None:
    """A key that comes twice parses."""
    found = view(text).misread()
    assert said in found
    assert bool(found) is bool(said)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":1} x', '"{\\"a\\":1,\\"a\\":2}"'])
def test_what_the_upstream_runs_has_one_reading_or_none(text: str) -> None:
    """Its owner cannot be given the text that rules saw."""
    seen = CallView(RequestFacts(), subject("t", text, owner=Owner.UPSTREAM, kind=Kind.APPROVAL))
    assert "two ways" in seen.misread()
    with pytest.raises(EvaluationError, match="two ways"):
        seen.arguments()
    assert seen.new_text is None
    assert CallView(RequestFacts(), subject("t", '{"a":1}', owner=Owner.UPSTREAM)).arguments() == {"a": 1}


def test_the_models_own_arguments_stay_known() -> None:
    """They are what a rewrite is compared with."""
    changed = view('{"a":1}')
    assert not changed.would_change({"a": 1.0})
    changed.change({"a": 2}, changed.written({"a": 2}))
    assert changed.would_change({"a": 1})
    assert (changed.original(), changed.arguments(), changed.new_text) == ({"a": 1}, {"a": 2}, '{"a":2}')
    with pytest.raises(EvaluationError):
        view("[1]").original()


def test_what_cannot_be_written_is_an_error() -> None:
    """A value that is no JSON does not get out."""
    with pytest.raises(EvaluationError, match="cannot be written"):
        view("{}").written({"a": object()})  # type: ignore[dict-item]  # what no rewrite should give
