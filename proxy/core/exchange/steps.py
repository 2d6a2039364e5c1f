"""What a stream's filter asks of the shell, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.core.arguments import MAX_NESTING
from proxy.core.exchange.judging import Conclusion, Judged
from proxy.core.policy.consults import Consult
from proxy.errors import UpstreamError

Key = tuple[int, int]
"""A call of a stream: the index of its choice, and its place in the model's order."""


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """A judgement asks something of the world; `answer(key, …)` tells it."""

    key: Key
    consult: Consult


@dataclass(frozen=True, slots=True)
class LookUp:
    """Is this id in the ledger already? `known(key, …)` tells."""

    key: Key
    call_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A choice has ended and every call of it is decided. `message` is the assistant's message without its calls,
    `known` the ids of its calls that the ledger has already, `held_for` the seconds that each call was held."""

    index: int
    conclusion: Conclusion
    batch: tuple[Judged, ...]
    message: dict[str, Any]
    known: frozenset[str]
    held_for: tuple[float, ...]
    finish: str | None


@dataclass(frozen=True, slots=True)
class Broken:
    """The upstream's answer cannot be gone on with; what came before it has to be sent all the same."""

    error: UpstreamError


Step = Send | Asked | LookUp | Ended | Broken


@dataclass(frozen=True, slots=True)
class StreamLimits:
    event_bytes: int
    batch_calls: int
    held_bytes: int
    nesting: int = MAX_NESTING


def too_deep(what: str, most: int) -> UpstreamError:
    return UpstreamError(f"{what} nests deeper than the limit of {most}.", kind="protocol", code="limit_exceeded")


def too_long(what: str, most: int) -> UpstreamError:
    return UpstreamError(f"{what} is longer than the limit of {most}.", kind="protocol", code="limit_exceeded")
