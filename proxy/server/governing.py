"""Governed requests: read, given their rules, and handed to their wire.

What happens then, in order: what the ledger knows of the history is put back, the upstream is asked, and each choice
of the answer is settled, perhaps over several rounds. Whether the answer comes in one piece or as a stream, and on
whichever wire, the same rules decide and the same records are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.core.calls import Api, RequestFacts, Tenant
from proxy.core.exchange.approvals import Approvals, all_tools
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.response_rejoin import response_form
from proxy.core.protocol import chat, response_request
from proxy.core.protocol.chat import ChatRequest
from proxy.core.protocol.response_request import ResponseRequest
from proxy.errors import StoreError
from proxy.server.chatting import Chatting
from proxy.server.coding import decode_request
from proxy.server.conversing import bounds_of, caller_of
from proxy.server.http import joined
from proxy.server.ledger import Ledger
from proxy.server.remembering import Memory
from proxy.server.rereading import Rereading
from proxy.server.responding import Responding
from proxy.server.response_keeping import Keeping
from proxy.server.response_rereading import Reading, ResponseRereading
from proxy.server.routing import Surface
from proxy.server.running import Runs
from proxy.server.services import ExchangeIn, Services
from proxy.server.settling import Resume, Settling
from proxy.server.telling import Seen, Telling


class Governor:
    """Serves governed requests. It lives as long as the process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = Runs(services)
        self._seen = Seen()

    async def serve(self, exchange: ExchangeIn) -> None:
        """Serve one request. Raises ProxyError."""
        match exchange.surface:
            case Surface.STORED_CHAT:
                await self._reread_chat(exchange)
            case Surface.RESPONSES:
                await self._respond(exchange)
            case Surface.STORED_RESPONSES:
                await self._reread_responses(exchange)
            case _:
                await self._chat(exchange)

    async def _chat(self, exchange: ExchangeIn) -> None:
        sent, body = await self._body(exchange)
        request = chat.read_request(body, self._services.config.limits.nesting)
        facts = await self._facts(exchange, Api.CHAT, request)
        judge = Judge(exchange.loaded.policies.for_request(facts), facts, exchange.loaded.tools.specs.keys())
        ledger = self._ledger(exchange, stored=request.value.get("store") is True)
        await Chatting(
            self._services, exchange, runs=self._runs, seen=self._seen, request=request, judge=judge, ledger=ledger
        ).serve(sent)

    async def _respond(self, exchange: ExchangeIn) -> None:
        sent, body = await self._body(exchange)
        request = response_request.read_request(body, self._services.config.limits.nesting)
        facts = await self._facts(exchange, Api.RESPONSES, request)
        approvals = Approvals.of(all_tools(request), exchange.loaded.policies.for_request(facts))
        judge = _judge_of(exchange, facts, _nobody if request.background else approvals.approves)
        ledger = self._ledger(exchange, stored=request.stored or request.remembered)
        await Responding(
            self._services,
            exchange,
            runs=self._runs,
            seen=self._seen,
            request=request,
            judge=judge,
            approvals=approvals,
            ledger=ledger,
        ).serve(sent)

    async def _reread_responses(self, exchange: ExchangeIn) -> None:
        bare = await self._facts(exchange, Api.RESPONSES, ResponseRequest(b"", {}))
        ledger = self._ledger(exchange, stored=True)
        memory = Memory(ledger)

        def reading_of(request: ResponseRequest, counted_as: str) -> Reading:
            facts = _facts_of(request, bare)
            judge = _judge_of(exchange, facts)
            again = not counted_as or (facts.tenant, counted_as) in self._seen.readings
            telling = Telling(
                self._services,
                exchange,
                self._seen,
                facts=facts,
                api=Api.RESPONSES,
                silent=again,
                counted_as=counted_as,
            )
            settling = Settling(
                caller=caller_of(self._services, exchange, ledger=ledger, judge=judge),
                runs=self._runs,
                telling=telling,
                form=response_form(request),
                bounds=bounds_of(self._services.config),
                used_ids=frozenset(),
                resume=Resume("", None),
                again=again,
            )
            return Reading(judge, Keeping(settling, memory, request, names_results=True))

        await ResponseRereading(self._services, exchange, memory, reading_of=reading_of).serve()

    async def _body(self, exchange: ExchangeIn) -> tuple[bytes, bytes]:
        """A request's body as it was sent, and decoded. Raises RequestError."""
        most = self._services.config.listen.max_body_bytes
        sent = await exchange.client.read(most)
        coding = joined(exchange.client.head.headers, "content-encoding")
        return sent, decode_request(sent, coding, limit=most)

    def _ledger(self, exchange: ExchangeIn, *, stored: bool) -> Ledger:
        state = self._services.config.state
        return Ledger(self._services.store, exchange.tenant, ttl=state.stored_ttl if stored else state.ttl)

    async def _reread_chat(self, exchange: ExchangeIn) -> None:
        ledger = self._ledger(exchange, stored=True)
        facts = await self._facts(exchange, Api.CHAT, ChatRequest(b"", {}))
        await Rereading(
            self._services, exchange, ledger, facts=facts, judge_of=lambda facts: _judge_of(exchange, facts)
        ).serve()

    async def _facts(self, exchange: ExchangeIn, api: Api, request: ChatRequest | ResponseRequest) -> RequestFacts:
        try:
            tenant = await exchange.tenant()
        except StoreError:
            tenant = Tenant("")  # nothing can be kept; whatever has to be will say so
        bare = RequestFacts(
            api=api,
            headers={name.lower(): value for name, value in reversed(exchange.client.head.headers)},
            client=exchange.client_name,
            tenant=tenant,
        )
        return _facts_of(request, bare)


def _facts_of(request: ChatRequest | ResponseRequest, bare: RequestFacts) -> RequestFacts:
    """What rules may know of a request, beside who sent it."""
    model, metadata = request.value.get("model"), request.value.get("metadata")
    return replace(
        bare,
        model=model if isinstance(model, str) else "",
        user=request.user,
        metadata=metadata if isinstance(metadata, dict) else {},
        declared=request.declared,
    )


def _nobody(_label: str, _name: str) -> bool:
    """Approvals that are all the client's to give: a response in the background has no later round for them."""
    return False


def _judge_of(exchange: ExchangeIn, facts: RequestFacts, approves: Callable[[str, str], bool] = _nobody) -> Judge:
    chain = exchange.loaded.policies.for_request(facts)
    return Judge(chain, facts, exchange.loaded.tools.specs.keys(), approves=approves)
