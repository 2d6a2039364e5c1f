"""How a turn is found again in a history whose items do not have the ids that they were given out with.

Frameworks that store nothing upstream leave ids out, and items that were put into a conversation come back from it
under new ones. What stays is what was said. A turn is known by the user's words and the results of tools before its
answer, and by the answer's text: the last message's, and that of all its messages as one, since some frameworks make
one message of them. What else the assistant did before (reasoning, which some tell again as text) does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from proxy.core import jsontext
from proxy.core.protocol.chat import content_text, meaning
from proxy.core.protocol.response_items import message_text, read_result
from proxy.core.protocol.response_request import ResponseRequest


def answer_digests(request: ResponseRequest, texts: Sequence[str]) -> list[str]:
    """What an answer of these messages to a whole history is found by."""
    state = _begun(request)
    for item in request.items:
        state.update(_given(item))
    return list(_ends(state, texts))


def shown_digests(request: ResponseRequest, items: Sequence[Any]) -> dict[int, list[str]]:
    """For each message in a history that may have ended a turn, and whose id says nothing, what it may be found by."""
    renamed = any(isinstance(item, dict) and item.get("role") == "user" and item.get("id") for item in items)
    found: dict[int, list[str]] = {}
    state, texts, last = _begun(request), list[str](), -1
    for index, item in enumerate([*items, {"role": "user"}]):
        if isinstance(item, dict) and item.get("role") == "assistant":
            texts.append(message_text(item))
            last = index
        elif given := _given(item):
            if texts and item.get("role") == "user" and (renamed or not items[last].get("id")):
                found[last] = list(_ends(state, texts))
            state.update(given)
            texts = []
    return found


def _begun(request: ResponseRequest) -> Any:
    names = ("safety_identifier", "prompt_cache_key", "user")
    return hashlib.sha256(jsontext.render(["turn", *(request.value.get(name) or None for name in names)]))


def _given(item: Any) -> bytes:
    """What an item gives the model, empty where the model made it itself."""
    if not isinstance(item, dict) or item.get("role") == "assistant":
        return b""
    if "role" in item:
        return jsontext.render([item["role"], _content(item.get("content"))]) + b"\n"
    if (result := read_result(item)) is not None:
        return jsontext.render(["result", *result[:2]]) + b"\n"
    return b""


def _content(content: Any) -> str:
    """The same for a text, however a client writes it."""
    parts = content if isinstance(content, list) else []
    plain = all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts)
    return content_text(content) if plain else meaning(jsontext.render_text(content))


def _ends(state: Any, texts: Sequence[str]) -> Iterator[str]:
    for text in dict.fromkeys((*texts[-1:], "".join(texts))):
        end = state.copy()
        end.update(jsontext.render(["answer", text]))
        yield end.hexdigest()
