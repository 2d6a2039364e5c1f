from __future__ import annotations

import pytest

from proxy.core.calls import Api, Owner, RequestFacts
from proxy.core.policy.failures import EvaluationError, UnjudgeableError
from proxy.core.policy.matching import CallMatch, RequestMatch
from proxy.core.policy.model import MatchModel
from proxy.core.policy.names import NamedTool


def test_an_empty_match_fits_everything() -> None:
    """What is not given does not narrow."""
    empty = MatchModel()
    assert RequestMatch.compile(empty) == RequestMatch()
    for exact in (False, True):
        match = CallMatch.compile(empty, exact=exact)
        assert match.fits_call(NamedTool.of(""), Owner.UPSTREAM, declared=False)
        assert match.fits_arguments({})


def test_all_given_keys_must_fit_and_any_of_a_list() -> None:
    """Header names are folded, their values are not."""
    match = RequestMatch.compile(
        MatchModel.model_validate({"models": ["a", "b"], "apis": ["responses"], "headers": {"X-A": "V*"}})
    )
    fitting = RequestFacts(model="b", api=Api.RESPONSES, headers={"x-a": "Value"})
    assert match.fits(fitting)
    assert not match.fits(RequestFacts(model="b", api=Api.RESPONSES, headers={"x-a": "value"}))
    assert not match.fits(RequestFacts(model="c", api=Api.RESPONSES, headers={"x-a": "Value"}))


def test_values_that_cannot_be_judged() -> None:
    """They raise for rules that can hold, and do not fit for those that let calls go ahead."""
    model = MatchModel.model_validate({"args": {"n": {"gt": 1}}})
    assert not CallMatch.compile(model, exact=True).fits_arguments({"n": "2"})
    with pytest.raises(UnjudgeableError) as raised:
        CallMatch.compile(model, exact=False).fits_arguments({"n": "2"})
    assert isinstance(raised.value, EvaluationError)
