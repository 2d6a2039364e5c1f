"""Spellings in policies that can be read, but hardly say what their author meant: warnings, never errors.

A glob knows `*`, `?` and `[…]` alone. What another kind of glob knows beside them is a character like any other here,
and a rule that waits for it waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.core.jsontext import Path

_GLOBS = frozenset({"tools", "notTools", "models", "clients", "glob", "notGlob"})
_CURLED = "“”„‘’«»"


def odd_spellings(document: Any) -> Iterator[tuple[Path, str]]:
    """Where they stand in one policy, and what is odd about them."""
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):
        return
    if not spec.get("rules"):
        yield ("spec",), "there is no rule in it, so that it does nothing"
        return
    for index, rule in enumerate(spec["rules"]):
        if isinstance(rule, dict):
            yield from _below(rule.get("match"), ("spec", "rules", index, "match"))


def _below(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _GLOBS:
                yield from _globs(inner, (*path, key))
            else:
                yield from _below(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _below(inner, (*path, index))


def _globs(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _globs(inner, (*path, index))
    elif isinstance(value, str) and (odd := _oddity(value)):
        yield path, odd


def _oddity(glob: str) -> str:
    if "{" in glob and "," in glob and "}" in glob:
        return "braces are no alternatives in a glob, but characters of the name: write several globs"
    if "[" in glob and "]" not in glob[glob.index("[") :]:
        return "a bracket that is not closed is a character of the name: close it, or leave it out"
    if any(mark in _CURLED for mark in glob):
        return "these quotes are no quotes of YAML, but characters of the name: use ' or \""
    return ""
