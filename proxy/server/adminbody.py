"""Bodies of requests on the admin port: bounded, and JSON or a form of the page."""

from __future__ import annotations

from urllib.parse import parse_qs

from aiohttp import web

from proxy.errors import RequestError

_FORM = "application/x-www-form-urlencoded"
MOST_BODY = 64 << 10


async def read_body(request: web.BaseRequest, most: int = MOST_BODY) -> bytes:
    """The whole body. Raises RequestError (413) for a longer one."""
    if request.content_length is not None and request.content_length > most:
        raise RequestError("the body is too long", status=413)
    data = b""
    async for piece in request.content.iter_any():
        data += piece
        if len(data) > most:
            raise RequestError("the body is too long", status=413)
    return data


def is_form(request: web.BaseRequest, body: bytes) -> bool:
    """Whether a body is a form of the page. JSON is none, whatever its type says: `curl -d` calls every body a form,
    and no form of the page begins as JSON does."""
    return request.content_type == _FORM and not body.lstrip().startswith((b"{", b"[", b'"'))


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a form; of one that comes twice the last."""
    found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[-1] for key, values in found.items()}
