"""The one door to JSON Schema: nothing is ever fetched, and patterns run in linear time.

A schema may come from a client, so it is never believed to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from proxy.core.jsontext import Json
from proxy.core.policy.values import plain
from proxy.core.policy.weighing import check_weight

_MOST_ERRORS = 5
_MOST_CHARACTERS = 300
_MAX_PATTERN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Schema:
    _validator: Any

    @classmethod
    def compile(cls, schema: Json) -> Schema:
        """Raises ValueError that says what is wrong."""
        if not isinstance(schema, dict | bool):
            raise ValueError("expected a JSON Schema: a mapping, true or false")
        options = jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN_BYTES, dfa_size_limit=_MAX_PATTERN_BYTES)
        try:
            check_weight(schema)
            whole: Any = plain(schema)
            return cls(jsonschema_rs.validator_for(whole, offline=True, pattern_options=options))
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            at = "".join(f"/{step}" for step in getattr(error, "instance_path", ()))
            where = f" at {at}" if at else ""
            told = f"no JSON Schema that can be used: {_first_line(str(error))}{where}"
            raise ValueError(f"{told}; expected one such as {{type: object, required: [id]}}") from None

    def accepts(self, value: Json) -> bool:
        return bool(self._validator.is_valid(plain(value)))

    def complaints(self, value: Json) -> str:
        """What is wrong with a value, for the one who wrote it; empty when it fits."""
        found: list[str] = []
        for error in self._validator.iter_errors(plain(value)):
            if len(found) == _MOST_ERRORS:
                found.append("and more")
                break
            place = "".join(f"/{step}" for step in error.instance_path)
            found.append(f"{_first_line(error.message)}{f' (at {place[:100]})' if place else ''}")
        return "; ".join(found)


def _first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
