"""What a request's target is, whatever its spelling.

A target is normalised for the decision only: percent-encoding, double and trailing slashes, dots, backslashes,
path parameters and case must not make a governed path look like another one. Where two readers could read a path
differently it has several readings, and is governed when one of them is. What is forwarded is the target as the
client spelled it. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from proxy.errors import RequestError


class Surface(StrEnum):
    """What a request talks to; where readings of its path differ, the first here counts."""

    CHAT = "chat"  # makes a chat completion
    RESPONSES = "responses"  # makes a response
    RESPONSES_SOCKET = "responses_socket"  # Responses over WebSocket
    STORED_CHAT = "stored_chat"  # reads stored chat completions again
    STORED_RESPONSES = "stored_responses"  # reads, cancels, lists responses, or a conversation's items
    UNGOVERNED = "ungoverned"  # can carry tool calls, and is not governed
    OTHER = "other"

    @property
    def api(self) -> str:
        """The API that it is of, as metrics and logs name it."""
        return _APIS.get(self, "other")


_APIS = {
    Surface.CHAT: "chat",
    Surface.STORED_CHAT: "chat",
    Surface.RESPONSES: "responses",
    Surface.RESPONSES_SOCKET: "responses",
    Surface.STORED_RESPONSES: "responses",
}


@dataclass(frozen=True, slots=True)
class Route:
    """`paths` are the readings of the path, for `paths.allow`: with dot segments resolved and with them kept, to its
    end and to the first byte at which a reader might end it. `is_ambiguous`: they belong to several APIs."""

    surface: Surface
    paths: tuple[str, ...]
    is_ambiguous: bool = False


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
_PATH_END = re.compile(r"[?#]")
_MAYBE_END = re.compile(r"[?#\0]")
"""Where a reader may end a path that has these encoded."""
_SEGMENT_END = re.compile(r"[;?#\0]")
_SEPARATOR = re.compile(r"[/\\]")
_CONTROL = dict.fromkeys((*range(1, 32), 127))
_SPELLED_SEPARATOR = re.compile(r"/|\\|%(?:25){0,3}(?:2f|5c)", re.IGNORECASE)
_NO_RESPONSE = ("compact", "input_tokens")
"""What stands in the place of an id and is none."""


def origin_form(target: str) -> str:
    """A request's target as path and query: an absolute one loses scheme and host, which decide nothing."""
    if found := _ABSOLUTE.match(target):
        target = target[found.end() :]
    return target if target.startswith("/") else "/" + target.removeprefix("*")


def _decoded(text: str) -> str:
    """As a reader would see it that decodes all it can."""
    for _ in range(_DECODINGS):
        decoded = unquote(text, errors="replace")
        if decoded == text:
            break
        text = decoded
    return text


def _plain(part: str) -> str:
    """A decoded segment without parameters, and without what some readers drop or end it at."""
    return _SEGMENT_END.split(part, maxsplit=1)[0].translate(_CONTROL).strip()


def _segments(path: str, *, resolve: bool) -> list[str]:
    found: list[str] = []
    for part in map(_plain, _SEPARATOR.split(path)):
        if part == ".." and resolve:
            found = found[:-1]
        elif part not in ("", "."):
            found.append(part.lower())
    return found


def segments(target: str) -> list[str]:
    """The segments of a target's path to its end, in lower case."""
    return _segments(_decoded(_PATH_END.split(target, maxsplit=1)[0]), resolve=True)


def route(method: str, target: str, *, upgrade: bool = False) -> Route:
    """What a request talks to."""
    path = _decoded(_PATH_END.split(target, maxsplit=1)[0])
    ends = dict.fromkeys((path, _MAYBE_END.split(path, maxsplit=1)[0]))
    readings = [_segments(end, resolve=resolve) for end in ends for resolve in (True, False)]
    surfaces = {_surface(method, reading, upgrade=upgrade) for reading in readings[::2]}
    apis = {surface.api for surface in surfaces if surface is not Surface.OTHER}
    paths = tuple("/" + "/".join(reading) for reading in readings)
    return Route(next(surface for surface in Surface if surface in surfaces), paths, len(apis) > 1)


def response_id(target: str) -> tuple[str, int, int] | None:
    """The id of the stored response that a target names, decoded, and the place of its spelling in the target: another
    id can be put there. None where it names none, or where nobody can say how its parts are spelled."""
    found = _named(target, "responses")
    return None if found is None or found[0].lower() in _NO_RESPONSE else found


def conversation_id(target: str) -> str:
    """The id of the conversation that a target names; empty where it names none."""
    found = _named(target, "conversations")
    return found[0] if found else ""


def _named(target: str, collection: str) -> tuple[str, int, int] | None:
    """What stands behind the name of a collection in a target, and where."""
    end = found.start() if (found := _PATH_END.search(target)) else len(target)
    cuts = [(found.start(), found.end()) for found in _SPELLED_SEPARATOR.finditer(target, 0, end)]
    begins, ends = [0, *(cut[1] for cut in cuts)], [*(cut[0] for cut in cuts), end]
    spelled = [(_plain(_decoded(target[a:b])), a, b) for a, b in zip(begins, ends, strict=True)]
    spelled = [one for one in spelled if one[0] not in ("", ".")]
    names = [name.lower() for name, _, _ in spelled]
    if names != segments(target) or collection not in names[:-1]:
        return None
    return spelled[_last(names[:-1], collection) + 1]


def _surface(method: str, parts: Sequence[str], *, upgrade: bool) -> Surface:
    reads = method in ("GET", "HEAD")
    if parts[-1:] == ["responses"]:
        if upgrade:
            return Surface.RESPONSES_SOCKET
        return Surface.STORED_RESPONSES if reads else Surface.RESPONSES
    if parts[-2:] == ["chat", "completions"]:
        return Surface.STORED_CHAT if reads else Surface.CHAT
    if found := _stored_chat(method, parts) or _stored_responses(parts):
        return found
    return Surface.UNGOVERNED if _other_dialect(parts) else Surface.OTHER


def _stored_chat(method: str, parts: Sequence[str]) -> Surface | None:
    if parts[-3:-1] == ["chat", "completions"] or (parts[-4:-2] == ["chat", "completions"] and parts[-1] == "messages"):
        return Surface.OTHER if method == "DELETE" else Surface.STORED_CHAT
    return None


def _stored_responses(parts: Sequence[str]) -> Surface | None:
    if "responses" in parts[-3:-1]:
        return Surface.STORED_RESPONSES
    if "conversations" in parts and parts[_last(parts, "conversations") + 2 :][:1] == ["items"]:
        return Surface.STORED_RESPONSES
    return None


def _last(parts: Sequence[str], name: str) -> int:
    """Where a name stands last."""
    return max(place for place, part in enumerate(parts) if part == name)


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
        """Raises RequestError. Every reading of the path must pass: nobody knows which the upstream takes."""
        if self._globs is None:
            return
        for path in found.paths:
            if not any(glob.fullmatch(path) for glob in self._globs):
                raise RequestError(
                    "this path is not open to callers of this proxy", code="path_not_allowed", status=403
                )
