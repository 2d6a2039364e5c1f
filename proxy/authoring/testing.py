"""Running test documents: each against the policies beside it, or against all where none are.

A folder of ready policies has its cases beside each, and is tested policy by policy; a folder of tests that stands by
itself, or a configuration that is named, is tested as the set that it will be. How a report is shown is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proxy.authoring.sources import Cases, Sources, placed_rules, read_sources
from proxy.core.exchange.cases import CaseOutcome, run_case
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.trail import ACTED, Outcome, Step
from proxy.core.policy.verdicts import DefaultAction, RuleName
from proxy.errors import Problem
from proxy.policyfiles import compile_documents
from proxy.yamlfile import Document


@dataclass(frozen=True, slots=True)
class CaseReport:
    """How a case went, and where it stands."""

    place: Problem
    document: str
    name: str
    outcome: CaseOutcome


@dataclass(frozen=True, slots=True)
class Coverage:
    """Rules that no case made act, and rules that act in some case and are let by in none; where each stands."""

    rules: int
    unreached: tuple[Problem, ...]
    without_near_miss: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All cases, in their order."""

    cases: tuple[CaseReport, ...]
    coverage: Coverage

    @property
    def failed(self) -> list[CaseReport]:
        return [case for case in self.cases if not case.outcome.passed]


def run_tests(paths: Sequence[str], environ: Mapping[str, str]) -> Report:
    """Run all cases under the paths. Raises ConfigError with every problem of tests and policies."""
    sources = read_sources(paths, environ)
    sets = _Sets(sources)
    reports: list[CaseReport] = []
    seen = _Seen()
    for cases in sources.cases:
        policies = sets.of(cases)
        for index, case in enumerate(cases.model.cases):
            outcome = run_case(policies, case)
            seen.add(step for one in outcome.explanations for step in getattr(one, "all_steps", one.steps))
            place = cases.document.problem(("cases", index), "")
            reports.append(CaseReport(place, cases.model.metadata.name, case.name, outcome))
    sets.compile_others()
    return Report(tuple(reports), _coverage(sources.policies, seen))


class _Sets:
    """The sets that test documents are run against, each compiled once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._compiled: dict[tuple[tuple[int, ...], DefaultAction], PolicySet] = {}

    def of(self, cases: Cases) -> PolicySet:
        """Raises ConfigError."""
        model = cases.model
        chosen = self._beside(cases)
        default = self._sources.default_action
        if default is None or "default_action" in model.model_fields_set:
            default = DefaultAction(model.default_action)
        return self._compile(chosen, default)

    def compile_others(self) -> None:
        """Policies that no test needs are looked at all the same. Raises ConfigError."""
        used = {index for indexes, _ in self._compiled for index in indexes}
        for index in range(len(self._sources.policies)):
            if index not in used:
                self._compile((index,), DefaultAction.ALLOW)

    def _beside(self, cases: Cases) -> tuple[int, ...]:
        policies = self._sources.policies
        everything = tuple(range(len(policies)))
        if self._sources.default_action is not None:
            return everything
        folder = Path(cases.document.file).parent
        return tuple(i for i in everything if Path(policies[i].file).parent == folder) or everything

    def _compile(self, chosen: tuple[int, ...], default: DefaultAction) -> PolicySet:
        key = (chosen, default)
        if key not in self._compiled:
            self._compiled[key] = compile_documents([self._sources.policies[index] for index in chosen], default)
        return self._compiled[key]


# ---------------------------------------------------------------- coverage


@dataclass(slots=True)
class _Seen:
    """How often rules acted, and were let by; `conditional` are those that ask for more than names and requests."""

    acted: Counter[RuleName] = field(default_factory=Counter)
    near: Counter[RuleName] = field(default_factory=Counter)
    passed_by: Counter[RuleName] = field(default_factory=Counter)
    conditional: set[RuleName] = field(default_factory=set)
    compares: set[RuleName] = field(default_factory=set)

    def add(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._add(step)

    def _add(self, step: Step) -> None:
        if step.compared:
            self.compares.add(step.rule)
        if any(one.is_condition for one in step.compared):
            self.conditional.add(step.rule)
        if step.outcome in ACTED:
            self.acted[step.rule] += 1
        elif step.outcome is Outcome.PASSED:
            self.near[step.rule] += 1
        elif step.outcome is Outcome.SKIPPED:
            self.passed_by[step.rule] += 1
            if step.difference is not None and step.difference.is_condition:
                self.near[step.rule] += 1

    def has_near_miss(self, rule: RuleName) -> bool:
        """Whether a case came close and was let by; a rule that is for all calls has none to let by."""
        if rule not in self.compares:
            return True
        return bool(self.near[rule] if rule in self.conditional else self.passed_by[rule] or self.near[rule])


def _coverage(policies: Sequence[Document], seen: _Seen) -> Coverage:
    rules = list(placed_rules(policies))
    unreached = [place for rule, place in rules if not seen.acted[rule]]
    without = [place for rule, place in rules if seen.acted[rule] and not seen.has_near_miss(rule)]
    return Coverage(len(rules), tuple(unreached), tuple(without))
