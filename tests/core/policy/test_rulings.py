"""What a service is told, what its results mean, and what a model is told of a person's word."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.calls import Api, Batch, Owner, RequestFacts
from proxy.core.policy.consults import CallAsSeen, Course, PersonSaid, Ruling, Word
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.rulings import NOT_ALLOWED, denial, pending, read_ruling, service_input

SEEN = CallAsSeen(
    call_id="call_1",
    tool="pay",
    namespace="",
    arguments={"amount": 7},
    raw='{"amount": 7}',
    owner=Owner.CLIENT,
    declared=True,
    batch=Batch(2, 1, ("search", "pay")),
    facts=RequestFacts(
        model="gpt", api=Api.RESPONSES, user="ann", metadata={"run": "1"}, client="team", headers={"x-secret": "s"}
    ),
)


def test_a_service_is_told_what_the_contract_lists() -> None:
    """These keys, and no header of the client."""
    assert service_input(SEEN) == {
        "tool": "pay",
        "args": {"amount": 7},
        "rawArgs": '{"amount": 7}',
        "callId": "call_1",
        "model": "gpt",
        "api": "responses",
        "owner": "client",
        "declared": True,
        "client": "team",
        "user": "ann",
        "metadata": {"run": "1"},
        "batch": {"size": 2, "index": 1, "tools": ["search", "pay"]},
    }


@pytest.mark.parametrize(
    ("result", "ruling"),
    [
        (True, Ruling(Course.ALLOW)),
        (False, Ruling(Course.BLOCK, NOT_ALLOWED)),
        ({"action": "allow", "message": 7, "id": "x"}, Ruling(Course.ALLOW)),
        ({"action": "next"}, Ruling(Course.NEXT)),
        ({"action": "block"}, Ruling(Course.BLOCK, NOT_ALLOWED)),
        ({"action": "block", "message": None}, Ruling(Course.BLOCK, NOT_ALLOWED)),
        ({"action": "block", "message": "Too much."}, Ruling(Course.BLOCK, "Too much.")),
        ({"action": "answer", "content": ""}, Ruling(Course.ANSWER)),
        ({"action": "answer", "content": "42"}, Ruling(Course.ANSWER, content="42")),
        ({"action": "rewrite", "args": {}}, Ruling(Course.REWRITE, arguments={})),
        ({"action": "rewrite", "args": {"a": [1]}}, Ruling(Course.REWRITE, arguments={"a": [1]})),
    ],
)
def test_what_a_result_means(result: Any, ruling: Ruling) -> None:
    """A bool allows or blocks; an object says what is to be done."""
    assert read_ruling(result) == ruling


@pytest.mark.parametrize(
    "result",
    [
        *(None, "allow", 1, [], {}, {"action": None}, {"action": "Allow"}, {"action": "deny"}, {"action": ["allow"]}),
        *({"action": "block", "message": 1}, {"action": "answer"}, {"action": "answer", "content": {"a": 1}}),
        *({"action": "rewrite"}, {"action": "rewrite", "args": "{}"}, {"action": "rewrite", "args": None}),
        {"allow": True},
    ],
)
def test_what_does_not_fit(result: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(EvaluationError):
        read_ruling(result)


def test_what_a_model_is_told() -> None:
    """A note and a rule's message are passed on; the id is named."""
    assert denial(PersonSaid(Word.DENIED, "apr_1", "Not on a Friday.")) == "the call was denied: Not on a Friday."
    assert denial(PersonSaid(Word.DENIED, "apr_1")) == "the call was denied"
    told = "approval is pending under the id apr_1; once it is given, the same call goes ahead"
    assert pending(PersonSaid(Word.PENDING, "apr_1"), "") == told
    assert pending(PersonSaid(Word.PENDING, "apr_1"), "Ask first.") == f"Ask first. ({told})"
