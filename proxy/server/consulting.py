"""What judgements ask of the world, answered: by the ledger, another service, a Python object, a person.

A judgement is a generator of the core; it is driven here, one question after another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from proxy.core.policy.consults import AskCode, AskCodeOfResult, AskPerson, AskService, Consult, CountCall, Reply
from proxy.server.approvaldesk import ApprovalDesk
from proxy.server.deciders import Deciders
from proxy.server.ledger import Ledger
from proxy.server.services import Loaded, Services

T = TypeVar("T")


async def settled(judgement: Generator[Consult, Reply, T], answer: Callable[[Consult], Awaitable[Reply]]) -> T:
    """What a judgement comes to once all that it asks is answered. Raises StoreError."""
    given: Any = None
    try:
        while True:
            given = await answer(judgement.send(given))
    except StopIteration as stop:
        came_to: T = stop.value
        return came_to


@dataclass(frozen=True, slots=True)
class Consulting:
    """Answers what the judgements of one request ask. `loaded` are the Python objects that its rules name; what people
    are asked, and what is counted, is its tenant's."""

    ledger: Ledger
    loaded: Loaded
    deciders: Deciders
    desk: ApprovalDesk
    remembered: float

    @classmethod
    def of(cls, services: Services, loaded: Loaded, ledger: Ledger) -> Consulting:
        return cls(ledger, loaded, services.deciders, services.desk, services.config.state.stored_ttl)

    async def answer(self, asked: Consult) -> Reply:
        """Raises StoreError."""
        match asked:
            case CountCall():
                return await self.ledger.count(asked.key, asked.limit, asked.window)
            case AskPerson():
                return await self.desk.ask(self.ledger, asked, remembered=self.remembered)
            case _:
                return await self._decided_elsewhere(asked)

    async def answer_again(self, asked: Consult) -> Reply:
        """The same for a call that was decided before: it was counted then, and a person had a say in it then."""
        match asked:
            case CountCall():
                return True
            case AskPerson():
                return await self.desk.recall(self.ledger, asked)
            case _:
                return await self._decided_elsewhere(asked)

    async def _decided_elsewhere(self, asked: AskService | AskCode | AskCodeOfResult) -> Reply:
        match asked:
            case AskService():
                return await self.deciders.ask_service(asked)
            case AskCode():
                return await self.deciders.ask_of_call(self.loaded.code.get(asked.target), asked)
            case AskCodeOfResult():
                return await self.deciders.ask_of_result(self.loaded.code.get(asked.target), asked)
            case _:
                assert_never(asked)
