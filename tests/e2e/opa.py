"""A server that speaks Open Policy Agent's data API to the letter of its documentation, with real Rego behind it.

Rego is judged by another implementation than Open Policy Agent's own (rego-cpp), which cannot be had as a package.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp.test_utils
from aiohttp import web
from regopy import Interpreter

_PREFIX = "/v1/data/"


@dataclass
class Agent:
    """`inputs` are what it was asked about."""

    module: str
    url: str = ""
    inputs: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        if request.method != "POST" or not request.path.startswith(_PREFIX):
            return _problem(405 if request.path.startswith(_PREFIX) else 404, "not_found", "page not found")
        try:
            document = json.loads(await request.read())
            given = document["input"]
        except (ValueError, KeyError, TypeError):
            return _problem(400, "invalid_parameter", "request body contains malformed input document")
        self.inputs.append(given)
        return web.json_response(self._answer(request.path.removeprefix(_PREFIX).strip("/").replace("/", "."), given))

    def _answer(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        """The document at a path; one that is undefined has no `result`, and is no error."""
        rego = Interpreter()
        rego.add_module("tools", self.module)
        rego.set_input(given)
        output = str(rego.query(f"data.{path}"))
        if output == "undefined":
            return {}
        return {"result": json.loads(output)["expressions"][0]}


def _problem(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)


@asynccontextmanager
async def agent(module: str) -> AsyncIterator[Agent]:
    """A running agent with one module."""
    running = Agent(module)
    async with aiohttp.test_utils.RawTestServer(running) as server:
        running.url = str(server.make_url(_PREFIX))
        yield running
