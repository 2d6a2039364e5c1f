from __future__ import annotations

import pytest

from proxy.core.policy.folders import Folder

INSIDE = [
    "/workspace/a",
    "/workspace",
    "/workspace/",
    "a/b",
    "./a",
    "/workspace/b/../a",
    "/workspace/./a//b",
    "",
    "//workspace/a",
]
OUTSIDE = ["/etc/passwd", "/workspace/../etc", "/workspace//../x", "../a", "a/../../x", "/workspaces/a", "//etc"]
OUTSIDE += ["C:\\x", "file:///etc/passwd", "/workspace/a\0b"]
BOTH = [" /etc/passwd", "..\\x", "a\\..\\..\\x"]


@pytest.mark.parametrize(
    ("path", "answers"),
    [*((p, {True}) for p in INSIDE), *((p, {False}) for p in OUTSIDE), *((p, {True, False}) for p in BOTH)],
)
def test_a_path_is_inside_by_each_reading(path: str, answers: set[bool]) -> None:
    """Dots and slashes are resolved, and a text with two readings has both answers."""
    assert Folder.of("/workspace/").takes_in(path) == answers


def test_everything_is_inside_the_root() -> None:
    """The root takes in every path."""
    assert Folder.of("/").takes_in("../etc") == {True}


def test_a_folder_is_absolute() -> None:
    """A relative folder is a mistake."""
    with pytest.raises(ValueError, match="absolute"):
        Folder.of("workspace")
