"""Who may use the admin page: the token, and where a request comes from.

A program shows the token as `Authorization: Bearer`. A browser that opens the page cannot, so it is asked for a name
and a password (`Basic`), and the token is the password. From then on it sends them by itself, also where a page of
another site makes it: a request that changes something must come from the page itself.
"""

from __future__ import annotations

import binascii
import hmac
import ipaddress
from base64 import b64decode
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDict

from proxy.core.jsontext import render

_READS = ("GET", "HEAD")
_CHALLENGES = ("Bearer", 'Basic realm="Sidecall: any name, the admin token as the password", charset="UTF-8"')


def is_local_host(host: str) -> bool:
    """Whether a `Host` names this machine. A page of another site cannot make a browser send that one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def shown_token(authorization: str) -> bytes | None:
    """The token that a header shows: a bearer token, or the password beside any name. None: it shows none."""
    scheme, _, shown = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return shown.strip().encode("utf-8", "surrogateescape")
        case "basic":
            try:
                _, colon, password = b64decode(shown.strip(), validate=True).partition(b":")
            except (ValueError, binascii.Error):
                return None
            return password if colon else None
        case _:
            return None


def is_from_elsewhere(request: web.BaseRequest) -> bool:
    """Whether a browser says that a page of another origin made it send this. A program says neither."""
    fetched = request.headers.get("sec-fetch-site")
    if fetched is not None:  # `same-site` is another port or subdomain, and not ours
        return fetched not in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


def refusal(request: web.BaseRequest, *, token: str | None, insecure: bool) -> web.Response | None:
    """Why a request may not see or do what it asks for; None when it may."""
    if token is not None:
        shown = shown_token(request.headers.get("authorization", ""))
        if shown is None or not hmac.compare_digest(shown, token.encode()):
            return problem(401, "the admin token is missing or wrong")
    elif not insecure:
        return problem(404, "there is nothing here")
    elif not _is_of_this_machine(request):
        return problem(403, "without a token the admin page answers requests of this machine only")
    if request.method not in _READS and is_from_elsewhere(request):
        return problem(403, "a page of another site cannot change anything here")
    return None


def _is_of_this_machine(request: web.BaseRequest) -> bool:
    origin = request.headers.get("origin")
    return is_local_host(request.headers.get("host", "")) and (origin is None or is_local_host(urlsplit(origin).netloc))


def problem(status: int, message: str) -> web.Response:
    """An error of the admin port, in the shape of every other."""
    body = render({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
    headers = CIMultiDict({"cache-control": "no-store"})
    if status == 401:
        for challenge in _CHALLENGES:
            headers.add("www-authenticate", challenge)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
