"""How much work a JSON Schema can be: the number of its parts with every reference put in full.

A few short definitions that refer to one another twice each stand for millions of parts, and the validator goes
through all of them with no limit of its own. Schemas come from clients, so they are weighed first. Circles
count once; the validator does not go round them.
"""

from __future__ import annotations

from urllib.parse import unquote

from proxy.core.jsontext import Json

MAX_WEIGHT = 50_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")


def check_weight(schema: Json) -> None:
    """Raises ValueError for a schema that is too much work, or whose references cannot be followed here."""
    if _Weighing(schema).of(schema) > MAX_WEIGHT:
        raise ValueError(f"it stands for more than {MAX_WEIGHT} parts once its references are followed")


class _Weighing:
    __slots__ = ("_anchors", "_behind", "_root")

    def __init__(self, root: Json) -> None:
        self._root = root
        self._behind: dict[str, int] = {}
        self._anchors: dict[str, Json] = {}
        self._collect(root)

    def _collect(self, value: Json) -> None:
        if isinstance(value, dict):
            for key in _ANCHORS:
                if isinstance(name := value.get(key), str):
                    self._anchors[name] = value
        for child in _children(value):
            self._collect(child)

    def of(self, value: Json) -> int:
        weight = 1 + sum(self.of(child) for child in _children(value))
        if isinstance(value, dict):
            weight += sum(self._of_reference(ref) for key in _REFERENCES if isinstance(ref := value.get(key), str))
        return min(weight, MAX_WEIGHT + 1)

    def _of_reference(self, reference: str) -> int:
        if reference not in self._behind:
            self._behind[reference] = 0
            self._behind[reference] = self.of(self._target(reference))
        return self._behind[reference]

    def _target(self, reference: str) -> Json:
        if not reference.startswith("#"):
            raise ValueError(f"the reference '{reference[:60]}' leads out of it")
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer)
        value = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return None
        return value


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
