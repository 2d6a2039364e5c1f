"""Approvals in the store: asked for, waited for, decided, used once, and counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.batch.approval import Approval, ApprovalEvent, ApprovalState
from proxy.core.batch.ledger import IllegalStepError
from proxy.core.calls import Owner
from proxy.core.jsontext import render_text
from proxy.core.policy.consults import AskPerson, PersonSaid, Word
from proxy.core.policy.values import canonical
from proxy.core.policy.verdicts import RuleName
from proxy.errors import StoreError
from proxy.server.approvaldesk import PLACE_BYTES, PLACES
from proxy.stores.base import Write
from tests.server.parts import Parts
from tests.server.test_deciders import seen
from tests.stores.failing import FailingStore


def asked(
    tool: str = "pay", *, wait: float = 0.0, ttl: float = 60.0, call_id: str = "call_1", **args: Any
) -> AskPerson:
    text = render_text(args)
    call = replace(seen(tool, text), call_id=call_id)
    return AskPerson(RuleName("p", "r"), call, canonical(args), text, wait, ttl, "Ask first.")


class Desk:
    """A desk of its own process over the store of a test; `other` is that of another process."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.here, self.other = self.parts.services.desk, Parts(clock=self.parts.clock, store=self.parts.store)

    async def ask(self, question: AskPerson, *, tenant: str = "t", elsewhere: bool = False) -> PersonSaid:
        desk = self.other.services.desk if elsewhere else self.here
        return await desk.ask(self.parts.ledger(tenant), question, remembered=1000.0)

    async def decide(self, approval_id: str, event: ApprovalEvent = ApprovalEvent.APPROVE, note: str = "") -> Approval:
        found = await self.here.decide(approval_id, event, note=note)
        assert found is not None
        return found

    async def pending(self) -> list[str]:
        return [one.id for one in await self.here.listed([ApprovalState.PENDING])]

    async def asked_for(self, count: int = 1) -> str:
        """The last id, once so many are pending."""
        while len(found := await self.pending()) < count:
            await asyncio.sleep(0)
        return found[-1]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_call_that_nobody_decides_is_pending(desk: Desk) -> None:
    """It is announced once, however often it is made."""
    first, again = [await desk.ask(asked(a=1)) for _ in range(2)]
    assert first == again == PersonSaid(Word.PENDING, desk.parts.announced[0].id)
    (approval,) = desk.parts.announced
    assert (approval.tool, approval.arguments, approval.call_id) == ("pay", '{"a":1}', "call_1")
    assert (approval.policy, approval.rule, approval.message, approval.api) == ("p", "r", "Ask first.", "chat")
    assert approval.expires - approval.created == 60.0
    lines = [line for line in desk.parts.lines if line["message"] == "approval asked for"]
    assert [(line["approval"], line["tool"]) for line in lines] == [(approval.id, "pay")]


async def test_an_approval_counts_once(desk: Desk) -> None:
    """The same call goes ahead, and then has to be approved again."""
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id, note="fine")
    assert await desk.ask(asked(a=1)) == PersonSaid(Word.APPROVED, pending.approval_id, "fine")
    again = await desk.ask(asked(a=1))
    assert (again.word, again.approval_id != pending.approval_id) == (Word.PENDING, True)


async def test_an_approval_counts_once_among_many(desk: Desk) -> None:
    """Of calls that are made at the same time, here and in another process, one goes ahead."""
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id)
    said = await asyncio.gather(*(desk.ask(asked(a=1), elsewhere=bool(n % 2)) for n in range(10)))
    assert sorted(one.word for one in said) == [Word.APPROVED, *[Word.PENDING] * 9]
    assert len({one.approval_id for one in said if one.word is Word.PENDING}) == 1


@pytest.mark.parametrize(
    "other",
    [
        asked(a=2),
        asked(a="1"),
        asked(a=1, b=None),
        asked(),
        asked("pay2", a=1),
        asked("Pay", a=1),
        replace(asked(a=1), call=replace(asked(a=1).call, namespace="bank")),
        replace(asked(a=1), call=replace(asked(a=1).call, owner=Owner.PROXY)),
    ],
)
async def test_no_other_call_is_covered(other: AskPerson, desk: Desk) -> None:
    """Other arguments, another tool, another owner."""
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id)
    assert (await desk.ask(other)).word is Word.PENDING
    assert (await desk.ask(asked(a=1), tenant="stranger")).word is Word.PENDING
    assert (await desk.ask(asked(a=1))).word is Word.APPROVED


async def test_the_same_arguments_in_another_spelling_are_covered(desk: Desk) -> None:
    """Under another call id, and another rule's question."""
    pending = await desk.ask(asked(a=1, to="é"))
    await desk.decide(pending.approval_id)
    other = replace(asked(to="é", a=1.0, call_id="call_2"), rule=RuleName("p", "other"))
    assert (await desk.ask(other)).word is Word.APPROVED


async def test_a_denial_stands_for_its_time(desk: Desk) -> None:
    """The same call is denied with the note, as long as an approval would have counted."""
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id, ApprovalEvent.DENY, note="Not on a Friday.")
    denied = PersonSaid(Word.DENIED, pending.approval_id, "Not on a Friday.")
    assert [await desk.ask(asked(a=1)) for _ in range(2)] == [denied, denied]
    desk.parts.clock.now += 60.0
    assert (await desk.ask(asked(a=1))).word is Word.PENDING


async def test_an_approval_expires(desk: Desk) -> None:
    """It counts for `ttl` from the decision on, and no longer."""
    pending = await desk.ask(asked(a=1))
    desk.parts.clock.now += 59.0
    approved = await desk.decide(pending.approval_id)
    assert approved.expires == desk.parts.clock.now + 60.0
    desk.parts.clock.now += 59.9
    other = await desk.ask(asked(a=1))
    assert other.word is Word.APPROVED
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id)
    desk.parts.clock.now += 60.0
    assert (await desk.ask(asked(a=1))).word is Word.PENDING


async def test_a_question_expires(desk: Desk) -> None:
    """What nobody decided in time is asked anew, and the old question cannot be decided any more."""
    old = await desk.ask(asked(a=1))
    desk.parts.clock.now += 60.0
    new = await desk.ask(asked(a=1))
    assert new.approval_id != old.approval_id
    with pytest.raises(IllegalStepError):
        await desk.decide(old.approval_id)
    assert await desk.pending() == [new.approval_id]


@pytest.mark.parametrize(("event", "word"), [(ApprovalEvent.APPROVE, Word.APPROVED), (ApprovalEvent.DENY, Word.DENIED)])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_call_waits_for_its_decision(event: ApprovalEvent, word: Word, elsewhere: bool, desk: Desk) -> None:
    """Also where another process decides."""
    waiting = asyncio.ensure_future(desk.ask(asked(wait=30.0, a=1), elsewhere=elsewhere))
    await desk.decide(await desk.asked_for(), event, note="well")
    said = await asyncio.wait_for(waiting, 5)
    assert (said.word, said.note) == (word, "well")
    tasks = (desk.other if elsewhere else desk.parts).services.tasks
    await tasks.drain(5)
    assert len(tasks) == 0


async def test_two_calls_wait_for_one_approval(desk: Desk) -> None:
    """One goes ahead; the other is asked for anew, and waits on."""
    waiting = [asyncio.ensure_future(desk.ask(asked(wait=30.0, a=1))) for _ in range(2)]
    await desk.decide(first := await desk.asked_for())
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    assert [one.result().word for one in done] == [Word.APPROVED]
    while (second := await desk.asked_for()) == first:
        await asyncio.sleep(0)
    await desk.decide(second, ApprovalEvent.DENY)
    assert (await asyncio.wait_for(left.pop(), 5)).word is Word.DENIED


async def test_a_wait_ends(desk: Desk) -> None:
    """After `wait`, or where the question expires before; what is told is the id that was asked under."""
    said = await desk.ask(asked(wait=0.01, a=1))
    assert said.word is Word.PENDING
    desk.parts.clock.now += 1.0
    waiting = asyncio.ensure_future(desk.ask(asked(wait=30.0, ttl=30.0, a=2)))
    approval_id = await desk.asked_for(2)
    desk.parts.clock.now += 30.0
    assert await asyncio.wait_for(waiting, 5) == PersonSaid(Word.PENDING, approval_id)
    assert len(desk.parts.announced) == 2


async def test_a_wait_that_is_given_up_leaves_the_question(desk: Desk) -> None:
    """A client that goes away takes nothing back: the next call of its kind goes ahead."""
    waiting = asyncio.ensure_future(desk.ask(asked(wait=30.0, a=1)))
    approval_id = await desk.asked_for()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await desk.decide(approval_id)
    assert (await desk.ask(asked(a=1))).word is Word.APPROVED


async def test_an_approval_that_is_given_back_counts_again(desk: Desk) -> None:
    """A call that did not go ahead after all has used up nothing."""
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id)
    for _ in range(2):
        assert (await desk.ask(asked(a=1))).word is Word.APPROVED
        await desk.here.give_back(pending.approval_id)
    await desk.here.give_back(pending.approval_id)
    await desk.here.give_back("apr_unknown")
    assert (await desk.ask(asked(a=1))).word is Word.APPROVED
    assert (await desk.ask(asked(a=1))).word is Word.PENDING


async def test_what_went_ahead_is_recalled(desk: Desk) -> None:
    """The very call that was approved, and no other of the same arguments."""
    ledger = desk.parts.ledger("t")
    pending = await desk.ask(asked(a=1, call_id="call_1"))
    await desk.decide(pending.approval_id)
    assert (await desk.here.recall(ledger, asked(a=1, call_id="call_1"))).word is Word.PENDING
    await desk.ask(asked(a=1, call_id="call_1"))
    words = [(await desk.here.recall(ledger, asked(a=1, call_id=name))).word for name in ("call_1", "call_2")]
    assert words == [Word.APPROVED, Word.PENDING]
    assert (await desk.here.recall(desk.parts.ledger("stranger"), asked(a=1))).word is Word.PENDING


async def test_decisions_of_nothing_and_of_what_is_decided(desk: Desk) -> None:
    """An unknown id is None; a second decision is refused, and the first one stands."""
    assert await desk.here.decide("apr_unknown", ApprovalEvent.APPROVE, note="") is None
    pending = await desk.ask(asked(a=1))
    await desk.decide(pending.approval_id, ApprovalEvent.DENY)
    with pytest.raises(IllegalStepError):
        await desk.decide(pending.approval_id)
    assert (await desk.ask(asked(a=1))).word is Word.DENIED


async def test_of_two_decisions_one_counts(desk: Desk) -> None:
    """Two people decide at the same time, in two processes: one of them is told that it was decided."""
    pending = await desk.ask(asked(a=1))
    desks = (desk.here, desk.other.services.desk)
    events = (ApprovalEvent.APPROVE, ApprovalEvent.DENY)
    said = await asyncio.gather(
        *(d.decide(pending.approval_id, e, note="") for d, e in zip(desks, events, strict=True)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in said) == ["Approval", "IllegalStepError"]


async def test_lists(desk: Desk) -> None:
    """Pending ones first and the oldest first, then the others, the newest first."""
    ids = []
    for number in range(4):
        ids.append((await desk.ask(asked(a=number))).approval_id)
        desk.parts.clock.now += 1.0
    await desk.decide(ids[0])
    await desk.decide(ids[2], ApprovalEvent.DENY)
    assert await desk.pending() == [ids[1], ids[3]]
    every = await desk.here.listed(list(ApprovalState))
    assert [one.id for one in every] == [ids[1], ids[3], ids[2], ids[0]]
    assert [one.id for one in await desk.here.listed([ApprovalState.DENIED])] == [ids[2]]
    desk.parts.clock.now += 100.0
    assert [one.id for one in await desk.here.listed([ApprovalState.EXPIRED])] == [ids[3], ids[1], ids[0]]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
async def test_pages_of_a_list(most: int, desk: Desk) -> None:
    """Each begins behind the one before, over both parts of the list; what is decided meanwhile is missed by none."""
    ids = []
    for number in range(7):
        ids.append((await desk.ask(asked(a=number))).approval_id)
        desk.parts.clock.now += 1.0
    for approval_id in (ids[1], ids[2], ids[5]):
        await desk.decide(approval_id)
    found, after, pages = list[str](), None, 0
    while pages == 0 or after is not None:
        page, after = await desk.here.page(list(ApprovalState), after=after, most=most)
        found += [one.id for one in page]
        pages += 1
        if pages == 1 and most < 4:
            await desk.decide(found[-1])  # the next page goes on behind where it stood
    decided = [ids[5], ids[2], ids[1]]
    again = [] if most == 100 else [found[most - 1]]
    assert found == [*(one for one in ids if one not in decided), *sorted([*decided, *again], reverse=True)]
    assert pages == -(-len(found) // most)


async def test_a_page_is_bounded_in_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large questions come some at a time."""
    monkeypatch.setattr("proxy.server.approvaldesk._PAGE_BYTES", 100)
    for number in range(4):
        await desk.ask(asked(a="x" * 60, n=number))
    first, after = await desk.here.page([ApprovalState.PENDING])
    second, end = await desk.here.page([ApprovalState.PENDING], after=after)
    assert (len(first), len(second), end) == (2, 2, None)


# ---------------------------------------------------------------- how much may wait


async def test_a_tenant_has_so_many_places(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is not asked, is told and counted, and takes nobody else's place; a decision makes room, and
    so does the end of a question's time."""
    monkeypatch.setattr("proxy.server.approvaldesk.PLACES", 2)
    one, two = [await desk.ask(asked(a=number)) for number in range(2)]
    for elsewhere in (False, True):
        assert await desk.ask(asked(wait=30.0, a=2), elsewhere=elsewhere) == PersonSaid(Word.UNASKED, "")
    assert (await desk.ask(asked(a=1))).approval_id == two.approval_id, "it waits already"
    assert (await desk.ask(asked(a=2), tenant="t2")).word is Word.PENDING
    assert desk.parts.value("approvals_unasked_total", tool="pay") == 1
    (line,) = [line for line in desk.parts.lines if line["message"].startswith("nobody was asked")]
    assert (line["tool"], line["policy"], line["rule"]) == ("pay", "p", "r")
    assert len(desk.parts.announced) == 3
    await desk.decide(one.approval_id, ApprovalEvent.DENY)
    assert (await desk.ask(asked(a=3))).word is Word.PENDING
    assert (await desk.ask(asked(a=4))).word is Word.UNASKED
    desk.parts.clock.now += 60.0
    assert (await desk.ask(asked(a=4))).word is Word.PENDING


@pytest.mark.parametrize(("size", "fits"), [(2, True), (3, False)])
async def test_a_large_question_takes_several_places(
    size: int, fits: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are free again once it is decided."""
    monkeypatch.setattr("proxy.server.approvaldesk.PLACES", 3)
    assert (await desk.ask(asked(a=1))).word is Word.PENDING
    large = await desk.ask(asked(a="x" * (size * PLACE_BYTES - 8)))
    assert (large.word is Word.PENDING) is fits
    if fits:
        assert (await desk.ask(asked(a=2))).word is Word.UNASKED
        await desk.decide(large.approval_id)
        assert [(await desk.ask(asked(a=number))).word for number in (2, 3)] == [Word.PENDING] * 2


async def test_a_model_in_a_loop_does_not_fill_the_store(desk: Desk) -> None:
    """However many calls it makes; each is forgotten an hour after its time."""
    said = [await desk.ask(asked(a=number)) for number in range(PLACES + 5)]
    assert [one.word for one in said] == [Word.PENDING] * PLACES + [Word.UNASKED] * 5
    desk.parts.clock.now += 3600.0 + 2 * 60.0
    assert await desk.parts.store.scan("approval", 10) == []


async def test_what_is_pending_is_counted_by_tool(desk: Desk) -> None:
    """Each process sees the same; what expired is counted once among all."""
    for number in range(2):
        await desk.ask(asked("pay", a=number))
    sent = await desk.ask(asked("send"))
    for one in (desk.parts, desk.other):
        await one.services.desk.count()
        assert [one.value("approvals_pending", tool=name) for name in ("pay", "send")] == [2, 1]
    await desk.decide(sent.approval_id)
    desk.parts.clock.now += 60.0
    for one in (desk.parts, desk.other):
        await one.services.desk.count()
        assert [one.value("approvals_pending", tool=name) for name in ("pay", "send")] == [0, 0]
    outcomes = [
        sum(one.total("approvals_total", tool=tool, outcome=outcome) for one in (desk.parts, desk.other))
        for tool, outcome in (("pay", "expired"), ("send", "expired"), ("send", "approved"))
    ]
    assert outcomes == [2, 0, 1]


async def test_a_store_that_is_down_lets_nothing_go_ahead(desk: Desk) -> None:
    """Asking and deciding fail; who waits goes on waiting."""
    waiting = asyncio.ensure_future(desk.ask(asked(wait=0.3, a=1)))
    approval_id = await desk.asked_for()
    down = True
    store = FailingStore(desk.parts.store, lambda operation, keys: down)
    failing = Parts(clock=desk.parts.clock, store=store).services.desk
    with pytest.raises(StoreError):
        await failing.ask(desk.parts.ledger("t"), asked(a=2), remembered=1.0)
    with pytest.raises(StoreError):
        await failing.decide(approval_id, ApprovalEvent.APPROVE, note="")
    down = False
    assert (await waiting).word is Word.PENDING


async def test_a_wait_outlives_a_store_that_is_down_for_a_moment() -> None:
    """A look that fails is no news, and the next one finds the decision."""
    parts, down = Parts(), False
    store = FailingStore(parts.store, lambda operation, keys: down)
    failing = Parts(clock=parts.clock, store=store)
    waiting = asyncio.ensure_future(
        failing.services.desk.ask(failing.ledger("t"), asked(wait=30.0, a=1), remembered=1.0)
    )
    while not failing.announced:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    down = True
    await parts.services.desk.decide(failing.announced[0].id, ApprovalEvent.APPROVE, note="")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    down = False
    assert (await asyncio.wait_for(waiting, 5)).word is Word.APPROVED


async def test_an_approval_of_another_release(desk: Desk) -> None:
    """What cannot be read lets nothing go ahead."""
    pending = await desk.ask(asked(a=1))
    await desk.parts.store.save([Write(f"approval/{pending.approval_id}", b"{}", 60.0)])
    with pytest.raises(StoreError):
        await desk.ask(asked(a=1))
