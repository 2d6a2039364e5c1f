"""Rules that no call can reach, since an earlier rule takes all of theirs and ends the chain.

Rules: what is found is certain; what is not certain is not told. Only rules without a condition on arguments or an
expression count as taking all calls that they match. Works on policy documents that compile; must not know
files, nor how rules are run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from proxy.core.policy.names import readings

_ENDING = ("allow", "block", "answer")
_ELSEWHERE = ("hide", "result")  # they act on requests and on results: no call ends there, and none passes by
_MARKS = "*?["


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule of a set: which document it stands in, at which index, and what it says together with its policy."""

    document: int
    index: int
    policy: str
    name: str
    action: str
    conditional: bool
    matches: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Unreachable:
    rule: PlacedRule
    behind: PlacedRule


def unreachable_rules(documents: Sequence[Any]) -> Iterator[Unreachable]:
    """The rules of a set that are never reached. `documents` are values of policies, in order."""
    ending: list[PlacedRule] = []
    for rule in _rules(documents):
        behind = next((earlier for earlier in ending if _takes_all_of(earlier, rule)), None)
        if behind is not None:
            yield Unreachable(rule, behind)
        elif rule.action in _ENDING and not rule.conditional:
            ending.append(rule)


def _rules(documents: Sequence[Any]) -> Iterator[PlacedRule]:
    """The enforced rules that decide calls. A shadow rule ends no chain, and tells what it would do all the same."""
    for number, document in enumerate(documents):
        spec = document.get("spec") or {}
        if spec.get("mode") == "shadow":
            continue
        for index, rule in enumerate(spec.get("rules") or ()):
            action = next((key for key in rule if key not in ("name", "match", "when")), "")
            if action in _ELSEWHERE:
                continue
            matches = tuple(match for match in (spec.get("match"), rule.get("match")) if match)
            conditional = rule.get("when") is not None or any("args" in match for match in matches)
            policy = document["metadata"]["name"]
            yield PlacedRule(number, index, policy, rule["name"], action, conditional, matches)


def _takes_all_of(earlier: PlacedRule, later: PlacedRule) -> bool:
    """Whether every call that the later rule matches is one that the earlier one matches."""
    return all(
        (key == "tools" and "*" in wanted) or _implied(key, wanted, earlier=earlier, later=later)
        for of in earlier.matches
        for key, wanted in of.items()
    )


def _implied(key: str, wanted: Any, *, earlier: PlacedRule, later: PlacedRule) -> bool:
    """Whether calls of the later rule have what the earlier one wants under a key."""
    given = [match[key] for match in later.matches if key in match]
    if key == "tools":
        exact = earlier.action == "allow"
        # a rule that can hold takes other spellings of a name too, which the earlier one then lets by
        return (later.action == "allow" or not exact) and any(_names_cover(wanted, names, exact) for names in given)
    return any(_covers_under(key, wanted, one) for one in given)


def _covers_under(key: str, wanted: Any, given: Any) -> bool:
    match key:
        case "models" | "clients":
            return all(any(_covers(one, other) for one in wanted) for other in given)
        case "apis":
            return set(given) <= set(wanted)
        case "notTools":
            return set(wanted) <= set(given)
        case "headers":
            return all(given.get(name) == glob for name, glob in wanted.items())
        case _:
            return bool(wanted == given)


def _names_cover(wanted: Sequence[str], given: Sequence[str], exact: bool) -> bool:
    return all(any(_name_covers(one, other, exact=exact) for one in wanted) for other in given)


def _name_covers(one: str, other: str, *, exact: bool) -> bool:
    if exact or "[" in one + other:
        return _covers(one, other)
    return all(any(_covers(a, b) for a in readings(one)) for b in readings(other))


def _covers(one: str, other: str) -> bool:
    """Whether everything that fits the other glob fits the first; False where that is not plain to see."""
    if one == other:
        return True
    if one.endswith("*") and not any(mark in one[:-1] for mark in _MARKS):
        return other.startswith(one[:-1])
    return not any(mark in other for mark in _MARKS) and fnmatchcase(other, one)
