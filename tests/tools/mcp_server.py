"""An MCP server of the package `mcp`: as a program over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import os

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, TextContent, ToolAnnotations
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

server = MCPServer("tests", log_level="CRITICAL")


@server.tool(description="Adds.", annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> int:
    return a + b


@server.tool(structured_output=False)
def parts() -> list[TextContent | ImageContent]:
    return [
        TextContent(type="text", text="one"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        TextContent(type="text", text="two"),
    ]


@server.tool()
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "at last"


@server.tool()
def fail() -> str:
    raise ToolError("there is no such order")


@server.tool()
def process() -> str:
    return str(os.getpid())


@server.tool(structured_output=False)
async def grow(name: str, context: Context) -> str:
    def grown() -> str:
        return "grown"

    server.add_tool(grown, name=name)
    await context.notify_tools_changed()
    if (context.protocol_version or "") < "2026":
        await context.request_context.session.send_tool_list_changed()
    return "it grew"


class Handshakes:
    """Refuses to be discovered."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope.get("headers", [])).get(b"mcp-method") != b"server/discover":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def serve(port: int, *, handshake: bool) -> None:
    """Serve over HTTP; with a handshake what the newest version of the protocol begins with is refused, so that
    clients open a session."""
    app = server.streamable_http_app()
    served = Handshakes(app) if handshake else app
    anyio.run(uvicorn.Server(uvicorn.Config(served, port=port, log_level="critical")).serve)


if __name__ == "__main__":
    server.run()
