"""Finding policy files, reading them, and making one set of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.core.calls import CallId, Owner, RequestFacts, ToolCall
from proxy.core.policy.verdicts import DefaultAction, Subject
from proxy.errors import ConfigError
from proxy.policyfiles import find_files, fingerprint, load_policies, read_policies

Write = Callable[..., Path]


def policy(name: str, *rules: str) -> str:
    lines = "".join(f"    - {rule}\n" for rule in rules or ("{name: r, allow: {}}",))
    return f"apiVersion: sidecall.io/v1\nkind: ToolPolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n{lines}"


TEST = "apiVersion: sidecall.io/v1\nkind: ToolPolicyTest\nmetadata: {name: t}\ncases: []\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(name: str, text: str = "") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text or policy("of-" + file.stem.replace(".", "-")))
        return file

    return to


def found(folder: Path, *patterns: str) -> list[str]:
    return [str(file.path.relative_to(folder)) for file in find_files(patterns, folder)]


def complaints(folder: Path, *patterns: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_policies(patterns, folder, DefaultAction.ALLOW)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


# ---------------------------------------------------------------- finding


def test_a_folder_is_read_with_all_below_it_in_the_order_of_paths(write: Write, tmp_path: Path) -> None:
    """Other suffixes and names that begin with a dot are left out, folders too."""
    for name in ("p/b.yaml", "p/a/z.yml", "p/c.json", "p/README.md", "p/.hidden.yaml", "p/.git/x.yaml", "p/a.yaml"):
        write(name)
    assert found(tmp_path, "p") == found(tmp_path, "p/") == ["p/a/z.yml", "p/a.yaml", "p/b.yaml", "p/c.json"]


def test_the_order_is_that_of_the_list_and_a_file_is_read_once(write: Write, tmp_path: Path) -> None:
    """However often it is named."""
    for name in ("a.yaml", "b.yaml", "c.txt"):
        write(name)
    assert found(tmp_path, "b.yaml", ".", "c.txt", "./b.yaml") == ["b.yaml", "a.yaml", "c.txt"]


def test_globs_take_files_and_folders(write: Write, tmp_path: Path) -> None:
    """Nothing has to fit; a file whose name looks like a glob is a file."""
    (tmp_path / "x3").mkdir()
    for name in ("b.policy.yaml", "a.policy.yaml", "a.other.yaml", "x1/z.yaml", "x2/y/w.yaml", "[a].yaml", "a.md"):
        write(name)
    assert found(tmp_path, "*.policy.yaml") == ["a.policy.yaml", "b.policy.yaml"]
    assert found(tmp_path, "x?") == ["x1/z.yaml", "x2/y/w.yaml"]
    assert found(tmp_path, "**/w.yaml") == ["x2/y/w.yaml"]
    assert found(tmp_path, "a.*") == ["a.other.yaml", "a.policy.yaml"]
    assert found(tmp_path, "none-*.yaml") == []
    assert found(tmp_path, "[a].yaml") == ["[a].yaml"]


def test_every_named_file_that_is_missing_is_told(write: Write, tmp_path: Path) -> None:
    """By its name."""
    write("a.yaml")
    told = complaints(tmp_path, "none.yaml", "a.yaml", "gone/")
    assert [line.partition(":")[0] for line in told] == ["none.yaml", "gone"]


def test_a_folder_that_cannot_be_listed_is_told_and_has_a_fingerprint(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a mistake at the start, and no reason to end later."""
    write("p/a.yaml")
    seen = fingerprint(["p"], tmp_path)

    def refuse(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", refuse)
    assert complaints(tmp_path, "p") == ["p: it cannot be read: Permission denied"]
    assert fingerprint(["p"], tmp_path) != seen


def mounted(folder: Path, version: str, text: str) -> None:
    """A ConfigMap as it is mounted: files are links through `..data`, which is swapped."""
    (folder / version).mkdir(parents=True)
    (folder / version / "policy.yaml").write_text(text)
    (folder / "..tmp").symlink_to(version)
    (folder / "..tmp").rename(folder / "..data")
    if not (folder / "policy.yaml").is_symlink():
        (folder / "policy.yaml").symlink_to("..data/policy.yaml")


def test_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    """Its own folders begin with dots."""
    mounted(tmp_path / "m", "..v1", policy("a"))
    assert found(tmp_path, "m", "m/policy.yaml", "m/*") == ["m/policy.yaml"]


def test_links_to_folders_are_followed_and_circles_are_not(write: Write, tmp_path: Path) -> None:
    """Folders of a mounted volume are links."""
    write("elsewhere/a.yaml")
    write("p/b.yaml")
    (tmp_path / "p" / "linked").symlink_to("../elsewhere")
    (tmp_path / "p" / "around").symlink_to(".")
    (tmp_path / "p" / "dead.yaml").symlink_to("nothing")
    assert sorted(found(tmp_path, "p")) == ["p/b.yaml", "p/dead.yaml", "p/linked/a.yaml"]
    assert "cannot be read" in complaints(tmp_path, "p")[0]
    assert fingerprint(["p"], tmp_path) == fingerprint(["p"], tmp_path)


# ---------------------------------------------------------------- fingerprints


def test_a_fingerprint_changes_with_the_files_and_with_nothing_else(write: Write, tmp_path: Path) -> None:
    """Content, names, and links alike."""
    patterns = ("p", "named.yaml", "m/policy.yaml", "[")
    file = write("p/a.yaml")
    mounted(tmp_path / "m", "..v1", policy("a"))
    seen = [fingerprint(patterns, tmp_path)]

    def changed() -> bool:
        seen.append(fingerprint(patterns, tmp_path))
        return seen[-1] != seen[-2]

    assert not changed()
    file.write_text(policy("longer-name"))
    assert changed()
    os.utime(file, ns=(1, 1))
    assert changed()
    write("p/sub/b.yaml")
    assert changed()
    write("named.yaml")
    assert changed()
    mounted(tmp_path / "m", "..v2", policy("a"))
    assert changed()
    (tmp_path / "p" / "sub" / "b.yaml").unlink()
    assert changed()
    write("p/README.md")
    assert not changed()


# ---------------------------------------------------------------- reading


def test_every_document_of_a_file_is_a_policy(write: Write, tmp_path: Path) -> None:
    """In the order of the file; JSON is as good."""
    write("a.yaml", policy("one") + "---\n" + policy("two"))
    value = {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy", "metadata": {"name": "three"}, "spec": {"rules": []}}
    write("b.json", json.dumps(value))
    assert load_policies(["a.yaml", "b.json"], tmp_path, DefaultAction.ALLOW).policies == ("one", "two", "three")


def test_other_documents_in_a_folder_are_left_out(write: Write, tmp_path: Path) -> None:
    """Cases, configurations and what is not ours."""
    write("p/a.yaml", policy("one") + "---\n" + TEST)
    write("p/cases.yaml", TEST)
    write("p/sidecall.yaml", "apiVersion: sidecall.io/v1\nkind: Config\n")
    write("p/deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\n")
    write("p/list.json", "[1]")
    assert [d.file for d in read_policies(["p"], tmp_path)] == [str(tmp_path / "p" / "a.yaml")]
    assert [d.file for d in read_policies(["p/*.yaml"], tmp_path)] == [str(tmp_path / "p" / "a.yaml")]


@pytest.mark.parametrize("text", ["\n", "# nothing\n", "---\n"])
def test_a_file_that_holds_nothing_is_refused(write: Write, tmp_path: Path, text: str) -> None:
    """A file that is written in place is empty for a moment, and must not turn its policies off."""
    write("p/a.yaml", policy("one"))
    write("p/empty.yaml", text)
    for pattern in ("p", "p/*.yaml", "p/empty.yaml"):
        assert "expected" in complaints(tmp_path, pattern)[0]


def test_a_named_file_holds_policies_only(write: Write, tmp_path: Path) -> None:
    """Whoever names a file means it."""
    write("cases.yaml", TEST)
    write("other.yaml", "a: 1\n")
    assert complaints(tmp_path, "cases.yaml", "other.yaml") == [
        "cases.yaml:2:1: this is no policy; expected kind: ToolPolicy",
        "other.yaml:1:1: this is no policy; expected kind: ToolPolicy",
    ]


def test_a_policy_is_not_lost_by_a_typing_error(write: Write, tmp_path: Path) -> None:
    """In a folder too, a document of ours is of a kind that is known."""
    write("p/a.yaml", policy("a").replace("ToolPolicy", "ToolPolcy"))
    write("p/b.yaml", policy("b").replace("kind: ToolPolicy\n", ""))
    write("p/c.yaml", policy("c").replace("sidecall.io/v1", "sidecal.io/v1"))
    told = complaints(tmp_path, "p")
    assert told[0] == "p/a.yaml:2:1: this is no policy (did you mean 'ToolPolicy'?); expected kind: ToolPolicy"
    assert told[1].startswith("p/b.yaml:1:1: this is no policy")
    (tmp_path / "p/a.yaml").unlink()
    (tmp_path / "p/b.yaml").unlink()
    assert complaints(tmp_path, "p")[0].startswith("p/c.yaml:1:1: ")


def test_files_that_cannot_be_read_are_all_told(write: Write, tmp_path: Path) -> None:
    """Also in a folder: what is not YAML may be a policy."""
    write("p/a.yaml", "a: [1\n")
    write("p/b.yaml", "a: 1\na: 2\n")
    assert [line.partition(" ")[0] for line in complaints(tmp_path, "p")] == ["p/a.yaml:2:1:", "p/b.yaml:2:1:"]


# ---------------------------------------------------------------- compiling


def test_no_policies_are_a_set_too(tmp_path: Path) -> None:
    """An empty one."""
    assert load_policies([], tmp_path, DefaultAction.ALLOW).is_empty


def test_every_mistake_is_told_where_it_is(write: Write, tmp_path: Path) -> None:
    """Of all files, in their order, those of reading and those of compiling."""
    write("a.yaml", policy("a", "{name: r, blok: {}}", '{name: s, when: "args.a ==", allow: {}}'))
    write("b.yaml", policy("b", "{name: r, allow: {}}", "{name: r, allow: {}}"))
    write("c.yaml", "apiVersion: sidecall.io/v1\nkind: ToolPolicy\nmetadata: {}\n")
    told = complaints(tmp_path, "a.yaml", "b.yaml", "c.yaml")
    assert any(line.startswith("c.yaml:3:1: ") and "name" in line for line in told)
    assert any(line.startswith("a.yaml:6:17: ") and "block" in line for line in told)
    assert any(line.startswith("a.yaml:7:17: ") for line in told)
    assert any(line.startswith("b.yaml:7:8: ") and "'r'" in line for line in told)


def test_a_name_that_two_policies_have_is_told_with_both_places(write: Write, tmp_path: Path) -> None:
    """Once."""
    write("a.yaml", policy("same"))
    write("b.yaml", policy("other") + "---\n" + policy("same"))
    (told,) = complaints(tmp_path, "a.yaml", "b.yaml")
    assert told == ("b.yaml:10:12: the policy name 'same' is taken by a.yaml:3; expected a name of its own")


# ---------------------------------------------------------------- what decides elsewhere


def test_an_object_that_cannot_be_had_is_told_where_it_is_named(write: Write, tmp_path: Path) -> None:
    """All at once, each at its name; one that can be had is no problem."""
    write(
        "a.yaml",
        policy(
            "a",
            "{name: a, middleware: 'no_such_house:rules'}",
            "{name: b, middleware: 'tests.tools.house_rules:scripted'}",
            "{name: c, middleware: 'tests.tools.house_rules:nothing'}",
        ),
    )
    assert complaints(tmp_path, "a.yaml") == [
        "a.yaml:6:29: the module no_such_house cannot be imported (no_such_house is missing); "
        "expected it on the path of Python (PYTHONPATH)",
        "a.yaml:8:29: tests.tools.house_rules:nothing has neither on_call nor on_result",
    ]


def test_an_object_holds_only_what_it_has_a_say_in(write: Write, tmp_path: Path) -> None:
    """One with `on_result` alone makes no call wait."""
    write("a.yaml", policy("a", "{name: a, middleware: 'tests.tools.house_rules:late'}"))
    found = load_policies(["a.yaml"], tmp_path)
    chain = found.for_request(RequestFacts())
    assert (chain.could_hold, chain.has_result_rules) == (False, True)
    assert found.middleware == {"tests.tools.house_rules:late"}


def test_approval_needs_somebody_who_can_give_it(write: Write, tmp_path: Path) -> None:
    """A set that would hold calls for nobody is refused at the rule, in shadow mode too."""
    write("a.yaml", policy("a", "{name: a, block: {}}", "{name: b, requireApproval: {}}"))
    with pytest.raises(ConfigError) as caught:
        load_policies(["a.yaml"], tmp_path, can_approve=False)
    (told,) = (str(problem) for problem in caught.value.problems)
    assert told.startswith(f"{tmp_path}/a.yaml:7:17: nobody could approve this: expected admin.token")
    assert load_policies(["a.yaml"], tmp_path).asks_people


def test_what_the_library_of_expressions_logs_is_not_repeated(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    """An error of an expression is told by the proxy alone, in its own form."""
    path = write("a.yaml", policy("p", "{name: r, when: 'args.x.matches(\"a\")', block: {message: Not.}}"))
    chain = load_policies([str(path)], path.parent).for_request(RequestFacts())
    call = ToolCall(CallId("c"), "search", '{"x": 1}')
    assert "could not be evaluated" in str(chain.recheck(Subject(call, Owner.CLIENT)).result)
    assert not caplog.records
