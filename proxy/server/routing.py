"""What a request's target is, whatever its spelling.

A target is normalised for the decision only: percent-encoding, double and trailing slashes, dots, backslashes,
path parameters and case must not make a governed path look like another one. What is forwarded is the target
as the client spelled it. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from proxy.errors import RequestError


class Surface(StrEnum):
    """What a request talks to."""

    CHAT = "chat"  # makes a chat completion
    STORED_CHAT = "stored_chat"  # reads stored chat completions again
    RESPONSES = "responses"  # makes a response
    STORED_RESPONSES = "stored_responses"  # reads, cancels, lists responses, or a conversation's items
    RESPONSES_SOCKET = "responses_socket"  # Responses over WebSocket
    UNGOVERNED = "ungoverned"  # can carry tool calls, and is not governed
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is the normalised path, for the eye and for `paths.allow`; `literal` keeps its dot segments."""

    surface: Surface
    path: str
    literal: str


OPEN_WITH_KEY = (
    "chat/completions",
    "responses",
    "conversations",
    "models",
    "embeddings",
    "files",
    "audio",
    "images",
    "moderations",
)
"""What a key of the configuration opens below `/v1/`."""

_DECODINGS = 4
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_BEDROCK = ("converse", "converse-stream", "invoke", "invoke-with-response-stream")
_MODEL_VERB = re.compile(r":(stream)?(generatecontent|rawpredict)$")


def origin_form(target: str) -> str:
    """A request's target as path and query: an absolute one loses scheme and host, which decide nothing."""
    if found := _ABSOLUTE.match(target):
        target = target[found.end() :]
    return target if target.startswith("/") else "/" + target.removeprefix("*")


def segments(target: str, *, resolve: bool = True) -> list[str]:
    """The segments of a target's path, in lower case, as a reader would see them that decodes all it can."""
    path = re.split(r"[?#]", target, maxsplit=1)[0]
    for _ in range(_DECODINGS):
        decoded = unquote(path, errors="replace")
        if decoded == path:
            break
        path = decoded
    parts = [part.split(";")[0].strip().lower() for part in re.split(r"[/\\]", path)]
    found: list[str] = []
    for part in parts:
        if part == ".." and resolve:
            found = found[:-1]
        elif part not in ("", "."):
            found.append(part)
    return found


def route(method: str, target: str, *, upgrade: bool = False) -> Route:
    """What a request talks to."""
    parts = segments(target)
    literal = "/" + "/".join(segments(target, resolve=False))
    return Route(_surface(method, parts, upgrade=upgrade), "/" + "/".join(parts), literal)


def _surface(method: str, parts: Sequence[str], *, upgrade: bool) -> Surface:
    if found := _chat(method, parts) or _responses(parts, upgrade=upgrade):
        return found
    return Surface.UNGOVERNED if _other_dialect(parts) else Surface.OTHER


def _chat(method: str, parts: Sequence[str]) -> Surface | None:
    for back in (0, 1, 2):
        end = len(parts) - back
        if end >= 2 and parts[end - 2] == "chat" and parts[end - 1] == "completions":
            if back == 0:
                return Surface.CHAT if method not in ("GET", "HEAD") else Surface.STORED_CHAT
            if back == 2 and parts[-1] != "messages":
                return None
            return Surface.OTHER if method == "DELETE" else Surface.STORED_CHAT
    return None


def _responses(parts: Sequence[str], *, upgrade: bool) -> Surface | None:
    if "responses" in parts:
        below = len(parts) - 1 - parts.index("responses")
        if below == 0:
            return Surface.RESPONSES_SOCKET if upgrade else Surface.RESPONSES
        return Surface.STORED_RESPONSES if below <= 2 else None
    if "conversations" in parts:
        below = len(parts) - 1 - parts.index("conversations")
        return Surface.STORED_RESPONSES if below >= 2 and parts[parts.index("conversations") + 2] == "items" else None
    return None


def _other_dialect(parts: Sequence[str]) -> bool:
    if not parts:
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if "realtime" in parts or "batches" in parts[-3:]:
        return True
    if "threads" in parts and "runs" in parts[parts.index("threads") :]:
        return True
    if last == "messages" or before == "messages":
        return "threads" not in parts
    if before == "api" and last in ("chat", "generate"):
        return True
    return last in _BEDROCK or _MODEL_VERB.search(last) is not None


def _glob(pattern: str) -> re.Pattern[str]:
    """A glob whose stars cross slashes."""
    text = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern.lower())
    return re.compile(text, re.DOTALL)


class PathGuard:
    """Which paths pass at all: those of `paths.allow`, or with a key of the configuration those that it opens."""

    def __init__(self, allow: Sequence[str] | None, *, has_key: bool) -> None:
        if allow is None and has_key:
            allow = [f"/v1/{name}{rest}" for name in OPEN_WITH_KEY for rest in ("", "/*")]
        self._globs = None if allow is None else [_glob(pattern) for pattern in allow]

    def check(self, found: Route) -> None:
        """Raises RequestError. Both readings of dot segments must pass: nobody knows which the upstream takes."""
        if self._globs is None:
            return
        for path in (found.path, found.literal):
            if not any(glob.fullmatch(path) for glob in self._globs):
                raise RequestError(
                    "this path is not open to callers of this proxy", code="path_not_allowed", status=403
                )
