"""The schemas that a request declares for its tools, compiled when a rule first asks, and kept for the request."""

from __future__ import annotations

from proxy.core.calls import RequestFacts
from proxy.core.jsontext import Json
from proxy.core.policy.failures import EvaluationError, NotKnownError
from proxy.core.policy.names import NamedTool
from proxy.core.policy.validating import Schema


class DeclaredSchemas:
    __slots__ = ("_compiled", "_facts")

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        self._compiled: dict[str, Schema | ValueError] = {}

    def of(self, tool: NamedTool) -> Schema | None:
        """The schema of a tool; None where there is none, or none that can be used."""
        found = self._find(tool)
        return found if isinstance(found, Schema) else None

    def required(self, tool: NamedTool) -> Schema | None:
        """As `of`, but raises EvaluationError for a schema that cannot be used, and NotKnownError where no schema is
        known."""
        if "schemas" in self._facts.unknown:
            raise NotKnownError("declared schema")
        found = self._find(tool)
        if isinstance(found, ValueError):
            raise EvaluationError(str(found))
        return found

    def _find(self, tool: NamedTool) -> Schema | ValueError | None:
        declared = self._facts.declared
        name = tool.declared_as(declared)
        if name is None or declared[name] is None:
            return None
        if name not in self._compiled:
            self._compiled[name] = _compiled(declared[name])
        return self._compiled[name]


def _compiled(schema: Json) -> Schema | ValueError:
    try:
        return Schema.compile(schema)
    except ValueError as error:
        return error
