"""Results that a client sent, on their way to the model: what rules make of them, on either wire.

Where a result has several texts (parts, a program's outputs), a rule sees them as one, line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from proxy.core import jsontext
from proxy.core.calls import ToolCall
from proxy.core.exchange.judging import Judge
from proxy.core.jsontext import Path
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import ResultOutcome, ResultVerdict, Subject


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """A result that the client sent, as rules left it. `call` is what it answers, as far as that is known; `message` is
    its new message or item where a rule changed it."""

    index: int
    call: ToolCall
    verdict: ResultVerdict
    message: bytes | None


def judge_texts(
    judge: Judge, call: ToolCall, texts: Mapping[Path, str], *, whole: Callable[[str], dict[Path, bytes | None]]
) -> Generator[Consult, Reply, tuple[ResultVerdict, dict[Path, bytes | None]]]:
    """What rules make of a result with these texts, and the changes to its message; `whole` gives the changes that put
    one text in the place of them all. Yields what has to be asked of the world and is sent the answer."""
    text = "\n".join(texts.values())
    if not judge.chain.has_result_rules:
        return ResultVerdict(text, ResultOutcome.OK), {}
    subject = Subject(call, judge.owner(call.name, namespace=call.namespace, kind=call.kind))
    verdict = yield from judge.chain.judge_result(subject, result=text, is_error=False)
    if verdict.text == text:
        return verdict, {}
    if len(texts) < 2 or verdict.outcome is not ResultOutcome.REDACTED:
        return verdict, whole(verdict.text)
    parts: dict[Path, str] = {}
    for place, part in texts.items():
        parts[place] = (yield from judge.chain.judge_result(subject, result=part, is_error=False)).text
    if "\n".join(parts.values()) != verdict.text:
        return verdict, whole(verdict.text)  # what has to go lies over several parts
    return verdict, {place: jsontext.render(new) for place, new in parts.items()}
