"""Checking files before anything runs: what `sidecall check` does.

Rules: a configuration is checked with its policies, and policies that are given are checked as one set; a
mistake that is found on two ways is told once. Nothing is started. Must not know how findings are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.argumentreads import suspicious_reads
from proxy.configfile import KIND as CONFIG_KIND
from proxy.configfile import load_config
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.verdicts import DefaultAction
from proxy.errors import ConfigError, Problem
from proxy.policyfiles import OTHER_KINDS, compile_documents, find_files, policies_in, read_policies
from proxy.reachability import unreachable_rules
from proxy.spellings import odd_spellings
from proxy.yamlfile import Document, read_documents


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong, what is suspicious, and how much was looked at."""

    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    configurations: int
    policies: int
    sets: tuple[CheckedSet, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A set of policies without mistakes, and the documents that it was made of."""

    documents: tuple[Document, ...]
    policies: PolicySet


def check(paths: Sequence[str], environ: Mapping[str, str]) -> Findings:
    """Look at files, folders and globs of configurations and policies."""
    given = _read(paths)
    errors = given.errors
    sets = [_Set(given.policies)]
    for path in given.configurations:
        try:
            config = load_config(path, environ=environ)
            tools = {tool.name: tool.parameters for tool in config.tools if tool.name and tool.parameters}
            found = read_policies(config.policies, Path())
            sets[0].schemas.update(tools)
            sets.append(_Set(found, config.default_action, config.admin.can_approve, tools))
        except ConfigError as error:
            errors += error.problems
    warnings: list[Problem] = []
    checked: list[CheckedSet] = []
    for one in sets:
        try:
            compiled = compile_documents(one.policies, one.default_action, can_approve=one.can_approve)
            checked.append(CheckedSet(tuple(one.policies), compiled))
            warnings += _warnings(one)
        except ConfigError as error:
            errors += error.problems
    count = len({(document.file, document.places[()]) for one in sets for document in one.policies})
    return Findings(_once(errors), _once(warnings), len(given.configurations), count, tuple(checked))


@dataclass(slots=True)
class _Set:
    """Policies that are loaded together, and the schemas of the tools that are known beside them."""

    policies: list[Document]
    default_action: DefaultAction = DefaultAction.ALLOW
    can_approve: bool = True
    schemas: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Given:
    """What the paths lead to."""

    errors: list[Problem] = field(default_factory=list)
    configurations: list[Path] = field(default_factory=list)
    policies: list[Document] = field(default_factory=list)


def _read(paths: Sequence[str]) -> _Given:
    given = _Given()
    try:
        files = find_files(paths, Path())
    except ConfigError as error:
        return _Given(errors=error.problems)
    for file in files:
        try:
            found = read_documents(file.path)
            given.configurations += [file.path] * any(_kind(document) == CONFIG_KIND for document in found)
            given.policies += policies_in([d for d in found if _kind(d) not in OTHER_KINDS], file)
        except ConfigError as error:
            given.errors += error.problems
    return given


def _once(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def _kind(document: Document) -> object:
    return document.value.get("kind") if isinstance(document.value, dict) else None


def _warnings(checked: _Set) -> Iterator[Problem]:
    documents = checked.policies
    values = [document.value for document in documents]
    for found in unreachable_rules(values):
        rule, behind = found.rule, found.behind
        yield documents[rule.document].problem(
            ("spec", "rules", rule.index),
            f"the rule '{rule.name}' can never be reached: every call that it matches ends "
            f"at '{behind.policy}/{behind.name}' before",
        )
    for document in documents:
        for path, message in odd_spellings(document.value):
            yield document.value_problem(path, message)
    for suspicion in suspicious_reads(values, checked.schemas):
        yield documents[suspicion.document].value_problem(suspicion.path, suspicion.message)
