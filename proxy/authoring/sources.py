"""Which policies are meant: by files, folders and globs, or by a configuration that names them.

A configuration that is named stands for its policies and its default action; one that is found in a folder is left out.
What is done with a set of policies is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from proxy.configfile import KIND as CONFIG_KIND
from proxy.configfile import load_config
from proxy.core.policy.casemodel import KIND as CASES_KIND
from proxy.core.policy.casemodel import CasesDocument
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.problems import problems_of
from proxy.core.policy.verdicts import DefaultAction, RuleName
from proxy.errors import ConfigError, Problem
from proxy.policyfiles import (
    OTHER_KINDS,
    PolicyFile,
    compile_documents,
    find_files,
    policies_in,
    read_policies,
)
from proxy.yamlfile import Document, read_documents


@dataclass(frozen=True, slots=True)
class Cases:
    """A test document, and where it stands."""

    document: Document
    model: CasesDocument


@dataclass(slots=True)
class Sources:
    """What paths lead to. `default_action` is that of a configuration that is named, if one is."""

    policies: list[Document] = field(default_factory=list)
    cases: list[Cases] = field(default_factory=list)
    default_action: DefaultAction | None = None


def read_sources(paths: Sequence[str], environ: Mapping[str, str]) -> Sources:
    """What the paths lead to, in their order. Raises ConfigError with every problem."""
    sources, problems = Sources(), list[Problem]()
    for file in find_files(paths, Path()):
        try:
            _read_file(file, sources, environ)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return sources


def load_set(paths: Sequence[str], environ: Mapping[str, str]) -> PolicySet:
    """The policies that the paths lead to, as one set. Raises ConfigError with every problem."""
    sources = read_sources(paths, environ)
    if not sources.policies:
        raise ConfigError([Problem(path, 0, 0, "there is no policy; expected kind: ToolPolicy") for path in paths[:1]])
    return compile_documents(sources.policies, sources.default_action or DefaultAction.ALLOW)


def _read_file(file: PolicyFile, sources: Sources, environ: Mapping[str, str]) -> None:
    documents = read_documents(file.path)
    if file.named and any(_kind(document) == CONFIG_KIND for document in documents):
        config = load_config(file.path, environ=environ)
        sources.policies += read_policies(config.policies, Path())
        sources.default_action = config.default_action
        return
    sources.policies += policies_in([one for one in documents if _kind(one) not in OTHER_KINDS], file)
    sources.cases += [read_cases(one) for one in documents if _kind(one) == CASES_KIND]


def read_cases(document: Document) -> Cases:
    """A test document. Raises ConfigError with every problem, each where it stands."""
    try:
        return Cases(document, CasesDocument.model_validate(document.value))
    except ValidationError as error:
        found = problems_of(error, document.value, model=CasesDocument)
        raise ConfigError([document.problem(problem.path, problem.message) for problem in found]) from None


def _kind(document: Document) -> object:
    return document.value.get("kind") if isinstance(document.value, dict) else None


def placed_rules(policies: Sequence[Document]) -> Iterator[tuple[RuleName, Problem]]:
    """Every rule of policies that compile, and where it stands; the message is its name."""
    for document in policies:
        value = document.value
        assert isinstance(value, dict)
        metadata, spec = value["metadata"], value["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(spec, dict)
        rules = spec.get("rules")
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            assert isinstance(rule, dict)
            name = RuleName(str(metadata["name"]), str(rule["name"]))
            yield name, document.problem(("spec", "rules", index), f"{name.policy}/{name.rule}")
