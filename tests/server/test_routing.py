"""Routing: what a target is, whatever its spelling, and which paths are open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import RequestError
from proxy.server.routing import PathGuard, Surface, origin_form, response_id, route, segments


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
        "/v1/chat/completions%00",
        "/v1/chat/completions%00.json",
        "/v1/chat/completions%3Fa",
        "/v1/chat/completions%23a",
        "/v1/chat/completions%253Fa=b",
        "/v1/chat/completions%3fa/b",
        "/v1/chat/completions%23/../../models",
        "/v1/chat/completions%3Bx",
        "/v1/chat/comple%0Ations",
        "/v1/x%3F/chat/completions",
        "/v1/models%00/chat/completions",
        "/v1/chat/completions/%2E",
        "/v1/%2e%2e/v1/chat/completions",
        "/openai/deployments/gpt-4.1/chat/completions?api-version=2025-04-01",
        "//evil/chat/completions",
    ],
)
def test_a_chat_completion_is_one_however_it_is_spelled(target: str) -> None:
    """No spelling hides a governed path."""
    assert route("POST", target).surface is Surface.CHAT
    assert not route("POST", target).is_ambiguous


@pytest.mark.parametrize(
    "target",
    [
        "/v1/responses",
        "/openai/v1/responses/",
        "/openai/responses?api-version=2025-04-01-preview",
        "/openai/deployments/d/Responses;v=1",
        "/v1/responses%00",
        "/v1/responses%3Fa=b",
        "/v1/responses%2523",
        "/v1%2fresponses",
        "/v1/responses/x/y/responses",
        "/v1/chat/completions/responses",
        "/v1/conversations/c/responses",
    ],
)
def test_a_response_is_one_however_it_is_spelled(target: str) -> None:
    """Whatever stands before the last segment."""
    assert route("POST", target).surface is Surface.RESPONSES
    assert route("GET", target, upgrade=True).surface is Surface.RESPONSES_SOCKET
    assert route("GET", target).surface is Surface.STORED_RESPONSES
    assert not route("POST", target).is_ambiguous


@pytest.mark.parametrize(
    "target",
    [
        "/v1/messages%3F/chat/completions",
        "/v1/responses%3F/../chat/completions",
        "/v1/chat/completions%00/../../responses",
        "/v1/batches%23/responses/r",
    ],
)
def test_a_path_of_two_apis_is_told(target: str) -> None:
    """Where one reader sees one API and another reader another."""
    assert route("POST", target).is_ambiguous


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
        ("DELETE", "/v1/responses/r", Surface.STORED_RESPONSES),
        ("POST", "/v1/responses/compact", Surface.STORED_RESPONSES),
        ("POST", "/v1/responses/input_tokens", Surface.STORED_RESPONSES),
        ("GET", "/v1/responses/r%3Fstream=true", Surface.STORED_RESPONSES),
        ("GET", "/v1/responses/r%00/x/y/z", Surface.STORED_RESPONSES),
        ("GET", "/openai/v1/responses/r/input_items?limit=1", Surface.STORED_RESPONSES),
        ("GET", "/v1/responses/r/a/b", Surface.OTHER),
        ("GET", "/v1/conversations/c/items", Surface.STORED_RESPONSES),
        ("POST", "/v1/conversations/c/items", Surface.STORED_RESPONSES),
        ("GET", "/v1/conversations/c/items/i", Surface.STORED_RESPONSES),
        ("DELETE", "/v1/conversations/c/items/i", Surface.STORED_RESPONSES),
        ("GET", "/openai/v1/conversations/c%2Fitems%3Flimit=1", Surface.STORED_RESPONSES),
        ("GET", "/v1/conversations/conversations/c/items", Surface.STORED_RESPONSES),
        ("GET", "/v1/conversations/c", Surface.OTHER),
        ("POST", "/v1/conversations/c", Surface.OTHER),
        ("POST", "/v1/conversations", Surface.OTHER),
        ("POST", "/v1/chat/completions/x/y/z", Surface.OTHER),
        ("POST", "/v1/chat/%252525252563ompletions", Surface.OTHER),
        ("POST", "/v1/realtime/sessions", Surface.UNGOVERNED),
        ("POST", "/v1/realtime/calls", Surface.UNGOVERNED),
        ("GET", "/v1/realtime?model=m", Surface.UNGOVERNED),
        ("GET", "/openai/v1/realtime%3Fmodel=m", Surface.UNGOVERNED),
        ("POST", "/v1/threads/t/runs", Surface.UNGOVERNED),
        ("POST", "/v1/threads/runs", Surface.UNGOVERNED),
        ("GET", "/v1/threads/t/runs/r/steps", Surface.UNGOVERNED),
        ("GET", "/openai/threads/t/runs/r/steps/s?api-version=v", Surface.UNGOVERNED),
        ("POST", "/v1/threads/t/runs/r/submit_tool_outputs", Surface.UNGOVERNED),
        ("POST", "/v1/threads/t/runs%00", Surface.UNGOVERNED),
        ("GET", "/v1/threads/t/messages", Surface.OTHER),
        ("POST", "/v1/batches", Surface.UNGOVERNED),
        ("GET", "/v1/batches/b", Surface.UNGOVERNED),
        ("POST", "/openai/v1/batches/b/cancel", Surface.UNGOVERNED),
        ("POST", "/v1/messages/batches", Surface.UNGOVERNED),
        ("POST", "/v1/messages", Surface.UNGOVERNED),
        ("POST", "/v1/messages/count_tokens", Surface.UNGOVERNED),
        ("POST", "/api/chat", Surface.UNGOVERNED),
        ("POST", "/api/generate", Surface.UNGOVERNED),
        ("POST", "/api/chat%3Fx", Surface.UNGOVERNED),
        ("POST", "/ollama/API/Chat/", Surface.UNGOVERNED),
        ("POST", "/v1beta/models/m:generateContent", Surface.UNGOVERNED),
        ("POST", "/v1beta/models/m%3AgenerateContent%3Falt=sse", Surface.UNGOVERNED),
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
    ("target", "found", "spelled"),
    [
        ("/v1/responses/resp_Ab", "resp_Ab", "resp_Ab"),
        ("/v1/responses/resp_Ab/", "resp_Ab", "resp_Ab"),
        ("//v1//responses//resp_Ab//input_items?after=resp_Ab", "resp_Ab", "resp_Ab"),
        ("/openai/v1/responses/resp_Ab/cancel?api-version=v", "resp_Ab", "resp_Ab"),
        ("/v1/Responses/resp%5FAb?include=x", "resp_Ab", "resp%5FAb"),
        ("/v1/responses/resp%255FAb", "resp_Ab", "resp%255FAb"),
        ("/v1%2Fresponses%2fresp_Ab%5Ccancel", "resp_Ab", "resp_Ab"),
        ("/v1%252Fresponses%252Fresp_Ab", "resp_Ab", "resp_Ab"),
        ("/v1/responses/resp_Ab%00x", "resp_Ab", "resp_Ab%00x"),
        ("/v1/responses/resp_Ab%3Fstream=true", "resp_Ab", "resp_Ab%3Fstream=true"),
        ("/v1/responses/resp_Ab;v=1/./input_items", "resp_Ab", "resp_Ab;v=1"),
        ("/v1/responses/%20resp_Ab", "resp_Ab", "%20resp_Ab"),
        ("/v1/responses/r/responses/resp_Ab", "resp_Ab", "resp_Ab"),
    ],
)
def test_the_id_of_a_stored_response_is_found_where_it_stands(target: str, found: str, spelled: str) -> None:
    """Another one can be put in its place, and the rest of the target stays as it is spelled."""
    place = response_id(target)
    assert place is not None
    name, begin, end = place
    assert (name, target[begin:end]) == (found, spelled)
    other = f"{target[:begin]}other{target[end:]}"
    assert response_id(other) == ("other", begin, begin + 5)
    assert route("GET", other).surface is route("GET", target).surface is Surface.STORED_RESPONSES


@pytest.mark.parametrize(
    "target",
    [
        "/v1/responses",
        "/v1/responses?x=/responses/r",
        "/v1/responses/compact",
        "/v1/responses/Input%5Ftokens",
        "/v1/conversations/c/items",
        "/v1/responses/x/../r",
        "/v1/responses%2%46r",
        "/v1/models/r",
        "/",
        "",
    ],
)
def test_where_no_id_stands_none_is_found(target: str) -> None:
    """Nor where nobody can say how the parts of the path are spelled."""
    assert response_id(target) is None


@given(st.text(alphabet="/.%2eEfF5cC\\;?#0ab responses", max_size=40))
def test_a_place_that_is_found_is_a_part_of_the_path(tail: str) -> None:
    """Whatever stands there instead is read as the id, and nothing else changes."""
    target = "/v1/responses/" + tail
    if (found := response_id(target)) is not None:
        name, begin, end = found
        assert name
        assert 0 < begin < end <= len(target)
        before, after = segments(target), segments(f"{target[:begin]}other{target[end:]}")
        assert [one for one, two in zip(before, after, strict=True) if one != two] in ([name.lower()], [])


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
        ("/v1/models/x%3F/y", True),
        ("/v1/files/..%2F..%2Forganization%3F/x/../../../v1/files/a", False),
        ("/v1/files/..%2F..%2Forganization%00/x/../../../v1/files/a", False),
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
