"""The configuration of proxy tools, and the specs that come of it.

Rules: one entry is one tool, or one MCP server with all of its tools. A Python function is imported while its
entry is checked, so that one that is not there is told with its place. Must not know how tools are run.
"""

from __future__ import annotations

import importlib.util
import re
from enum import StrEnum
from typing import Annotated, Any

import jsonschema_rs
from pydantic import AfterValidator, Field, model_validator

from proxy.core.jsontext import Object
from proxy.settings import (
    FilePath,
    HeaderSettings,
    Settings,
    Size,
    TextOrSecret,
    Timeout,
    duration,
    expected,
    reader,
    size,
)
from proxy.tools.mcp_spec import McpCommand, McpServerSpec, McpSource, McpUrl
from proxy.tools.python import load_function
from proxy.tools.spec import Advertise, Backend, Execution, HttpBackend, PythonBackend, ToolSpec
from proxy.tools.urltemplate import parse_template

DEFAULT_TIMEOUT = "30s"


class Method(StrEnum):
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


def _template(url: str) -> str:
    try:
        parse_template(url)
    except ValueError as error:
        raise expected(str(error)) from None
    return url


def _function(target: str) -> str:
    try:
        load_function(target)
    except ValueError as error:
        raise expected(str(error)) from None
    return target


def _tool_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise expected("expected a name of letters, digits, '_' and '-', at most 64 long, as models require it")
    return name


def _prefix(text: str) -> str:
    return _tool_name(text) if text else text


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        jsonschema_rs.meta.validate(schema)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = getattr(error, "message", "it cannot be read")
        raise expected(f"expected a JSON Schema: {reason}") from None
    if schema.get("type") not in (None, "object"):
        raise expected("expected a JSON Schema of an object")
    return schema


class HttpTool(Settings):
    """A tool that is an HTTP request."""

    method: Method = Field(
        description="The method. Arguments that the URL does not use become the query of GET, HEAD and DELETE, "
        "and a JSON body otherwise."
    )
    url: Annotated[str, AfterValidator(_template)] = Field(
        repr=False, description="The URL, with arguments such as {id} in its path or query."
    )
    headers: HeaderSettings = Field(default={}, repr=False, description="Headers to send; a value may be a secret.")
    timeout: Timeout = duration(DEFAULT_TIMEOUT, "How long the request may take.")


class McpTools(Settings):
    """The tools of an MCP server, over HTTP or as a command."""

    name: Annotated[str, AfterValidator(_tool_name)] = Field(description="The server's name, for metrics and logs.")
    url: str | None = Field(default=None, repr=False, description="The URL of the server (streamable HTTP).")
    command: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="The command of the server, which is spoken to on standard input."
    )
    tools: tuple[str, ...] = Field(default=("*",), description="Globs of the tools to take.")
    prefix: Annotated[str, AfterValidator(_prefix)] = Field(
        default="", description="What is put before the name of each tool."
    )
    headers: HeaderSettings = Field(default={}, repr=False, description="Headers to send to the URL.")
    env: dict[str, TextOrSecret] = Field(
        default={}, repr=False, description="Environment variables of the command, which gets PATH and no other."
    )
    cwd: FilePath | None = Field(default=None, description="The folder that the command runs in.")
    timeout: Timeout = duration(DEFAULT_TIMEOUT, "How long one call may take, a new session included.")
    trust_hints: bool = Field(
        default=False,
        description="Whether a tool's readOnlyHint makes its execution eager, and its idempotentHint makes it "
        "idempotent, where the entry leaves that open.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> McpTools:
        if (self.url is None) == (self.command is None):
            raise expected("expected either url or command")
        if self.url is not None:
            _fixed_url(self.url)
            if self.env or self.cwd is not None:
                raise expected("expected env and cwd beside command only")
        elif self.headers:
            raise expected("expected headers beside url only")
        if any(not name or "=" in name or "\0" in name for name in self.env):
            raise expected("expected names of environment variables under env")
        if importlib.util.find_spec("mcp") is None:
            raise expected("expected the package mcp to be installed: pip install 'sidecall[mcp]'")
        return self

    def server(self) -> McpServerSpec:
        """The server, by how it is reached: what is taken of it may change while its session goes on."""
        reached = self.model_dump_json(include={"name", "url", "command", "headers", "env", "cwd"})
        if self.command is not None:
            variables = tuple((name, reader(value)) for name, value in self.env.items())
            return McpServerSpec(self.name, reached, McpCommand(self.command, variables, self.cwd))
        assert self.url is not None
        headers = tuple((name, reader(value)) for name, value in self.headers.items())
        return McpServerSpec(self.name, reached, McpUrl(self.url, headers))


def _fixed_url(url: str) -> None:
    _template(url)
    if parse_template(url).parameters:
        raise expected("expected a URL without arguments")


class ToolEntry(Settings):
    """A proxy tool, or an MCP server that has several."""

    name: Annotated[str, AfterValidator(_tool_name)] | None = Field(
        default=None, description="The tool's name, as the model calls it. Of MCP tools the server gives the names."
    )
    description: str = Field(default="", description="What the tool does, for the model.")
    parameters: Annotated[dict[str, Any], AfterValidator(_json_schema)] | None = Field(
        default=None, description="The JSON Schema of its arguments; any object where there is none."
    )
    http: HttpTool | None = Field(default=None, description="Run it as an HTTP request.")
    python: Annotated[str, AfterValidator(_function)] | None = Field(
        default=None, description="Run it as a Python function: MODULE:FUNCTION."
    )
    mcp: McpTools | None = Field(default=None, description="Take the tools of an MCP server.")
    timeout: Timeout | None = Field(
        default=None, description="How long a Python function may take (30s). HTTP and MCP have their own."
    )
    advertise: Advertise = Field(
        default=Advertise.WITH_TOOLS, description="Which requests are told of it: those that have tools, all, or none."
    )
    execution: Execution = Field(
        default=Execution.ON_RETURN,
        description="When a held call of a mixed batch runs: when the client comes back, or while it works.",
    )
    idempotent: bool = Field(
        default=False, description="Whether it may run again when it is unknown whether a run was done."
    )
    concurrency: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=8, description="The most calls of it that run at once."
    )
    max_result_bytes: Size = size("256Ki", "Results beyond this are cut, with a note.")

    @model_validator(mode="after")
    def _one_back_end(self) -> ToolEntry:
        if [self.http, self.python, self.mcp].count(None) != 2:
            raise expected("expected one of http, python and mcp")
        if self.mcp is None and self.name is None:
            raise expected("expected a name")
        if self.mcp is not None and (self.name or self.description or self.parameters is not None):
            raise expected("expected mcp without name, description and parameters: the server gives them")
        if self.timeout is not None and self.python is None:
            raise expected("expected timeout beside url, within http or mcp")
        return self

    def spec(self) -> ToolSpec | None:
        """The tool that this entry declares by itself; None for an MCP server."""
        backend = self._backend()
        if backend is None or self.name is None:
            return None
        parameters: Object = self.parameters or {"type": "object", "properties": {}}
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=parameters,
            advertise=self.advertise,
            execution=self.execution,
            idempotent=self.idempotent,
            concurrency=self.concurrency,
            max_result_bytes=self.max_result_bytes,
            backend=backend,
        )

    def source(self) -> McpSource | None:
        """The MCP server of this entry, and what is taken of it; None for a tool."""
        if self.mcp is None:
            return None
        given = self.model_fields_set
        return McpSource(
            server=self.mcp.server(),
            globs=self.mcp.tools,
            prefix=self.mcp.prefix,
            timeout=self.mcp.timeout,
            trust_hints=self.mcp.trust_hints,
            advertise=self.advertise,
            execution=self.execution if "execution" in given else None,
            idempotent=self.idempotent if "idempotent" in given else None,
            concurrency=self.concurrency,
            max_result_bytes=self.max_result_bytes,
        )

    def _backend(self) -> Backend | None:
        if self.http is not None:
            headers = tuple((name, reader(value)) for name, value in self.http.headers.items())
            return HttpBackend(self.http.method, parse_template(self.http.url), headers, self.http.timeout)
        if self.python is not None:
            return PythonBackend(load_function(self.python), self.timeout or 30.0)
        return None
