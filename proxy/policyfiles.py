"""Finding policy files, reading them, and making one set of them.

Rules: order is the order of the list, then of paths; a file is read once however often it is found, as in a
mounted ConfigMap, whose files are links into a folder whose name begins with dots. What is found in a folder or
by a glob may hold documents of other kinds; what is named may not, and must be there. A document that says that it
is one of ours and is of no kind that we know is a mistake wherever it is: a policy must not be lost by a typing
error. Must not know when policies are loaded.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from proxy.core.policy.compile import Handled, compile_policies
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.model import PolicyDocument
from proxy.core.policy.problems import PolicyProblems, problems_of, suggestion
from proxy.core.policy.verdicts import DefaultAction
from proxy.errors import ConfigError, Problem
from proxy.tools.code import load_code
from proxy.yamlfile import Document, read_documents

KIND = "ToolPolicy"
OTHER_KINDS = ("ToolPolicyTest", "Config")
SUFFIXES = (".yaml", ".yml", ".json")
_GROUP = "sidecall.io/"

# The library of expressions repeats there, in lines of its own form, the errors that it raises.
logging.getLogger("cel").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A file that may hold policies. `named`: the list names it, so it must hold nothing else."""

    path: Path
    named: bool


def load_policies(
    patterns: Sequence[str],
    folder: Path,
    default_action: DefaultAction = DefaultAction.ALLOW,
    *,
    can_approve: bool = True,
) -> PolicySet:
    """The policies of files, folders and globs as one set. Raises ConfigError with every problem."""
    return compile_documents(read_policies(patterns, folder), default_action, can_approve=can_approve)


# ---------------------------------------------------------------- finding


def find_files(patterns: Sequence[str], folder: Path) -> list[PolicyFile]:
    """The files of a list of files, folders and globs. Raises ConfigError for those that are missing."""
    found: dict[str, PolicyFile] = {}
    problems: list[Problem] = []
    for pattern in patterns:
        try:
            files = _find(folder / pattern)
        except OSError as error:
            problems.append(Problem(str(error.filename), 0, 0, f"it cannot be read: {error.strerror}"))
            continue
        if files is None:
            problems.append(Problem(str(folder / pattern), 0, 0, "there is no such file; expected a policy file"))
        for file in files or ():
            found.setdefault(os.path.realpath(file.path), file)
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def _find(path: Path) -> list[PolicyFile] | None:
    """The files of one entry; None where it names a file that is not there."""
    if path.is_dir():
        return [PolicyFile(file, named=False) for file in _below(path, ())]
    if path.exists():
        return [PolicyFile(path, named=True)]
    if not glob.has_magic(str(path)):
        return None
    files: list[PolicyFile] = []
    for match in sorted(map(Path, glob.glob(str(path), recursive=True)), key=lambda match: match.parts):
        if match.is_dir():
            files += (PolicyFile(file, named=False) for file in _below(match, ()))
        elif match.suffix in SUFFIXES:
            files.append(PolicyFile(match, named=False))
    return files


def _below(folder: Path, above: tuple[str, ...]) -> Iterator[Path]:
    """All files below a folder in the order of their paths, links followed; a link to a folder above is not."""
    real = os.path.realpath(folder)
    if real in above:
        return
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name.startswith("."):
            continue
        if path.is_dir():
            yield from _below(path, (*above, real))
        elif path.suffix in SUFFIXES:
            yield path


def fingerprint(patterns: Sequence[str], folder: Path) -> tuple[object, ...]:
    """A value that changes when any of the files comes, goes or changes. Never raises."""
    seen: list[object] = []
    for pattern in patterns:
        try:
            files = _find(folder / pattern)
        except OSError as error:
            seen.append((pattern, error.errno))
            continue
        seen.append((pattern, files is None))
        seen += [_state(file.path) for file in files or ()]
    return tuple(seen)


def _state(path: Path) -> tuple[object, ...]:
    real = os.path.realpath(path)
    try:
        state = os.stat(real)
    except OSError:
        return str(path), real
    return str(path), real, state.st_mtime_ns, state.st_size, state.st_ino


# ---------------------------------------------------------------- reading


def read_policies(patterns: Sequence[str], folder: Path) -> list[Document]:
    """The policy documents of a list, in order. Raises ConfigError with every problem."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for file in find_files(patterns, folder):
        try:
            found = read_documents(file.path)
            if not found:  # as a file is for a moment that is written in place
                raise ConfigError([Problem(str(file.path), 1, 1, "the file is empty: expected at least one document")])
            documents += policies_in(found, file)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return documents


def policies_in(documents: Sequence[Document], file: PolicyFile) -> list[Document]:
    """The policies among the documents of a file. Raises ConfigError for what should be one and is not."""
    return [document for document in documents if _is_policy(document, file)]


def _is_policy(document: Document, file: PolicyFile) -> bool:
    """Whether a document is to be read as a policy. Raises ConfigError for what may be one by mistake."""
    value = document.value if isinstance(document.value, dict) else {}
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind == KIND:
        return True
    ours = isinstance(version, str) and version.startswith(_GROUP) and kind not in OTHER_KINDS
    if not file.named and not ours:
        return False
    path = ("kind",) if "kind" in value else ()
    near = suggestion(kind, (KIND, *OTHER_KINDS)) if isinstance(kind, str) and kind not in OTHER_KINDS else ""
    raise ConfigError([document.problem(path, f"this is no policy{near}; expected kind: {KIND}")])


# ---------------------------------------------------------------- compiling


def compile_documents(
    documents: Sequence[Document], default_action: DefaultAction, *, can_approve: bool = True
) -> PolicySet:
    """One set of policy documents, whose Python objects are imported; `can_approve` says whether there is a way for a
    person to approve a call. Raises ConfigError with every problem, each where it stands."""
    twice = dict(_named_twice(documents))
    problems = list(twice.values())
    read: list[tuple[Document, PolicyDocument]] = []
    for number, document in enumerate(documents):
        try:
            policy = PolicyDocument.model_validate(document.value)
        except ValidationError as error:
            found = problems_of(error, document.value, model=PolicyDocument)
            problems += [document.problem(problem.path, problem.message) for problem in found]
        else:
            if number not in twice:
                read.append((document, policy))
    code: dict[str, Handled] = {}
    problems += (p for document, policy in read for p in _unusable(document, policy, code, can_approve=can_approve))
    try:
        policies = compile_policies(
            [policy for _, policy in read],
            default_action=default_action,
            handles=lambda target: code.get(target, Handled()),
        )
    except PolicyProblems as error:
        problems += [read[p.document][0].problem(p.path, p.message) for p in error.problems]
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column)))
    return policies


def _unusable(
    document: Document, policy: PolicyDocument, code: dict[str, Handled], *, can_approve: bool
) -> Iterator[Problem]:
    """Rules whose Python object cannot be had, or that nobody could decide; `code` learns what objects handle."""
    for number, rule in enumerate(policy.spec.rules):
        path = ("spec", "rules", number)
        if rule.middleware is not None:
            try:
                found = load_code(rule.middleware)
            except ValueError as error:
                yield document.value_problem((*path, "middleware"), str(error))
            else:
                code[rule.middleware] = Handled(found.on_call is not None, found.on_result is not None)
        if rule.require_approval is not None and not can_approve:
            yield document.problem(
                (*path, "requireApproval"),
                "nobody could approve this: expected admin.token (or, on a laptop, admin.insecure: true) "
                "in the configuration",
            )


def _named_twice(documents: Sequence[Document]) -> Iterator[tuple[int, Problem]]:
    """Documents whose name another one has before them, by number."""
    first: dict[str, Document] = {}
    for number, document in enumerate(documents):
        name = _name(document)
        if name is None:
            continue
        if name in first:
            line = first[name].problem(("metadata", "name"), "").line
            message = f"the policy name '{name}' is taken by {first[name].file}:{line}; expected a name of its own"
            yield number, document.problem(("metadata", "name"), message)
        first.setdefault(name, document)


def _name(document: Document) -> str | None:
    metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else None
