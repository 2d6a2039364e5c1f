"""Responses that are read again: they show what they showed the first time.

What is known of a response is put on it again, without a rule being asked. One of which nothing is known is judged: it
went through as it was, or it ran in the background and is read for the first time; then what has to be known of it is
kept, and its calls are counted. Nothing is continued here: a turn whose calls are all held ends as a rule ends one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import parse_qsl

from proxy.core import jsontext
from proxy.core.batch.record import ResponseRecord
from proxy.core.exchange.judging import Judge
from proxy.core.exchange.recalling import recall
from proxy.core.jsontext import Path
from proxy.core.protocol.bodies import objects, read_body
from proxy.core.protocol.completion import added_usage, holds_call
from proxy.core.protocol.response_answer import read_output
from proxy.core.protocol.response_events import own_message_id
from proxy.core.protocol.response_items import edited_call, message_item
from proxy.core.protocol.response_request import ResponseRequest, read_request
from proxy.errors import RequestError, StoreError, UpstreamError
from proxy.server.asking import changed_headers
from proxy.server.body import BodyReader
from proxy.server.coding import decode_request
from proxy.server.conversation_items import added_items
from proxy.server.http import Answer, Headers, RequestHead, header, joined, without
from proxy.server.remembering import Memory
from proxy.server.response_deferral import own_stream
from proxy.server.response_keeping import Keeping
from proxy.server.response_lists import ItemsShown
from proxy.server.response_whole import ResponseAnswers, parsed_response
from proxy.server.routing import conversation_id, response_id
from proxy.server.services import ExchangeIn, Services
from proxy.tools.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class Reading:
    """How one response is judged: `judge` for lists, `keeping` for what has to be kept of the response itself."""

    judge: Judge
    keeping: Keeping


class ResponseRereading:
    """One request for what the upstream keeps. `reading_of(request, counted_as)` gives the rules for a request like the
    one that made a response; its calls are counted under that name, once, where there is one."""

    def __init__(
        self,
        services: Services,
        exchange: ExchangeIn,
        memory: Memory,
        *,
        reading_of: Callable[[ResponseRequest, str], Reading],
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._client = exchange.client
        self._memory = memory
        self._reading_of = reading_of
        self._response_target = ""

    async def serve(self) -> None:
        """Ask the upstream and give the client what it may see. Raises ProxyError."""
        head = self._client.head
        named = response_id(head.target)
        record = await self._record(named[0]) if named else None
        if named and record and record.own:
            await self._own(record, head.target[named[2] :])
            return
        target = head.target
        if named:
            spelled = target[named[1] : named[2]]
            name = record.response_id if record and record.response_id != named[0] else spelled
            self._response_target = target[: named[1]] + name
            target = self._response_target + target[named[2] :]
        after = -1
        if named and _asks_for_events(target):
            target, after = _from_the_start(target)
        body, headers = await self._body()
        asked = RequestHead(head.method, target, headers)
        async with self._services.upstream.request(asked, body or None, governed=True) as answer:
            await self._answer(answer, named[0] if named else "", record=record, after=after)

    async def _body(self) -> tuple[bytes, Headers]:
        """What the client sent, as to compact a conversation or to add to it, and its headers. Raises RequestError."""
        headers, most = self._client.head.headers, self._services.config.listen.max_body_bytes
        sent = await self._client.read(most)
        body = decode_request(sent, joined(headers, "content-encoding"), limit=most)
        value = read_body(body, self._services.config.limits.nesting, history="items") if body else None
        changes = await self._changes(body, value) if value else {}
        if not changes:
            return sent, headers
        return jsontext.edit(body, changes), without(headers, "content-encoding")

    async def _changes(self, body: bytes, value: dict[str, Any]) -> dict[Path, bytes | None]:
        """A response that is named by the id that a stream showed goes up under the upstream's own, and what answers
        calls under theirs."""
        changes: dict[Path, bytes | None] = {}
        named = value.get("previous_response_id")
        record = await self._record(named) if isinstance(named, str) else None
        if record is not None and record.response_id not in ("", named):
            changes["previous_response_id",] = jsontext.render(record.response_id)
        items, conversation = value.get("items"), conversation_id(self._client.head.target)
        if conversation and isinstance(items, list):
            judge = self._reading_of(self._like({}, streams=False), "").judge
            try:
                left = await added_items(body, items, conversation, memory=self._memory, judge=judge)
            except StoreError:
                if judge.could_hold and self._services.config.state.on_unavailable == "refuse":
                    raise
                left = None
            if left is not None:
                changes["items",] = left
        return changes

    async def _record(self, name: str) -> ResponseRecord | None:
        try:
            return await self._memory.response(name)
        except StoreError:
            if self._exchange.loaded.governs and self._services.config.state.on_unavailable == "refuse":
                raise
            return None

    async def _own(self, record: ResponseRecord, behind: str) -> None:
        """A response that was made here, which no upstream has; `behind` is what stands behind its id in the target."""
        if self._client.head.method not in ("GET", "HEAD") or behind.partition("?")[0].strip("/"):
            raise RequestError("This response was made by the proxy.", status=404, code="response_not_found")
        body, kind = record.own.encode(), "application/json"
        if _asks_for_events(behind):
            body, kind = own_stream(body, _from_the_start(behind)[1]), "text/event-stream; charset=utf-8"
        await self._deliver(200, (("content-type", kind),), body, changed=True)

    async def _answer(self, answer: Answer, name: str, *, record: ResponseRecord | None, after: int) -> None:
        reader = BodyReader(answer, self._services, self._exchange)
        if answer.status < 400 and await reader.is_events(header(answer.headers, "content-type")):
            self._exchange.log.stream = True
            await self._relay(reader, answer, name, record=record, after=after)
            return
        data = await reader.read()
        shown = await self._shown(data, name, record) if answer.status < 400 else data
        changed = shown != data
        await self._deliver(answer.status, answer.headers, shown if changed else reader.sent, changed=changed)

    async def _deliver(self, status: int, headers: Headers, body: bytes, *, changed: bool) -> None:
        if changed:
            self._exchange.log.changed = True
            length = ("content-length", str(len(body)))
            headers = (*changed_headers(headers, self._exchange.request_id), length)
        await self._client.start(status, headers)
        await self._client.write(body)
        await self._client.finish()

    # -- a response

    async def _relay(
        self, reader: BodyReader, answer: Answer, name: str, *, record: ResponseRecord | None, after: int
    ) -> None:
        data, value = await self._origin()
        if record is not None and (record.before != "[]" or (record.said and not record.calls)):
            # The client's answer was more than the upstream's last one, which alone is read here.
            body = own_stream(await self._response(data, value, name=name, record=record), after)
            await self._deliver(answer.status, without(answer.headers, "content-encoding"), body, changed=True)
            return
        reading = self._reading_of(self._like(value, streams=True), _counted_as(value, name) if record is None else "")
        answers = self._answers(reading)
        relaying = answers.relaying(RequestHead("GET", "", ()))
        await relaying.replay(reader, status=answer.status, headers=answer.headers, record=record, after=after)

    def _answers(self, reading: Reading) -> ResponseAnswers:
        return ResponseAnswers(self._services, self._exchange, reading.keeping, question=None, denied=0, previous=None)

    def _like(self, value: dict[str, Any], *, streams: bool) -> ResponseRequest:
        return request_like(value, self._exchange.loaded.tools.specs, streams=streams)

    async def _origin(self) -> tuple[bytes, dict[str, Any]]:
        """The response as it is now: rules may look at its model and tools."""
        head = RequestHead("GET", self._response_target, self._client.head.headers)
        async with self._services.upstream.request(head, None, governed=True) as answer:
            data = await BodyReader(answer, self._services, self._exchange).read()
        value = parsed_response(data, self._services.config.limits.nesting)
        if answer.status >= 400 or value is None:
            raise UpstreamError("The response that is read here cannot be looked at.", kind="protocol")
        return data, value

    async def _shown(self, data: bytes, name: str, record: ResponseRecord | None) -> bytes:
        """A body as the client may see it: a response, a list of items, or one item."""
        try:
            value = jsontext.parse(data)
        except ValueError:
            value = parsed_response(data, self._services.config.limits.nesting)
        if not _is_response(value):
            if isinstance(value, dict) and any(map(_is_response, objects(value.get("data")))):
                return await self._responses(data, value["data"])
            return await self._items(data, value, name)
        if record is None and isinstance(value.get("id"), str) and value["id"] != name:
            record = await self._record(value["id"])
        return await self._response(data, value, name=name, record=record)

    async def _response(self, data: bytes, value: dict[str, Any], *, name: str, record: ResponseRecord | None) -> bytes:
        if record is None:
            return await self._first_read(data, value, name)
        changes: dict[Path, bytes | None] = {("output",): jsontext.array(recalled_items(data, value, record))}
        usage = added_usage(jsontext.parse_own(record.usage.encode()), value.get("usage"))
        if usage is not None and usage != value.get("usage"):
            changes["usage",] = jsontext.render(usage)
        if record.said and value.get("status") != "completed":
            changes["status",] = b'"completed"'
        if name and name != value.get("id") and value.get("id") == record.response_id:
            changes["id",] = jsontext.render(name)
        shown = jsontext.edit(data, changes)
        return data if jsontext.parse(shown) == value else shown

    async def _first_read(self, data: bytes, value: dict[str, Any], name: str) -> bytes:
        """A response that nothing is known of. One that still runs shows no call: its batch is not whole."""
        reading = self._reading_of(self._like(value, streams=False), _counted_as(value, name))
        return await self._answers(reading).settled_again(data, value)

    # -- lists

    async def _responses(self, data: bytes, entries: list[Any]) -> bytes:
        """A list of responses, each as it was shown."""
        raws = jsontext.elements(data, ("data",))
        left = [
            await self._shown(raw, "", None) if _is_response(entry) else raw
            for raw, entry in zip(raws, entries, strict=True)
        ]
        return data if left == raws else jsontext.edit(data, {("data",): jsontext.array(left)})

    async def _items(self, data: bytes, value: Any, name: str) -> bytes:
        if not holds_call(value) and b"_call_output" not in data and b"mcp_approval" not in data:
            return data
        like = (await self._origin())[1] if name else {}
        reading = self._reading_of(self._like(like, streams=False), "")
        keeping = reading.keeping
        shown = ItemsShown(self._memory, reading.judge, keeping.request.hosted, consult=keeping.settling.consult)
        if isinstance(value, dict) and isinstance(value.get("data"), list):
            raws = jsontext.elements(data, ("data",))
            left = await shown.shown(raws, value["data"])
            return data if left == raws else _with_entries(data, value, left)
        if isinstance(value, dict):
            left = await shown.shown([data], [value])
            if not left:
                raise RequestError("There is no such item.", status=404, code="item_not_found")
            return left[0]
        return data


def _is_response(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether it is a response, and no item: one that answers a call may have a list as its output too."""
    return isinstance(value, dict) and isinstance(value.get("output"), list) and "call_id" not in value


def _with_entries(data: bytes, value: dict[str, Any], left: list[bytes]) -> bytes:
    """A list with other entries, and with the ids of its first and last. A page of which nothing is left keeps them, so
    that the next can be asked for."""
    changes: dict[Path, bytes | None] = {("data",): jsontext.array(left)}
    for key, raw in (("first_id", left[0]), ("last_id", left[-1])) if left else ():
        entry = jsontext.parse(raw)
        if isinstance(value.get(key), str) and isinstance(entry, dict) and "id" in entry:
            changes[key,] = jsontext.render(entry["id"])
    return jsontext.edit(data, changes)


def recalled_items(data: bytes, value: dict[str, Any], record: ResponseRecord) -> list[bytes]:
    """The output items of a response as the client saw them."""
    output = read_output(data, value)
    known = recall(record.calls, [call for call, _ in output.calls])
    items = list(jsontext.elements(record.before.encode()))
    for item in output.layout:
        if isinstance(item, bytes):
            items.append(item)
            continue
        (call, raw), found = output.calls[item], known[item]
        if found is not None and found.stage == 0:
            items.append(edited_call(raw, call, call_id=found.given_id, text=found.given))
    if record.said:
        items.append(jsontext.render(message_item(record.said, own_message_id(record.response_id))))
    return items


def request_like(value: dict[str, Any], specs: Mapping[str, ToolSpec], *, streams: bool) -> ResponseRequest:
    """A request as the one that made a response, as far as that shows it. What it was told of proxy tools is not the
    client's."""
    conversation = value.get("conversation")
    told: dict[str, Any] = {
        key: value[key] for key in ("model", "user", "safety_identifier", "metadata") if key in value
    }
    if isinstance(conversation, dict) and isinstance(conversation.get("id"), str):
        told["conversation"] = conversation["id"]
    tools = value.get("tools")
    if isinstance(tools, list):
        told["tools"] = [tool for tool in tools if not _is_ours(tool, specs)]
    body = jsontext.render({**told, "background": True, "store": True, "stream": streams, "input": []})
    return read_request(body, 1 << 20)


def _is_ours(tool: Any, specs: Mapping[str, ToolSpec]) -> bool:
    """Whether a tool is a proxy tool as requests are told of it. Upstreams write its schema anew: its strict form, say,
    in which every parameter is required."""
    name = tool.get("name") if isinstance(tool, dict) and tool.get("type") == "function" else None
    spec = specs.get(name) if isinstance(name, str) else None
    if spec is None or (tool.get("description") or "") != spec.description:
        return False
    return _parameter_names(tool.get("parameters")) == _parameter_names(spec.parameters)


def _parameter_names(schema: Any) -> set[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return set(properties) if isinstance(properties, dict) else set()


def _counted_as(value: dict[str, Any], name: str) -> str:
    """Only a response that was made in the background may have calls that nobody has counted."""
    return name if value.get("background") is True else ""


def _asks_for_events(target: str) -> bool:
    return dict(parse_qsl(target.partition("?")[2])).get("stream", "").lower() in ("true", "1")


def _from_the_start(target: str) -> tuple[str, int]:
    """A target that asks for all events, and the number of the last that the client has (-1: none): what the client
    counts is not what the upstream counts."""
    path, _, query = target.partition("?")
    parts, after = [], -1
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key == "starting_after":
            after = int(value) if value.isdecimal() else after
        else:
            parts.append(part)
    return f"{path}?{'&'.join(parts)}", after
