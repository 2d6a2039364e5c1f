"""The index of a library of policies as a page: what each is for, what it does, and what its cases show it cannot do.

A library is a folder of `CATEGORY/NAME/` with policies and their cases. Everything on the page stands in those files
and nowhere else; a case whose name begins with `known gap` is one that shows what passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from proxy.authoring.sources import read_sources
from proxy.core.policy.casemodel import CaseModel
from proxy.core.policy.model import ACTIONS, PolicyDocument

KNOWN_GAP = "known gap"
_HEAD = """\
# Ready policies

{count} policies, each a folder with `policy.yaml` and the cases that show what it does. This page is made of them by
`make index`.

1. Take the folders that you want, or copy them. Each is written to be edited: its description says which tools'
   and arguments' names it assumes, what to change, and what it cannot catch.
2. Name them in the configuration: `policies: [policies/files/keep-in-workspace, policies/web/deny-private-hosts]`.
   Those that ask a person need `admin.token`.
3. Try your tools' names with `sidecall test FOLDER` and `sidecall explain`, and the policy with `mode: shadow` first.

Not all are meant to stand together: several are stricter forms of others. No policy here lets a call go ahead by
itself (`allow`), so each only narrows what the others leave. Prefer lists of what may be to lists of what may not:
the latter know the attacks in their cases, and each says in cases that begin with "{gap}" which it does not hold.
What a call may do beyond its text is the matter of the tool, its sandbox and its rights.
"""
_TABLE = "| policy | what it is for | does | severity | cases | known gaps |\n| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy of the library, where it lies, and its cases."""

    folder: str
    policy: PolicyDocument
    cases: tuple[CaseModel, ...]

    @property
    def category(self) -> str:
        return self.folder.partition("/")[0]

    @property
    def gaps(self) -> int:
        return sum(case.name.startswith(KNOWN_GAP) for case in self.cases)

    @property
    def actions(self) -> tuple[str, ...]:
        """What its rules do, by the keys of actions, and what it does to batches."""
        spec = self.policy.spec
        used = {key for rule in spec.rules for key in rule.given()}
        batch = ("maxParallel",) if spec.batch.max_parallel is not None else ()
        shadow = ("shadow",) if spec.mode == "shadow" else ()
        return (*(action for action in ACTIONS if action in used), *batch, *shadow)


def read_library(folder: Path, environ: Mapping[str, str]) -> list[Entry]:
    """The policies of a library, by category and name. Raises ConfigError with every problem."""
    sources = read_sources([str(folder)], environ)
    cases: dict[Path, list[CaseModel]] = {}
    for found in sources.cases:
        cases.setdefault(Path(found.document.file).parent, []).extend(found.model.cases)
    entries = [
        Entry(
            Path(document.file).parent.relative_to(folder).as_posix(),
            PolicyDocument.model_validate(document.value),
            tuple(cases.get(Path(document.file).parent, ())),
        )
        for document in sources.policies
    ]
    return sorted(entries, key=lambda entry: (entry.folder, entry.policy.metadata.name))


def index(entries: Sequence[Entry]) -> str:
    """The page."""
    lines = [_HEAD.format(count=len(entries), gap=KNOWN_GAP)]
    for category, found in groupby(entries, key=lambda entry: entry.category):
        lines += [f"## {category}", "", _TABLE, *_rows(found), ""]
    return "\n".join(lines)


def _rows(entries: Iterator[Entry]) -> Iterator[str]:
    for entry in entries:
        about = entry.policy.metadata
        cells = (
            f"[{about.name}]({entry.folder}/policy.yaml)",
            about.title.replace("|", "\\|"),
            ", ".join(entry.actions),
            about.severity,
            f"[{len(entry.cases)}]({entry.folder}/cases.yaml)",
            str(entry.gaps),
        )
        yield f"| {' | '.join(cells)} |"
