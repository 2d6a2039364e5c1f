"""What a proxy tool is, what one run of it is given, and what comes of it: values only.

Rules: a spec is complete and checked when it is made; a header's value is asked for at each run, since secrets
may change. Must not know the configuration's form, nor how a back end works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.jsontext import Object
from proxy.tools.urltemplate import UrlTemplate

HeaderValue = Callable[[], str]


class Advertise(StrEnum):
    """Which requests are told of a tool."""

    WITH_TOOLS = "withTools"
    ALWAYS = "always"
    NEVER = "never"


class Execution(StrEnum):
    """When a held call of a mixed batch runs: on the client's return, or while the client works."""

    ON_RETURN = "onReturn"
    EAGER = "eager"


class RunKind(StrEnum):
    """How a run ended."""

    OK = "ok"
    ARGUMENTS = "arguments"
    TIMEOUT = "timeout"
    CONNECT = "connect"
    HTTP = "http"
    EXCEPTION = "exception"
    RESULT = "result"
    TOOL = "tool"
    PROTOCOL = "protocol"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HttpBackend:
    """A request to make. `timeout` is seconds for the whole of it."""

    method: str
    url: UrlTemplate
    headers: tuple[tuple[str, HeaderValue], ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function to call. `required` and `accepted` are the names of its parameters less the one for the context;
    `open` says that it takes any other name too."""

    target: str
    call: Callable[..., object]
    required: frozenset[str]
    accepted: frozenset[str]
    open: bool
    wants_context: bool
    is_async: bool


@dataclass(frozen=True, slots=True)
class PythonBackend:
    function: PythonFunction
    timeout: float


@dataclass(frozen=True, slots=True)
class McpBackend:
    """A tool of an MCP server. `tool` is the server's own name for it; `timeout` is seconds for the whole of a call,
    a new session included."""

    server: str
    tool: str
    timeout: float


Backend = HttpBackend | PythonBackend | McpBackend


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One proxy tool. `parameters` is the JSON Schema that the model is shown."""

    name: str
    description: str
    parameters: Object
    advertise: Advertise
    execution: Execution
    idempotent: bool
    concurrency: int
    max_result_bytes: int
    backend: Backend


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a call: its arguments, and for whom it acts. `client` is a configured client's name, or empty;
    `idempotency_key` is the same for every try of one call; `traceparent` may be empty. A Python tool gets this
    as its parameter `context`."""

    call_id: str
    arguments: Object
    client: str
    idempotency_key: str
    traceparent: str
    tenant: str


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result for the model. An error names the tool and the kind of failure, never a secret or a stack trace."""

    text: str
    is_error: bool
    kind: RunKind


def failure(tool: str, kind: RunKind, reason: str) -> ToolOutcome:
    """The one form of an error result."""
    return ToolOutcome(f"Tool {tool} failed: {reason}", is_error=True, kind=kind)


class ToolRunError(Exception):
    """A run that failed; `reason` may be read by the model."""

    def __init__(self, kind: RunKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
