"""What a decided batch makes necessary: ids, records, runs, and what another try of the request has come to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.batch.approval import ApprovalEvent, ApprovalState
from proxy.core.batch.record import ResumeRecord, Round, RoundResult
from proxy.core.calls import Api, CallId, Kind, Owner, ToolCall
from proxy.core.exchange.chat_rounds import chat_form
from proxy.core.exchange.judging import Conclusion, End, Judged
from proxy.core.exchange.turns import Bounds, ChoiceTurn
from proxy.core.jsontext import render, render_text
from proxy.core.policy.consults import Consult, Reply
from proxy.core.policy.verdicts import Decision, Verdict
from proxy.core.protocol.chat import read_request
from proxy.errors import StoreError, UpstreamError
from proxy.server.consulting import Consulting
from proxy.server.running import Runs
from proxy.server.settling import Resume, Settling, fresh_call_id, request_digest
from proxy.server.telling import Seen, Telling
from proxy.tools.spec import Execution, ToolRun
from tests.e2e.chat import A, B, body
from tests.server.parts import Parts, Tools
from tests.server.test_consulting import COUNT, person
from tests.stores.failing import FailingStore

ALLOWED = Verdict(Decision.ALLOWED)
BLOCKED = Verdict(Decision.BLOCKED, "p", "r", result="no", message="no")
MESSAGE = '{"role":"assistant","content":"Hm."}'


async def count(run: ToolRun) -> str:
    return f"counted {run.arguments['n']}"


def parts(**settings: Any) -> Parts:
    return Parts(tools=Tools({"count": count}, **settings))


def settling(
    parts: Parts, *, resume: Resume | None = None, used: frozenset[str] = frozenset(), stored: bool = False
) -> Settling:
    form = chat_form(read_request(render(body(tools=("search",))), 128))
    if stored:
        form = replace(form, stored=True)
    telling = Telling(parts.services, parts.exchange, Seen(), facts=parts.facts(), api=Api.CHAT)
    bounds = Bounds(most=40, most_errors=3, stop_after=5)
    return Settling(
        parts.caller(),
        Runs(parts.services),
        telling,
        form,
        bounds=bounds,
        used_ids=used,
        resume=resume or Resume("digest"),
    )


def client(call_id: str, verdict: Verdict = ALLOWED) -> Judged:
    return Judged(ToolCall(CallId(call_id), "search", "{}"), "{}", Owner.CLIENT, verdict)


def proxy(call_id: str, n: int = 1) -> Judged:
    return Judged(ToolCall(CallId(call_id), "count", f'{{"n":{n}}}'), "{}", Owner.PROXY, ALLOWED)


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def split(*stages: int | None) -> Conclusion:
    return Conclusion(End.SPLIT, stages)


async def surface(
    there: Settling, batch: list[Judged], conclusion: Conclusion, *, turn: ChoiceTurn | None = None
) -> list[str | None]:
    return await there.surface(
        turn or ChoiceTurn(),
        batch,
        conclusion=conclusion,
        known=frozenset(),
        message=MESSAGE,
        shown="Hm.",
        index=0,
    )


async def hold(there: Settling, turn: ChoiceTurn, *batch: Judged, index: int = 0, shown: str = "") -> None:
    await there.hold(
        turn,
        batch,
        conclusion=Conclusion(End.CONTINUE, (None,) * len(batch)),
        message=MESSAGE,
        head={"id": "x"},
        usage=None,
        index=index,
        shown=shown,
    )


def test_fresh_ids() -> None:
    """`call_` and 24 letters and digits, never the same twice."""
    found = {fresh_call_id() for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", one) for one in found)


def test_what_tells_a_request_that_is_sent_again() -> None:
    """Its target and its body, to the byte."""
    assert request_digest("/a", b"b") == request_digest("/a", b"b")
    assert len({request_digest("/a", b"b"), request_digest("/a", b"b "), request_digest("/ab", b"")}) == 3


async def test_a_batch_that_needs_no_entry_has_none() -> None:
    """Calls that are all surfaced, and a turn that was cut short, leave the ledger and their ids alone."""
    there = parts()
    settled = settling(there)
    assert await surface(settled, [client("1")], Conclusion(End.PASS, (0,))) == [None]
    assert await surface(settled, [client(A), client(B, BLOCKED)], Conclusion(End.CUT, (0, None))) == [None, None]
    assert await there.store.is_empty()


async def test_a_split_batch_is_kept_under_the_ids_that_the_client_gets() -> None:
    """Weak ids, and ids that this history has already, are replaced."""
    there = parts()
    settled = settling(there, used=frozenset({B}))
    batch = [client(A), client("1"), client(B), client("", BLOCKED), proxy("p")]
    ids = await surface(settled, batch, split(0, 0, 0, None, None))
    assert (ids[0], ids[3], ids[4]) == (A, None, None)
    assert all(given and re.fullmatch(r"call_\w{24}", given) for given in ids[1:3])
    assert B not in ids
    known = await there.ledger().know([given for given in ids if given], [])
    (record,) = known.batches.values()
    assert [call.given_id for call in record.calls] == [given or "" for given in ids]
    assert [call.result for call in record.calls] == [None, None, None, "no", None]
    assert (record.message, record.shown) == (MESSAGE, "Hm.")
    assert there.value("deferred_calls") == 1


async def test_a_batch_that_cannot_be_kept_is_not_counted_nor_begun() -> None:
    """Without its record nothing of it happens."""
    there = parts(execution=Execution.EAGER)
    there.store = FailingStore(there.store, lambda operation, keys: operation == "save")
    with pytest.raises(StoreError):
        await surface(settling(there), [client(A), proxy("p")], split(0, None))
    assert there.value("deferred_calls") == 0
    assert len(there.services.tasks) == 0


async def test_an_eager_tool_begins_with_the_split() -> None:
    """Also under a name with a prefix, as it would be run."""
    there = parts(execution=Execution.EAGER)
    call = Judged(ToolCall(CallId("p"), "functions.count", '{"n":1}'), "{}", Owner.PROXY, ALLOWED)
    await surface(settling(there), [client(A), call], split(0, None))
    await there.services.tasks.drain(5)
    assert isinstance(there.tools, Tools)
    assert len(there.tools.runs["count"]) == 1


async def test_a_round_has_a_result_for_each_call() -> None:
    """Blocked ones have the rule's, the others their tool's, in the model's order."""
    turn = ChoiceTurn()
    await hold(settling(parts()), turn, proxy("a", 1), client("b", BLOCKED), proxy("c", 2))
    assert [(r.text, r.blocked, r.failed) for r in turn.rounds[0].results] == [
        ("counted 1", False, False),
        ("no", True, True),
        ("counted 2", False, False),
    ]
    assert (turn.rounds[0].message, turn.asked) == (MESSAGE, 1)


async def test_each_choice_has_runs_of_its_own() -> None:
    """The same place in two choices is two runs."""
    settled, turns = settling(parts(), resume=Resume("digest", None)), [ChoiceTurn(), ChoiceTurn()]
    for index, turn in enumerate(turns):
        await hold(settled, turn, proxy("a", index), index=index)
    assert [turn.rounds[0].results[0].text for turn in turns] == ["counted 0", "counted 1"]


@pytest.mark.parametrize(
    ("shown", "said", "joins"),
    [("", "", True), ("", "Let me see.", True), ("Let me", "Let me see.", True), ("Well.", "Let me see.", False)],
)
async def test_another_try_that_was_faster(shown: str, said: str, joins: bool) -> None:
    """Its rounds are taken up where they begin with what this client was shown, else this try keeps to itself."""
    there = parts()
    hidden = Round(
        render_text({"role": "assistant", "content": said}),
        (RoundResult(ToolCall(CallId("x"), "count", "{}"), "theirs", blocked=False, failed=False),),
    )
    await there.ledger().save_resume("digest", ResumeRecord("other", "{}", "null", (hidden,), None), 0)
    settled, turn = settling(there), ChoiceTurn(texts=[shown] if shown else [])
    await hold(settled, turn, proxy("a"), shown=shown)
    assert isinstance(there.tools, Tools)
    if joins:
        assert turn.rounds == [hidden]
        assert turn.shown == said
        assert settled.resume.version == 1
        assert not there.tools.runs["count"]
    else:
        assert [r.text for r in turn.rounds[0].results] == ["counted 1"]
        assert settled.resume.version is None


async def test_rounds_are_kept_before_they_run_and_dropped_at_the_end() -> None:
    """A round is in the ledger as soon as its tools run; when the client has the answer, nothing of it is."""
    there = parts()
    settled = settling(there)
    await hold(settled, ChoiceTurn(), proxy("a"))
    found = await there.ledger().resume("digest")
    assert found is not None
    assert found[0].pending is not None
    await settled.done()
    assert await there.ledger().resume("digest") is None
    again = ChoiceTurn()
    await settling(there).take_up(again, found[0])
    assert again.rounds[0].results[0].text == "counted 1"
    assert isinstance(there.tools, Tools)
    assert len(there.tools.runs["count"]) == 1


async def test_rounds_of_blocks_alone_are_not_kept() -> None:
    """They cost nothing to have again."""
    there = parts()
    await hold(settling(there), ChoiceTurn(), client("a", BLOCKED))
    assert await there.store.is_empty()


async def test_a_turn_that_ends_in_text_is_found_by_its_history() -> None:
    """With hidden rounds it is kept under the digest of what the client will show; without, nothing is."""
    there = parts()
    settled, turn = settling(there), ChoiceTurn()
    await settled.keep_turn(turn, said("plain"), content="plain")
    assert await there.store.is_empty()
    await hold(settled, turn, client("a", BLOCKED))
    await settled.keep_turn(turn, said("Hm.\n\ndone"), content="done")
    digest = settled.form.digest_of(said("Hm.\n\ndone"))
    kept = (await there.ledger().know([], [digest])).turns[digest]
    assert (kept.content, len(kept.rounds)) == ('"done"', 1)


async def test_a_legacy_call_is_found_by_its_history() -> None:
    """It has no id: its hidden rounds are kept under the digest, the call included."""
    there = parts()
    settled, turn = settling(there), ChoiceTurn()
    legacy = Judged(ToolCall(CallId(""), "search", "{}", Kind.LEGACY), "{}", Owner.CLIENT, ALLOWED)
    await hold(settled, turn, client("a", BLOCKED))
    assert await surface(settled, [legacy], Conclusion(End.PASS, (0,)), turn=turn) == [None]
    function = {"function_call": {"name": "search", "arguments": "{}"}}
    digest = settled.form.digest_of(said("Hm.") | function)
    assert digest in (await there.ledger().know([], [digest])).turns


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (asyncio.CancelledError(), "client_gone"),
        (ConnectionResetError(), "client_gone"),
        (UpstreamError("x", kind="reset"), "upstream_error"),
        (StoreError("x"), "errors"),
    ],
)
async def test_a_turn_is_counted_once(error: BaseException, end: str) -> None:
    """Each turn with hidden rounds under the first way in which it ended; others not at all."""
    there = parts()
    settled, turns = settling(there), [ChoiceTurn(), ChoiceTurn(), ChoiceTurn()]
    for turn in turns[:2]:
        await hold(settled, turn, client("a", BLOCKED))
    for turn in turns[1:]:
        settled.tell_end(turn, "text")
    for _ in range(2):
        settled.tell_broken(error)
    assert there.value("continuations_total", api="chat", end="text") == 1
    assert there.value("continuations_total", api="chat", end=end) == 1
    assert there.total("continuations_total") == 2


async def test_an_answer_that_the_upstream_keeps() -> None:
    """Its batches are found by its id, where the request asked for that."""
    there = parts()
    for store in (False, True):
        settled = settling(there, stored=store)
        await surface(settled, [client(f"{A}{store}"), proxy("p")], split(0, None))
        await settled.point_to(f"answer-{store}")
        assert bool(await there.ledger().stored_answer(f"answer-{store}")) is store


async def test_a_resume_that_cannot_be_dropped_expires() -> None:
    """The client has its answer: nothing fails for it any more."""
    there = parts()
    settled = settling(there)
    await hold(settled, ChoiceTurn(), proxy("a"))
    store = FailingStore(there.store, lambda operation, keys: True)
    settled.caller = Parts(store=store, tools=there.tools).caller()
    await settled.done()


# ---------------------------------------------------------------- decisions made elsewhere


@pytest.mark.parametrize(("asked", "waited"), [(COUNT, 0.0), (person(a=1), 7.0)])
async def test_the_time_of_others_is_not_the_proxys(
    asked: Consult, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person or a service takes is waited for; what the store takes to count is the proxy's own."""
    there = parts()

    async def answer(consulting: Consulting, asked: Consult) -> Reply:
        there.clock.now += 7.0
        return True

    def judging() -> Generator[Consult, Reply, Judged]:
        assert (yield asked) is True
        return client(A)

    monkeypatch.setattr(Consulting, "answer", answer)
    assert (await settling(there).decided(judging())).call.call_id == A
    assert there.exchange.log.waited == waited


@pytest.mark.parametrize(
    ("verdict", "end", "stage", "state"),
    [
        (Decision.APPROVED, End.PASS, 0, "used"),
        (Decision.APPROVED, End.SPLIT, None, "used"),  # a proxy tool's: it runs
        (Decision.APPROVED, End.CONTINUE, None, "used"),
        (Decision.APPROVED, End.CUT, 0, "used"),
        (Decision.APPROVED, End.STOP, None, "approved"),
        (Decision.APPROVED, End.FAIL, None, "approved"),
        (Decision.APPROVED, End.CLOSED, None, "approved"),
        (Decision.BLOCKED, End.SPLIT, None, "approved"),
        (Decision.PENDING, End.CONTINUE, None, "approved"),
    ],
)
async def test_an_approval_is_used_where_its_call_goes_ahead(
    verdict: Decision, end: End, stage: int | None, state: str
) -> None:
    """Where another rule, or the end of the turn, keeps it back, it counts for the next call."""
    there = parts()
    desk, ledger = there.services.desk, there.ledger()
    approval_id = (await desk.ask(ledger, person(a=1), remembered=60.0)).approval_id
    await desk.decide(approval_id, ApprovalEvent.APPROVE, note="")
    await desk.ask(ledger, person(a=1), remembered=60.0)
    judged = client(A, Verdict(verdict, approvals=(approval_id,)))
    await settling(there).give_back([client(B), judged], Conclusion(end, (0, stage)))
    (approval,) = await desk.listed(list(ApprovalState))
    assert approval.state == state
