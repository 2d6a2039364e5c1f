"""A small scripted upstream: an OpenAI-compatible endpoint on loopback that needs no key and no model.

What it says stands in `script.py`. It is for trying Sidecall out; it must not know that there is a proxy before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from proxy.core.jsontext import Object, parse, render
from proxy.demo.responses import Kept, UnknownResponseError, respond
from proxy.demo.responses import render_events as response_events
from proxy.demo.script import CREATED, MODEL, play, render_completion, render_events

_WORD_PAUSE = 0.03
"""Seconds between the words of a stream: slow enough to see that they come one by one."""
_MAX_BODY = 4 * 1024 * 1024
_KEPT = web.AppKey("kept", Kept)


async def _complete(request: web.Request) -> web.StreamResponse:
    asked = await _asked(request)
    if asked is None:
        return _error(400, "The body is not a JSON object.")
    turn = play(asked)
    if asked.get("stream") is not True:
        return web.Response(body=render_completion(turn), content_type="application/json")
    options = asked.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    return await _stream(request, render_events(turn, with_usage=with_usage))


async def _respond(request: web.Request) -> web.StreamResponse:
    asked = await _asked(request)
    if asked is None:
        return _error(400, "The body is not a JSON object.")
    try:
        response = respond(asked, request.app[_KEPT])
    except UnknownResponseError as error:
        return _error(400, str(error))
    if asked.get("stream") is not True:
        return web.Response(body=render(response), content_type="application/json")
    return await _stream(request, response_events(response))


async def _stored(request: web.Request) -> web.Response:
    found = request.app[_KEPT].responses.get(request.match_info["id"])
    if found is None:
        return _error(404, "There is no such response.")
    return web.Response(body=render(found[0]), content_type="application/json")


async def _asked(request: web.Request) -> Object | None:
    try:
        asked = parse(await request.read())
    except ValueError:
        return None
    return asked if isinstance(asked, dict) else None


async def _stream(request: web.Request, events: Sequence[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
        await asyncio.sleep(_WORD_PAUSE)
    await response.write_eof()
    return response


async def _models(request: web.Request) -> web.Response:
    model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "sidecall"}
    return web.Response(body=render({"object": "list", "data": [model]}), content_type="application/json")


async def _unknown(request: web.Request) -> web.Response:
    return _error(
        404,
        "The demo upstream has POST /v1/chat/completions, POST /v1/responses, GET /v1/responses/ID, GET /v1/models.",
    )


def _error(status: int, message: str) -> web.Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
    return web.Response(status=status, body=render(body), content_type="application/json")


def build_app() -> web.Application:
    app = web.Application(client_max_size=_MAX_BODY)
    app[_KEPT] = Kept()
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_post("/v1/responses", _respond)
    app.router.add_get("/v1/responses/{id}", _stored)
    app.router.add_get("/v1/models", _models)
    app.router.add_route("*", "/{path:.*}", _unknown)
    return app


def run(host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM. Raises OSError for an address that cannot be listened on."""
    web.run_app(build_app(), host=host, port=port, print=None, access_log=None, shutdown_timeout=1.0)
