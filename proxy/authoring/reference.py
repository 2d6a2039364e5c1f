"""The reference of all keys as a page: policies, test documents and the configuration, made of the schemas that editors
use, which are made of the models that read them.

A section is a mapping, under the path at which it is met first; a row is a key. What keys are for stands in the models
and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.authoring.schemas import KINDS, schema_of

_TITLES = {"policy": "Policies", "test": "Tests of policies", "config": "Configuration"}
_HEAD = """\
# Reference: every key

Made of the models that read the files, by `make reference`. What the keys do together is told in
[policies.md](policies.md), [authoring.md](authoring.md) and [tools.md](tools.md).

- A duration is `250ms`, `5s`, `10m` or `24h`; a size is `512Ki`, `64Mi` or a number of bytes.
- A secret is `{env: NAME}` or `{file: PATH}`, never the secret itself; a file is read again when it changes.
- In a path, `[]` is an entry of a list and `KEY` any name.
- A key without a default asks for nothing when it is left out.
- Keys are camelCase. YAML reads `no`, `1.10` and `12:30:00` as something else than text: put them in quotes.
"""
_PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
_DURATION, _SIZE = re.compile(r"ms\|"), re.compile(r"Ki\|")
_LONGEST_EXAMPLE = 90
_WORDS = {"Secret": "secret", "JsonValue": "any value"}
"""Definitions that the head of the page explains, or that need no words."""


def reference() -> str:
    """The page."""
    slugs = _Slugs()
    slugs.of(_HEAD.partition("\n")[0].removeprefix("# "))
    return "\n".join([_HEAD, *("\n".join(_kind(name, title, slugs)) for name, title in _TITLES.items())])


@dataclass(slots=True)
class _Slugs:
    """The anchors that a page's headings get, in their order: one that is taken is numbered."""

    _taken: dict[str, int] = field(default_factory=dict)

    def of(self, heading: str) -> str:
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = self._taken[slug] = self._taken.get(slug, -1) + 1
        return f"{slug}-{count}" if count else slug


@dataclass(slots=True)
class _Section:
    """A mapping with keys of its own: its schema, and the paths at which it stands."""

    schema: dict[str, Any]
    paths: list[str]
    slug: str = ""


def _kind(name: str, title: str, slugs: _Slugs) -> Iterator[str]:
    schema = schema_of(name)
    sections: dict[str, _Section] = {}
    root = _Section(schema, [""])
    _collect(root, "", definitions=schema["definitions"], sections=sections)
    root.slug = slugs.of(title)
    for section in sections.values():
        section.paths.sort(key=lambda path: path.count("."))
        section.slug = slugs.of(section.paths[0])
    yield f"## {title}\n"
    yield f"`kind: {KINDS[name]}`. {schema['description']}\n"
    yield from _table(schema, schema["definitions"], sections)
    for section in sections.values():
        first, *others = section.paths
        yield f"### {first}\n"
        also = f" Also {_listed([f'`{path}`' for path in others], 'and')}." if others else ""
        yield f"{_line(section.schema['description'])}{also}\n"
        yield from _table(section.schema, schema["definitions"], sections)
        yield from _examples(section.schema)


def _collect(section: _Section, path: str, *, definitions: dict[str, Any], sections: dict[str, _Section]) -> None:
    """Note every mapping below a section, each once, with all paths at which it is met."""
    for key, part in section.schema["properties"].items():
        for name, suffix in _refs(part):
            schema = definitions[name]
            below = f"{path}.{key}{suffix}".removeprefix(".")
            if name in _WORDS or not schema.get("properties"):
                continue
            if name in sections:
                sections[name].paths.append(below)
            else:
                sections[name] = _Section(schema, [below])
                _collect(sections[name], below, definitions=definitions, sections=sections)


def _refs(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The definitions that a schema names, and what stands between its key and them."""
    if "$ref" in part:
        yield part["$ref"].rpartition("/")[2], ""
    for choice in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from _refs(choice)
    if "items" in part:
        yield from ((name, f"[]{suffix}") for name, suffix in _refs(part["items"]))
    if isinstance(part.get("additionalProperties"), dict):
        yield from ((name, f".KEY{suffix}") for name, suffix in _refs(part["additionalProperties"]))


# ---------------------------------------------------------------- tables


def _table(schema: dict[str, Any], definitions: dict[str, Any], sections: dict[str, _Section]) -> Iterator[str]:
    required = schema.get("required", ())
    rows = [
        (f"`{key}`", _type(part, definitions, sections), _default(key, part, required), _told(part, definitions))
        for key, part in schema["properties"].items()
    ]
    with_default = any(row[2] for row in rows)
    head = ("Key", "Type", "Default", "What")
    for row in (head, ("---",) * 4, *rows):
        cells = row if with_default else (row[0], row[1], row[3])
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _told(part: dict[str, Any], definitions: dict[str, Any]) -> str:
    told = part.get("description") or definitions[part["$ref"].rpartition("/")[2]].get("description", "")
    return _line(told)


def _default(key: str, part: dict[str, Any], required: Sequence[str]) -> str:
    if key in required:
        return "needed"
    if "default" not in part:
        return ""
    return "empty" if part["default"] == "" else f"`{_spelled(part['default'])}`"


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(part: dict[str, Any], definitions: dict[str, Any], sections: dict[str, _Section]) -> str:
    """What a value may be, in words."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name in sections:
            return f"[mapping](#{sections[name].slug})"
        return _WORDS[name] if name in _WORDS else _type(definitions[name], definitions, sections)
    if choices := [one for one in (*part.get("anyOf", ()), *part.get("oneOf", ())) if one != {"type": "null"}]:
        if any(_SIZE.search(one.get("pattern", "")) for one in choices):
            return "size"
        return _listed([_type(one, definitions, sections) for one in choices], "or")
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return _listed([f"`{word}`" for word in part["enum"]], "or")
    return _plain(part, definitions, sections)


def _plain(part: dict[str, Any], definitions: dict[str, Any], sections: dict[str, _Section]) -> str:
    match part.get("type"):
        case "array":
            return f"list of {_type(part['items'], definitions, sections)}"
        case "object" if isinstance(part.get("additionalProperties"), dict):
            values = part["additionalProperties"]
            return f"names to {_type(values, definitions, sections)}"
        case "object":
            return "`{}`" if part.get("additionalProperties") is False and not part.get("properties") else "mapping"
        case "string" if _DURATION.search(part.get("pattern", "")):
            return "duration"
        case str() as word:
            bounds = (f" {joint} {part[key]}" for joint, key in (("from", "minimum"), ("to", "maximum")) if key in part)
            return _PLAIN[word] + "".join(bounds)
        case _:
            return "any value"


def _examples(schema: dict[str, Any]) -> Iterator[str]:
    """Short ones, in a line."""
    texts = [json.dumps(example, ensure_ascii=False) for example in schema.get("examples", ())]
    shown = [f"`{text}`" for text in texts if len(text) <= _LONGEST_EXAMPLE]
    if shown:
        yield f"For example {_listed(shown, 'or')}.\n"


def _listed(words: Sequence[str], joint: str) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"


def _line(text: str) -> str:
    return " ".join(text.split())
