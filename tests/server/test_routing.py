"""Routing: what a target is, whatever its spelling, and which paths are open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import RequestError
from proxy.server.routing import PathGuard, Surface, origin_form, route, segments


@pytest.mark.parametrize(
    "target",
    [
        "/v1/chat/completions",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "/v1/chat/completions?x=1",
        "/v1/chat/completions#x",
        "/v1/x/../chat/completions",
        "/v1/chat/./completions",
        "/v1/chat/%63ompletions",
        "/v1/chat/%2563ompletions",
        "/v1/chat%2Fcompletions",
        "/v1/chat%5ccompletions",
        "/v1/chat\\completions",
        "/v1/Chat/Completions",
        "/v1/chat/completions;a=b",
        "/v1/chat/completions%20",
        "/v1/%2e%2e/v1/chat/completions",
        "/openai/deployments/gpt-4.1/chat/completions?api-version=2025-04-01",
        "//evil/chat/completions",
    ],
)
def test_a_chat_completion_is_one_however_it_is_spelled(target: str) -> None:
    """No spelling hides a governed path."""
    assert route("POST", target).surface is Surface.CHAT


@pytest.mark.parametrize(
    ("method", "target", "surface"),
    [
        ("GET", "/v1/chat/completions", Surface.STORED_CHAT),
        ("GET", "/v1/chat/completions/x", Surface.STORED_CHAT),
        ("POST", "/v1/chat/completions/x", Surface.STORED_CHAT),
        ("DELETE", "/v1/chat/completions/x", Surface.OTHER),
        ("GET", "/v1/chat/completions/x/messages", Surface.STORED_CHAT),
        ("GET", "/v1/chat/completions/x/else", Surface.OTHER),
        ("POST", "/v1/responses", Surface.RESPONSES),
        ("POST", "/openai/v1/responses/", Surface.RESPONSES),
        ("GET", "/v1/responses/r", Surface.STORED_RESPONSES),
        ("GET", "/v1/responses/r/input_items", Surface.STORED_RESPONSES),
        ("POST", "/v1/responses/r/cancel", Surface.STORED_RESPONSES),
        ("GET", "/v1/conversations/c/items", Surface.STORED_RESPONSES),
        ("GET", "/v1/conversations/c", Surface.OTHER),
        ("POST", "/v1/realtime/sessions", Surface.UNGOVERNED),
        ("POST", "/v1/threads/t/runs", Surface.UNGOVERNED),
        ("POST", "/v1/threads/runs", Surface.UNGOVERNED),
        ("GET", "/v1/threads/t/runs/r/steps", Surface.UNGOVERNED),
        ("GET", "/v1/threads/t/messages", Surface.OTHER),
        ("POST", "/v1/batches", Surface.UNGOVERNED),
        ("GET", "/v1/batches/b", Surface.UNGOVERNED),
        ("POST", "/v1/messages", Surface.UNGOVERNED),
        ("POST", "/v1/messages/count_tokens", Surface.UNGOVERNED),
        ("POST", "/api/chat", Surface.UNGOVERNED),
        ("POST", "/api/generate", Surface.UNGOVERNED),
        ("POST", "/v1beta/models/m:generateContent", Surface.UNGOVERNED),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", Surface.UNGOVERNED),
        ("POST", "/model/m/converse", Surface.UNGOVERNED),
        ("GET", "/v1/models", Surface.OTHER),
        ("GET", "/", Surface.OTHER),
        ("GET", "/..", Surface.OTHER),
    ],
)
def test_a_request_is_what_its_path_says(method: str, target: str, surface: Surface) -> None:
    """Method and path decide what a request talks to."""
    assert route(method, target).surface is surface


def test_responses_over_a_socket_are_a_surface_of_their_own() -> None:
    """The upgrade of a responses path is told apart from a POST to it."""
    assert route("GET", "/v1/responses", upgrade=True).surface is Surface.RESPONSES_SOCKET


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/models", "/v1/models"),
        ("http://evil/v1/models?x", "/v1/models?x"),
        ("http://evil", "/"),
        ("http://evil?x=1", "/?x=1"),
        ("*", "/"),
        ("", "/"),
        ("//evil/x", "//evil/x"),
        ("evil:80", "/evil:80"),
    ],
)
def test_an_absolute_target_loses_its_host(target: str, expected: str) -> None:
    """Only path and query of a target count."""
    assert origin_form(target) == expected


@given(st.text(alphabet="/.%2eEfF\\;?#ab5c", max_size=30))
def test_any_target_has_plain_segments(target: str) -> None:
    """No segment of a normalised path is empty, a dot, or holds a slash."""
    assert not {"", ".", ".."} & set(segments("/" + target))
    assert not any("/" in part or "\\" in part for part in segments("/" + target))


def allowed(guard: PathGuard, target: str) -> bool:
    try:
        guard.check(route("GET", target))
    except RequestError as error:
        return (error.status, error.code) != (403, "path_not_allowed")
    return True


@pytest.mark.parametrize(
    ("target", "passes"),
    [
        ("/v1/models", True),
        ("/v1/models/gpt", True),
        ("/v1/chat/completions", True),
        ("/v1/modelsx", False),
        ("/v1/organization/admin_api_keys", False),
        ("/v1/models/../files/x/../../organization", False),
        ("/v1/organization/../models", False),
        ("/v1/organization%2F..%2Fmodels", False),
        ("/other", False),
    ],
)
def test_a_key_opens_its_own_paths_only(target: str, passes: bool) -> None:
    """With a key of the configuration both readings of a path must be open."""
    assert allowed(PathGuard(None, has_key=True), target) is passes


def test_paths_are_opened_by_globs_alone_when_there_are_any() -> None:
    """A list of globs takes the place of what the key opens."""
    guard = PathGuard(["/v1/fine_tuning/*"], has_key=True)
    assert allowed(guard, "/v1/fine_tuning/jobs/1")
    assert not allowed(guard, "/v1/models")


def test_without_key_and_globs_every_path_is_open() -> None:
    """A transparent proxy has no list of paths."""
    assert allowed(PathGuard(None, has_key=False), "/anything")
