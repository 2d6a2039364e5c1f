"""What recorded calls say of policies: rules that are for none of them, and tools that no rule names.

That is a hint, no proof: records show what happened, not what may. Memory does not grow with the number of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from proxy.authoring.records import Lines, Progress, read_calls
from proxy.authoring.sources import placed_rules
from proxy.checking import CheckedSet
from proxy.core.policy.names import NamedTool
from proxy.core.policy.recorded import Sightings, names_tool
from proxy.errors import Problem

_MOST_TOOLS = 1000
_MOST_TOLD = 20


def unseen(sets: Sequence[CheckedSet], audits: Sequence[str], progress: Progress = lambda _: None) -> list[Problem]:
    """Warnings. A rule that several sets have counts as met when it is in one of them. Raises ConfigError for a file
    that cannot be read."""
    sets = [one for one in sets if one.documents]
    sightings = [Sightings(one.policies) for one in sets]
    tools: Counter[tuple[str, str, str]] = Counter()
    lines, calls = Lines(), 0
    for audit in audits:
        for call in read_calls(audit, lines, progress):
            calls += 1
            for sighting in sightings:
                sighting.see(call)
            key = (audit, call.subject.call.name, call.subject.call.namespace)
            if key in tools or len(tools) < _MOST_TOOLS:
                tools[key] += 1
    if not calls:
        return [Problem(audits[0], 0, 0, "there is no recorded call in it")]
    return [*_unmet(sets, sightings), *_unnamed(sets, tools)]


def _unmet(sets: Sequence[CheckedSet], sightings: Sequence[Sightings]) -> Iterator[Problem]:
    met: set[tuple[str, int, int]] = set()
    places: dict[tuple[str, int, int], Problem] = {}
    for one, sighting in zip(sets, sightings, strict=True):
        unmet = set(sighting.unmet)
        for name, place in placed_rules(one.documents):
            key = (place.file, place.line, place.column)
            if name in unmet:
                message = f"the rule '{name.rule}' is for no call that was recorded"
                places[key] = Problem(*key, message)
            else:
                met.add(key)
    yield from (problem for key, problem in places.items() if key not in met)


def _unnamed(sets: Sequence[CheckedSet], tools: Counter[tuple[str, str, str]]) -> Iterator[Problem]:
    told = 0
    for (audit, name, namespace), count in tools.most_common():
        tool = NamedTool.of(name, namespace)
        if any(names_tool(one.policies, tool) for one in sets):
            continue
        told += 1
        if told > _MOST_TOLD:
            yield Problem(audit, 0, 0, "there are more tools that no rule names")
            return
        calls = "1 call" if count == 1 else f"{count:,} calls"
        yield Problem(audit, 0, 0, f"no rule names the tool '{tool.exact[-1]}' ({calls})")
