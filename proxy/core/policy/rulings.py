"""Decisions made elsewhere: what Open Policy Agent's data API is told and what its results mean, and what a person's
word is to a model. How they come here is not known.
"""

from __future__ import annotations

from proxy.core.calls import Batch
from proxy.core.jsontext import Json, Object
from proxy.core.policy.consults import CallAsSeen, Course, PersonSaid, Ruling
from proxy.core.policy.failures import EvaluationError

NOT_ALLOWED = "This call is not allowed."
"""Why a call is blocked where whoever decided did not say."""


def service_input(call: CallAsSeen) -> Object:
    """What a service is asked about."""
    facts = call.facts
    return {
        "tool": call.tool,
        "args": call.arguments,
        "rawArgs": call.raw,
        "callId": call.call_id,
        "model": facts.model,
        "api": str(facts.api),
        "owner": str(call.owner),
        "declared": call.declared,
        "client": facts.client,
        "user": facts.user,
        "metadata": dict(facts.metadata),
        "batch": _batch(call.batch),
    }


def _batch(batch: Batch | None) -> Json:
    return None if batch is None else {"size": batch.size, "index": batch.index, "tools": list(batch.tools)}


def read_ruling(value: Json) -> Ruling:
    """The `result` of a service: an object with an action, true or false. Raises EvaluationError."""
    if isinstance(value, bool):
        return Ruling(Course.ALLOW) if value else Ruling(Course.BLOCK, NOT_ALLOWED)
    if not isinstance(value, dict):
        raise EvaluationError("the result is neither an object nor true or false")
    match value.get("action"):
        case Course.ALLOW.value | Course.NEXT.value as action:
            return Ruling(Course(action))
        case Course.BLOCK.value:
            return Ruling(Course.BLOCK, _text(value, "message", NOT_ALLOWED))
        case Course.ANSWER.value:
            return Ruling(Course.ANSWER, content=_text(value, "content", None))
        case Course.REWRITE.value:
            arguments = value.get("args")
            if not isinstance(arguments, dict):
                raise EvaluationError("the result would rewrite the call, and has no object as args")
            return Ruling(Course.REWRITE, arguments=arguments)
        case _:
            raise EvaluationError("the result has no action that is known")


def _text(value: Object, key: str, otherwise: str | None) -> str:
    found = value.get(key)
    if found is None and otherwise is not None:
        return otherwise
    if not isinstance(found, str):
        raise EvaluationError(f"the result has no text as {key}")
    return found


# ---------------------------------------------------------------- what a model is told of a person's word

UNASKED = "too many calls wait for a person's approval already, and nobody was asked for this one"


def denial(said: PersonSaid) -> str:
    """Why a denied call is blocked."""
    return f"the call was denied: {said.note}" if said.note else "the call was denied"


def pending(said: PersonSaid, message: str) -> str:
    """What holds a call that nobody has decided yet."""
    told = f"approval is pending under the id {said.approval_id}; once it is given, the same call goes ahead"
    return f"{message} ({told})" if message else told
