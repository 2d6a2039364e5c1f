"""The configuration of proxy tools."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.core.jsontext import render
from proxy.settings import Surroundings
from proxy.toolconfig import ToolEntry
from proxy.tools.mcp_spec import McpCommand, McpSource, McpUrl
from proxy.tools.spec import Advertise, Execution, HttpBackend, PythonBackend, ToolSpec

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
HTTP = {"method": "GET", "url": "http://127.0.0.1:7001/orders/{order_id}"}


def entry(**settings: Any) -> ToolEntry:
    context = Surroundings(Path(), {"TOKEN": "s3cret"})
    return ToolEntry.model_validate_json(render(settings), by_alias=True, by_name=False, context=context)


def spec(**settings: Any) -> ToolSpec:
    found = entry(**settings).spec()
    assert found is not None
    return found


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        entry(**settings)
    return str([(detail["loc"], detail["msg"]) for detail in caught.value.errors(include_input=False)])


def test_an_http_tool_has_the_defaults_of_the_contract() -> None:
    """Only a name and a request are needed."""
    found = spec(name="status", http=HTTP)
    assert (found.name, found.description, found.advertise) == ("status", "", Advertise.WITH_TOOLS)
    assert found.parameters == {"type": "object", "properties": {}}
    assert (found.execution, found.idempotent) == (Execution.ON_RETURN, False)
    assert (found.concurrency, found.max_result_bytes) == (8, 256 << 10)
    assert isinstance(found.backend, HttpBackend)
    assert (found.backend.method, found.backend.timeout, found.backend.headers) == ("GET", 30.0, ())


def test_every_setting_of_a_tool_reaches_its_spec() -> None:
    """Headers that are secrets are read at each run."""
    headers = {"authorization": {"env": "TOKEN"}, "x-a": "plain"}
    found = spec(
        name="status",
        description="About orders.",
        parameters=SCHEMA,
        http={**HTTP, "headers": headers, "timeout": "250ms"},
        advertise="never",
        execution="eager",
        idempotent=True,
        concurrency=2,
        maxResultBytes="1Ki",
    )
    assert (found.description, found.parameters, found.advertise) == ("About orders.", SCHEMA, Advertise.NEVER)
    assert (found.execution, found.idempotent) == (Execution.EAGER, True)
    assert (found.concurrency, found.max_result_bytes) == (2, 1024)
    assert isinstance(found.backend, HttpBackend)
    assert found.backend.timeout == 0.25
    assert {name: value() for name, value in found.backend.headers} == {"authorization": "s3cret", "x-a": "plain"}
    assert "s3cret" not in repr(found)


def test_a_python_tool_is_a_function_with_a_time_limit() -> None:
    """The function is imported when the configuration is read."""
    found = spec(name="dumps", python="json:dumps", timeout="2s")
    assert isinstance(found.backend, PythonBackend)
    assert found.backend.timeout == 2.0


def source(**settings: Any) -> McpSource:
    found = entry(**settings)
    assert found.spec() is None
    given = found.source()
    assert given is not None
    return given


def test_an_mcp_server_has_the_defaults_of_the_contract() -> None:
    """It is a source of tools, and no tool by itself."""
    found = source(mcp={"name": "docs", "url": "http://h/mcp"})
    assert (found.globs, found.prefix, found.timeout, found.trust_hints) == (("*",), "", 30.0, False)
    assert (found.advertise, found.execution, found.idempotent) == (Advertise.WITH_TOOLS, None, None)
    assert (found.concurrency, found.max_result_bytes) == (8, 256 << 10)
    assert (found.server.name, found.server.reach) == ("docs", McpUrl("http://h/mcp", ()))
    assert entry(name="status", http=HTTP).source() is None


def test_every_setting_of_an_mcp_server_over_http_reaches_its_source() -> None:
    """Headers that are secrets are read at each request; what the entry leaves open can be told from what it says."""
    found = source(
        mcp={
            "name": "docs",
            "url": "https://h/mcp",
            "headers": {"authorization": {"env": "TOKEN"}, "x-a": "plain"},
            "tools": ["search_*", "read"],
            "prefix": "docs_",
            "timeout": "2s",
            "trustHints": True,
        },
        advertise="never",
        execution="onReturn",
        idempotent=False,
        concurrency=2,
        maxResultBytes="1Ki",
    )
    assert (found.globs, found.prefix, found.timeout, found.trust_hints) == (("search_*", "read"), "docs_", 2.0, True)
    assert (found.advertise, found.execution, found.idempotent) == (Advertise.NEVER, Execution.ON_RETURN, False)
    assert (found.concurrency, found.max_result_bytes) == (2, 1024)
    assert isinstance(found.server.reach, McpUrl)
    assert [(name, value()) for name, value in found.server.reach.headers] == [
        ("authorization", "s3cret"),
        ("x-a", "plain"),
    ]


def test_every_setting_of_an_mcp_command_reaches_its_source() -> None:
    """Its folder counts from that of the configuration."""
    mcp = {"name": "files", "command": ["a", "b"], "env": {"T": {"env": "TOKEN"}, "MODE": "x"}, "cwd": "work"}
    found = source(mcp=mcp).server
    assert isinstance(found.reach, McpCommand)
    assert (found.reach.words, found.reach.folder) == (("a", "b"), "work")
    assert [(name, value()) for name, value in found.reach.env] == [("T", "s3cret"), ("MODE", "x")]


def test_a_server_is_the_same_as_long_as_it_is_reached_in_the_same_way() -> None:
    """Whatever is taken of it. No secret is in what tells them apart."""
    mcp = {"name": "docs", "url": "http://h/mcp", "headers": {"a": {"env": "TOKEN"}}}
    first = source(mcp=mcp).server.identity
    assert source(mcp={**mcp, "prefix": "p_", "timeout": "1s", "tools": ["x"]}, concurrency=1).server.identity == first
    assert "s3cret" not in first
    others: tuple[dict[str, Any], ...] = ({"url": "http://i/mcp"}, {"headers": {}}, {"name": "other"})
    assert len({source(mcp={**mcp, **other}).server.identity for other in others} | {first}) == 4


def test_a_server_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra; nothing is imported to find that out."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'sidecall[mcp]'" in refusal(mcp={"name": "d", "url": "http://h"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"http": HTTP}, "expected a name"),
        ({"name": "a b", "http": HTTP}, "expected a name of letters"),
        ({"name": "a" * 65, "http": HTTP}, "at most 64"),
        ({"name": "a"}, "expected one of http, python and mcp"),
        ({"name": "a", "http": HTTP, "python": "json:dumps"}, "expected one of http, python and mcp"),
        ({"name": "a", "http": {"url": "http://h"}}, "Field required"),
        ({"name": "a", "http": {**HTTP, "method": "TRACE"}}, "'GET'"),
        ({"name": "a", "http": {**HTTP, "url": "http://{host}/"}}, "in its path or query only"),
        ({"name": "a", "http": {**HTTP, "url": "http://u:s3cret@h/"}}, "without credentials"),
        ({"name": "a", "http": {**HTTP, "timeout": "0s"}}, "more than nothing"),
        ({"name": "a", "http": HTTP, "timeout": "1s"}, "within http or mcp"),
        ({"name": "a", "http": HTTP, "concurrency": 0}, "greater than or equal to 1"),
        ({"name": "a", "http": HTTP, "parameters": {"type": "objekt"}}, "expected a JSON Schema"),
        ({"name": "a", "http": HTTP, "parameters": {"type": "array"}}, "of an object"),
        ({"name": "a", "http": HTTP, "parameters": {"properties": []}}, "expected a JSON Schema"),
        ({"name": "a", "python": "json.dumps"}, "expected MODULE:FUNCTION"),
        ({"name": "a", "python": "no_such_module:f"}, "no_such_module cannot be imported"),
        ({"name": "a", "python": "json:nope"}, "has no nope"),
        ({"mcp": {"name": "d"}}, "either url or command"),
        ({"mcp": {"name": "d", "url": "http://h", "command": ["x"]}}, "either url or command"),
        ({"mcp": {"name": "d", "command": []}}, "at least 1"),
        ({"mcp": {"name": "d", "url": "h"}}, "expected an http or https URL"),
        ({"name": "a", "mcp": {"name": "d", "url": "http://h"}}, "the server gives them"),
        ({"mcp": {"name": "d", "url": "http://h/{a}"}}, "a URL without arguments"),
        ({"mcp": {"name": "d", "url": "http://h", "env": {"A": "b"}}}, "env and cwd beside command only"),
        ({"mcp": {"name": "d", "url": "http://h", "cwd": "/"}}, "env and cwd beside command only"),
        ({"mcp": {"name": "d", "command": ["x"], "headers": {"a": "b"}}}, "headers beside url only"),
        ({"mcp": {"name": "d", "command": ["x"], "env": {"A=B": "c"}}}, "names of environment variables"),
    ],
)
def test_a_tool_that_could_not_be_run_is_refused(settings: dict[str, Any], said: str) -> None:
    """The message says what was expected, and shows no credential."""
    told = refusal(**settings)
    assert said in told
    assert "s3cret" not in told
