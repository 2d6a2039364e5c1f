"""What an MCP server is to Sidecall, what it lists, and how that becomes tools: values only.

Rules: what a server lists is not trusted. A name that models could not call is spelled otherwise or left out, and
so is a schema that an endpoint would refuse together with the request that carries it; hints count only where the
configuration says so. Must not know the configuration's form, nor how a server is spoken to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import jsonschema_rs

from proxy.core.jsontext import Json, Object
from proxy.tools.spec import Advertise, Execution, HeaderValue, McpBackend, ToolSpec

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_LEAST_HIDDEN = 8


@dataclass(frozen=True, slots=True)
class McpUrl:
    """A server that is reached over streamable HTTP. A header's value is asked for at each request."""

    url: str
    headers: tuple[tuple[str, HeaderValue], ...]


@dataclass(frozen=True, slots=True)
class McpCommand:
    """A server that is started, and spoken to on its standard input. A variable's value is asked for at each start."""

    words: tuple[str, ...]
    env: tuple[tuple[str, HeaderValue], ...]
    folder: str | None


@dataclass(frozen=True, slots=True)
class McpServerSpec:
    """A server. `identity` is the same for two configurations that reach it in the same way, so that a session
    outlives a reload."""

    name: str
    identity: str
    reach: McpUrl | McpCommand

    @property
    def is_command(self) -> bool:
        return isinstance(self.reach, McpCommand)

    def mask(self, text: str) -> str:
        """A text without the values that this server was given, whole or behind a word such as `Bearer`."""
        given = self.reach.headers if isinstance(self.reach, McpUrl) else self.reach.env
        values = [value() for _, value in given]
        for hidden in sorted({*values, *(value.split(" ")[-1] for value in values)}, key=len, reverse=True):
            if len(hidden) >= _LEAST_HIDDEN:
                text = text.replace(hidden, "***")
        return text


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it."""

    name: str
    description: str
    parameters: Object
    read_only: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class McpSource:
    """Which tools of a server are taken, and how they are run. `execution` and `idempotent` are None where the
    configuration leaves them open, which is where a trusted hint counts."""

    server: McpServerSpec
    globs: tuple[str, ...]
    prefix: str
    timeout: float
    trust_hints: bool
    advertise: Advertise
    execution: Execution | None
    idempotent: bool | None
    concurrency: int
    max_result_bytes: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A listed tool that cannot be offered."""

    server: str
    tool: str
    reason: str


class SessionLostError(Exception):
    """A session has ended. `delivered`: the server may have begun what it was asked."""

    def __init__(self, *, delivered: bool) -> None:
        super().__init__("the session has ended")
        self.delivered = delivered


class McpSession(Protocol):
    """A session that is open. It belongs to the task that opened it; any task may call."""

    @property
    def is_lost(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    async def tools(self) -> tuple[ListedTool, ...]:
        """What the server lists now."""

    async def call(self, tool: str, arguments: Object, about: Object) -> Mapping[str, Json]:
        """A result as the protocol has it. Raises SessionLostError, ToolRunError."""

    async def news(self, within: float | None) -> bool:
        """Wait until the list may have changed or the session is in doubt or lost; False when the time is over."""

    def doubt(self) -> None:
        """Have the server asked whether it is still there."""


class OpenSession(Protocol):
    """Opens sessions. `lost` is called, perhaps more than once, as soon as one cannot be used any more; `heard` is
    given what a command writes to its standard error."""

    def __call__(
        self, server: McpServerSpec, *, lost: Lost, heard: Heard
    ) -> AbstractAsyncContextManager[McpSession]: ...


class Lost(Protocol):
    def __call__(self) -> None: ...


class Heard(Protocol):
    def __call__(self, line: str, /) -> None: ...


# ---------------------------------------------------------------- from what is listed to tools


def specs_of(source: McpSource, listed: Sequence[ListedTool]) -> Iterator[ToolSpec | LeftOut]:
    """The tools that a source gives, and those that it would give if they could be offered."""
    for tool in listed:
        if not any(fnmatchcase(tool.name, glob) for glob in source.globs):
            continue
        name = _NOT_IN_NAMES.sub("_", source.prefix + tool.name)
        if not tool.name or len(name) > _LONGEST_NAME:
            yield LeftOut(source.server.name, tool.name, f"its name has not 1 to {_LONGEST_NAME} characters")
        elif (parameters := _object_schema(tool.parameters)) is None:
            yield LeftOut(source.server.name, tool.name, "it has no JSON Schema of an object for its arguments")
        else:
            yield _spec(source, tool, name, parameters=parameters)


def _spec(source: McpSource, tool: ListedTool, name: str, *, parameters: Object) -> ToolSpec:
    hinted = Execution.EAGER if source.trust_hints and tool.read_only else Execution.ON_RETURN
    return ToolSpec(
        name=name,
        description=tool.description,
        parameters=parameters,
        advertise=source.advertise,
        execution=hinted if source.execution is None else source.execution,
        idempotent=(source.trust_hints and tool.idempotent) if source.idempotent is None else source.idempotent,
        concurrency=source.concurrency,
        max_result_bytes=source.max_result_bytes,
        backend=McpBackend(source.server.identity, tool.name, source.timeout),
    )


def _object_schema(schema: Object) -> Object | None:
    """A schema as endpoints want it, with its type and its properties said; None where it is none of an object.

    It is checked without its `$schema`: a dialect that nobody here knows would be fetched from where it points."""
    if schema.get("type", "object") != "object":
        return None
    whole: Object = {"type": "object", "properties": {}, **schema}
    try:
        jsonschema_rs.meta.validate({key: value for key, value in whole.items() if key != "$schema"})
    except (jsonschema_rs.ValidationError, ValueError):
        return None
    return whole
