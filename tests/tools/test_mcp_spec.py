"""What an MCP server lists, and how that becomes tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from proxy.core.jsontext import Object
from proxy.tools.mcp_spec import LeftOut, ListedTool, McpCommand, McpServerSpec, McpSource, McpUrl, specs_of
from proxy.tools.spec import Advertise, Execution, McpBackend, ToolSpec

SOURCE = McpSource(
    server=McpServerSpec("docs", "1", McpUrl("http://h/mcp", ())),
    globs=("*",),
    prefix="",
    timeout=5.0,
    trust_hints=False,
    advertise=Advertise.ALWAYS,
    execution=None,
    idempotent=None,
    concurrency=2,
    max_result_bytes=1000,
)


def listed(name: str = "search", **about: object) -> ListedTool:
    schema: Object = {"type": "object", "properties": {"q": {"type": "string"}}}
    return replace(ListedTool(name, "About it.", schema, False, False), **about)  # type: ignore[arg-type]  # as named


def only(source: McpSource, tool: ListedTool) -> ToolSpec | LeftOut:
    [found] = specs_of(source, [tool])
    return found


def test_a_listed_tool_is_a_tool_as_the_entry_says() -> None:
    """Its own name is kept for the server."""
    assert only(replace(SOURCE, prefix="docs_"), listed()) == ToolSpec(
        name="docs_search",
        description="About it.",
        parameters={"type": "object", "properties": {"q": {"type": "string"}}},
        advertise=Advertise.ALWAYS,
        execution=Execution.ON_RETURN,
        idempotent=False,
        concurrency=2,
        max_result_bytes=1000,
        backend=McpBackend("1", "search", 5.0),
    )


def test_globs_are_of_the_servers_own_names() -> None:
    """Any of them may match, and upper and lower case differ."""
    source = replace(SOURCE, globs=("search_*", "read"), prefix="read_")
    names = ("search_docs", "write_docs", "read", "Read", "read_")
    found = [spec.name for spec in specs_of(source, [listed(name) for name in names]) if isinstance(spec, ToolSpec)]
    assert found == ["read_search_docs", "read_read"]


@pytest.mark.parametrize(
    ("name", "spelled"), [("files.read", "files_read"), ("a/b c", "a_b_c"), ("né", "n_"), ("x" * 64, "x" * 64)]
)
def test_a_name_is_spelled_as_models_can_call_it(name: str, spelled: str) -> None:
    """The server is asked by its own."""
    found = only(SOURCE, listed(name))
    assert isinstance(found, ToolSpec)
    assert (found.name, found.backend) == (spelled, McpBackend("1", name, 5.0))


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_name_that_models_cannot_call_leaves_the_tool_out(name: str) -> None:
    """An endpoint would refuse the whole request."""
    assert only(SOURCE, listed(name)) == LeftOut("docs", name, "its name has not 1 to 64 characters")


def test_a_schema_says_its_type_and_its_properties() -> None:
    """Endpoints refuse one that does not."""
    found = only(SOURCE, listed(parameters={"required": ["q"]}))
    assert isinstance(found, ToolSpec)
    assert found.parameters == {"type": "object", "properties": {}, "required": ["q"]}


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": ["object", "null"]}, {"properties": {"q": {"type": "text"}}}]
)
def test_a_schema_that_endpoints_would_refuse_leaves_the_tool_out(schema: Object) -> None:
    """It says of what, and why."""
    assert only(SOURCE, listed(parameters=schema)) == LeftOut(
        "docs", "search", "it has no JSON Schema of an object for its arguments"
    )


def test_a_dialect_is_not_fetched() -> None:
    """Nobody is asked for what a schema points at."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that is overridden
            """Not to standard error."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/dialect"
        schema: Object = {"$schema": url, "properties": {"q": {"$schema": url, "$ref": url}}}
        found = only(SOURCE, listed(parameters=schema))
        server.shutdown()
        thread.join()
    assert isinstance(found, ToolSpec)
    assert (found.parameters["$schema"], asked) == (url, [])


@pytest.mark.parametrize(
    ("change", "execution", "idempotent"),
    [
        ({}, Execution.ON_RETURN, False),
        ({"trust_hints": True}, Execution.EAGER, True),
        ({"trust_hints": True, "execution": Execution.ON_RETURN}, Execution.ON_RETURN, True),
        ({"trust_hints": True, "idempotent": False}, Execution.EAGER, False),
        ({"execution": Execution.EAGER, "idempotent": True}, Execution.EAGER, True),
    ],
)
def test_hints_count_where_they_are_trusted_and_the_entry_is_silent(
    change: dict[str, object], execution: Execution, idempotent: bool
) -> None:
    """A server cannot make itself trusted."""
    found = only(replace(SOURCE, **change), listed(read_only=True, idempotent=True))  # type: ignore[arg-type]  # as named
    assert isinstance(found, ToolSpec)
    assert (found.execution, found.idempotent) == (execution, idempotent)


def test_no_hint_is_no_hint() -> None:
    """Trust alone makes nothing eager."""
    found = only(replace(SOURCE, trust_hints=True), listed())
    assert isinstance(found, ToolSpec)
    assert (found.execution, found.idempotent) == (Execution.ON_RETURN, False)


def test_what_a_server_was_given_is_masked() -> None:
    """Whole, and behind the word that names the kind; what is short is no secret."""

    def value(text: str) -> Callable[[], str]:
        return lambda: text

    headers = (("authorization", value("Bearer s3cret-4711")), ("x-mode", value("fast")))
    server = McpServerSpec("docs", "1", McpUrl("http://h/mcp", headers))
    assert server.mask("Bearer s3cret-4711 s3cret-4711 fast") == "*** *** fast"
    command = McpServerSpec("files", "2", McpCommand(("x",), (("TOKEN", value("s3cret-4711")),), None))
    assert command.mask("a s3cret-4711b") == "a ***b"
