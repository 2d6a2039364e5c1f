"""From the result of an MCP tool to text."""

from __future__ import annotations

import pytest

from proxy.core.jsontext import Json
from proxy.tools.mcp_results import result_text

TEXT: Json = {"type": "text", "text": "one"}
RESOURCE = {"uri": "file:///a.txt", "mimeType": "text/plain"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], ""),
        ([TEXT, {"type": "text", "text": "two\n"}], "one\ntwo\n"),
        ([TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/png"}], "one\n(image, image/png, 3 bytes)"),
        ([{"type": "audio", "data": "AAA=", "mimeType": "audio/wav"}], "(audio, audio/wav, 2 bytes)"),
        ([{"type": "image", "data": "AA==", "mimeType": ""}], "(image, 1 bytes)"),
        (
            [{"type": "resource", "resource": {**RESOURCE, "text": "hé"}}],
            "(resource file:///a.txt, text/plain, 3 bytes)\nhé",
        ),
        ([{"type": "resource", "resource": {"uri": "b:1", "blob": "AAAA"}}], "(resource b:1, 3 bytes)"),
        ([{"type": "resource_link", **RESOURCE, "size": 7}], "(link to file:///a.txt, text/plain, 7 bytes)"),
        ([{"type": "resource_link", **RESOURCE}], "(link to file:///a.txt, text/plain)"),
        ([{"type": "hologram"}, 7], "(part of the kind hologram)"),
    ],
)
def test_parts_become_lines(content: list[Json], text: str) -> None:
    """What is no text becomes a note of its kind and size."""
    assert result_text({"content": content, "structuredContent": None}) == (text, False)


def test_structured_content_speaks_where_there_is_no_text() -> None:
    """Servers give the same as text where they can."""
    assert result_text({"content": [], "structuredContent": {"sum": 3}}) == ('{"sum":3}', False)
    assert result_text({"content": [TEXT], "structuredContent": {"sum": 3}}) == ("one", False)


def test_an_error_is_what_the_tool_says_without_a_stack() -> None:
    """The model is to do better next time."""
    said = "no such order\nTraceback (most recent call last):\n  File secret"
    assert result_text({"content": [{"type": "text", "text": said}], "isError": True}) == ("no such order", True)
    assert result_text({"content": [{"type": "text", "text": said}], "isError": False}) == (said, False)
