"""A stream and an answer in one piece with the same calls end the same: there is one judge, and one outcome."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings

from proxy.core.calls import Batch
from proxy.core.exchange.judging import End, Judge, Judged, conclude
from proxy.core.exchange.turns import ids_to_give
from proxy.core.protocol.completion import CUT_SHORT, edited_call, read_answer, read_choices, with_calls, with_text
from tests.core.exchange.streams import HEAD, sse
from tests.core.exchange.test_chat_stream import NEXT, Made, batches, said_by
from tests.strictreader import read_strictly
from tests.transcript import World, relay


def in_one_piece(made: Made) -> bytes:
    """The same answer without a stream."""
    entries: dict[str, dict[str, Any]] = {}
    for _, mark, call_id in made.batch:
        entries[mark] = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
    texts = "".join(filter(None, map(said_by, made.events)))
    judged = relay(World(made.world.policies), sse(*made.events), NEXT).ended[0].batch
    for (name, mark, _), one in zip(made.batch, judged, strict=True):
        entries[mark]["function"] = {"name": name, "arguments": one.call.text}
    message = {"role": "assistant", "content": texts or None, "tool_calls": list(entries.values())}
    choice = {"index": 0, "message": message, "finish_reason": made.events[-1]["choices"][0]["finish_reason"]}
    return json.dumps({**HEAD, "object": "chat.completion", "choices": [choice]}).encode()


def settled(world: World, body: bytes) -> tuple[End, dict[str, Any]]:
    """How an answer in one piece ends, and its choice as the client gets it."""
    judge = Judge(world.policies.for_request(world.facts), world.facts, world.tools)
    value = read_answer(body)
    assert value is not None
    (choice,) = read_choices(body, value)
    names = tuple(placed.call.name for placed in choice.placed)
    batch: list[Judged] = []
    for number, placed in enumerate(choice.placed):
        try:
            next(judge.judge(placed.call, placed.raw.decode(), Batch(len(names), number, names)))
        except StopIteration as stop:
            batch.append(stop.value)
    found = conclude(batch, cut=choice.finish in CUT_SHORT, closing=False, denied=0, stop_after=5)
    if found.end is End.STOP:
        shown = "\n\n".join(part for part in (choice.text, found.message) if part)
        raw = with_text(with_calls(choice, [None] * len(batch)), shown, finish="stop")
        return found.end, json.loads(raw)
    fresh = (f"call_fresh{number:018}" for number in range(1, 9))
    ids: list[str | None] = [None] * len(batch)
    if found.end is End.SPLIT:
        ids = ids_to_give(batch, found, taken=(), fresh_id=lambda: next(fresh))
    kept = [
        edited_call(p.raw, p.call, call_id=given, text=j.verdict.text) if stage == 0 else None
        for p, j, stage, given in zip(choice.placed, batch, found.stages, ids, strict=True)
    ]
    return found.end, json.loads(with_calls(choice, kept))


@settings(max_examples=100, deadline=None, report_multiple_bugs=False)
@given(batches())
def test_a_folded_stream_is_the_answer_in_one_piece(made: Made) -> None:
    """The same calls under the same ids with the same arguments, the same text, the same finish reason."""
    end, whole = settled(made.world, in_one_piece(made))
    got = relay(made.world, sse(*made.events), NEXT)
    assert got.ended[0].conclusion.end is end
    if end in (End.FAIL, End.CONTINUE):
        return
    if not (got.ended[0].batch and got.out != sse(*made.events)):
        return  # what did not have to change is as odd as it came
    folded = read_strictly(got.out, repeats=True).choices[0] if is_regular(got.out) else None
    if folded is None:
        return
    calls = [[c["id"], c["type"], *c["function"].values()] for c in whole["message"].get("tool_calls") or []]
    assert (folded.calls, folded.content, folded.finish) == (
        calls,
        whole["message"]["content"] or "",
        whole["finish_reason"],
    )


def is_regular(out: bytes) -> bool:
    """Whether a strict reader can fold it: not where the upstream's odd numbers stayed, since no call had to change."""
    try:
        read_strictly(out, repeats=True)
    except (AssertionError, KeyError):
        return False
    return True


def test_the_tokens_of_a_call_that_goes_go_with_it() -> None:
    """Some servers list them beside the message; those of calls that stay are left alone."""
    call = {"id": "a", "type": "function", "function": {"name": "delete_file", "arguments": "{}"}}
    choice = {"index": 0, "message": {"tool_calls": [call]}, "logprobs": {"content": [{"token": "delete_file"}]}}
    (read,) = read_choices(json.dumps({"choices": [choice]}).encode(), {"choices": [choice]})
    assert json.loads(with_calls(read, [None]))["logprobs"] is None
    assert json.loads(with_calls(read, [read.placed[0].raw]))["logprobs"] == choice["logprobs"]
