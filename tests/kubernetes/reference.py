"""The reference of the chart's values, made from values.yaml: the table in its README, and the descriptions in
values.schema.json. `python -m tests.kubernetes.reference` writes both; a test says when they are behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.kubernetes.tools import CHART

BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"


@dataclass(frozen=True, slots=True)
class Value:
    """A value by the path of its keys; `comment` is what stands directly above it, empty where nothing does."""

    path: tuple[str, ...]
    comment: str
    default: str


def values(text: str) -> Iterator[Value]:
    """Every value of a values.yaml in its order. A mapping of values is none, unless a comment makes it one."""
    whole = yaml.safe_load(text)
    comment: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = re.match(r"( *)(#|[A-Za-z]\w*:)(.*)", line)
        if found is None:  # what stands above a blank line is for the reader of the file
            comment = [] if not line.strip() else comment
            continue
        indent, word = len(found[1]), found[2]
        if word == "#":
            comment.append(found[3].strip())
            continue
        path = [*(step for step in path if step[0] < indent), (indent, word.removesuffix(":"))]
        keys = tuple(key for _, key in path)
        value: Any = whole
        for key in keys:
            value = value[key]
        if comment or not isinstance(value, dict):
            yield Value(keys, " ".join(comment), json.dumps(value, ensure_ascii=False))
        comment = []


def is_part(value: Value, known: set[tuple[str, ...]]) -> bool:
    """Whether a value is told of by the comment of a mapping around it."""
    return not value.comment and any(value.path[:length] in known for length in range(1, len(value.path)))


def documented(text: str) -> list[Value]:
    known: set[tuple[str, ...]] = set()
    found = []
    for value in values(text):
        if not is_part(value, known):
            found.append(value)
            known.add(value.path)
    return found


def table(text: str) -> str:
    """The table of the README."""
    rows = ["| value | default | what it is |", "| --- | --- | --- |"]
    for value in documented(text):
        default = value.default if len(value.default) <= 60 else "see values.yaml"
        shown = f"`{default}`" if default == value.default else default
        rows.append(f"| `{'.'.join(value.path)}` | {_cell(shown)} | {_cell(value.comment)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def readme(old: str, text: str) -> str:
    """The README with its table made anew."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(text)}{END}{after}"


def schema(old: str, text: str) -> str:
    """The schema with the comments as its descriptions, and the mappings of the defaults as what must be there: `null`
    takes a default away, and templates read below it."""
    whole: dict[str, Any] = json.loads(old)
    for value in documented(text):
        at = whole
        for key in value.path:
            at = at["properties"][key]
        at["description"] = value.comment
    _require(whole, yaml.safe_load(text))
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _require(keys: dict[str, Any], defaults: dict[str, Any]) -> None:
    mappings = [key for key, value in defaults.items() if "properties" in keys["properties"].get(key, {})]
    if mappings:
        keys["required"] = mappings
    for key in mappings:
        _require(keys["properties"][key], defaults[key])


def main() -> None:
    text = (CHART / "values.yaml").read_text()
    for name, made in (("README.md", readme), ("values.schema.json", schema)):
        path = CHART / name
        path.write_text(made(path.read_text(), text))


if __name__ == "__main__":
    main()
