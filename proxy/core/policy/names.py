"""Tool names as rules see them: folded, so that a call cannot slip past a rule by its spelling.

A rule that can hold a call takes a name when any reading of it fits; a rule that lets a call go ahead takes the
one spelling that it was written with. Nothing but names is known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.core.calls import PARALLEL_WRAPPER, run_name
from proxy.core.policy.patterns import Glob

_CAMEL = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\dA-Z_])")
_SEPARATORS = re.compile(r"[-._\s]+")
_SET = re.compile(r"(\[[^\]]*\])")


def fold(name: str) -> str:
    """Camel case and separators as `_`, several as one, case folded."""
    return _SEPARATORS.sub("_", _CAMEL.sub("_", name)).casefold()


def _fold_plainly(name: str) -> str:
    """As `fold`, for a name whose capitals mean nothing (`DeLeTe_order`)."""
    return _SEPARATORS.sub("_", name).casefold()


def readings(name: str) -> tuple[str, ...]:
    """The folded readings of a name, most often one."""
    camel, plain = fold(name), _fold_plainly(name)
    return (camel,) if camel == plain else (camel, plain)


_WRAPPER = fold(PARALLEL_WRAPPER)


def is_parallel_wrapper(name: str) -> bool:
    return fold(run_name(name)) == _WRAPPER


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A call's tool: its name as it would be run, alone and behind its namespace or server label. `spellings` are what
    a request would declare it as: of a tool in a namespace only what stands behind it."""

    exact: tuple[str, ...]
    folded: tuple[str, ...]
    name: str
    spellings: tuple[str, ...]

    @classmethod
    def of(cls, name: str, namespace: str = "") -> NamedTool:
        run = run_name(name)
        exact = (run, f"{namespace}.{run}") if namespace else (run,)
        folded = tuple(reading for spelling in exact for reading in readings(spelling))
        spellings = tuple(f"{namespace}.{one}" if namespace else one for one in dict.fromkeys((name, run)))
        return cls(exact, folded, run, spellings)

    def declared_as(self, declared: Collection[str]) -> str | None:
        """The name under which a request declares the tool; None where it does not."""
        return next((spelling for spelling in self.spellings if spelling in declared), None)


@dataclass(frozen=True, slots=True)
class NameGlobs:
    """Globs of tool names, folded and as written."""

    _exact: tuple[Glob, ...]
    _folded: tuple[Glob, ...]
    _names: frozenset[str]

    @classmethod
    def compile(cls, globs: Iterable[str]) -> NameGlobs:
        """Raises ValueError."""
        exact = tuple(map(Glob.compile, globs))
        folded = dict.fromkeys(r for glob in exact for r in _folded_globs(glob.source))
        plain = frozenset(r for r in folded if not any(mark in r for mark in "*?["))
        return cls(exact, tuple(Glob.compile(r) for r in folded if r not in plain), plain)

    def fits(self, tool: NamedTool) -> bool:
        """Whether a reading of the name fits; an empty name fits all."""
        if not tool.name:
            return True
        return any(r in self._names or any(glob.fits(r) for glob in self._folded) for r in tool.folded)

    def fits_exactly(self, tool: NamedTool) -> bool:
        return any(glob.fits(name) for glob in self._exact for name in tool.exact)

    @property
    def sources(self) -> tuple[str, ...]:
        """The globs as they are written."""
        return tuple(glob.source for glob in self._exact)

    def take_all_behind(self, namespace: str) -> bool:
        """Whether a glob, as it is written, fits every name behind this namespace: one that fits the namespace and its
        dot, and then takes any text."""
        return any(glob.source[-1] == "*" and glob.fits(f"{namespace}.") for glob in self._exact)


def _folded_globs(glob: str) -> list[str]:
    """The readings of a glob; what stands in a `[set]` keeps its separators."""
    parts = _SET.split(glob)
    camel = "".join(part.casefold() if part.startswith("[") else fold(part) for part in parts)
    plain = "".join(part.casefold() if part.startswith("[") else _fold_plainly(part) for part in parts)
    return list(dict.fromkeys((camel, plain)))
