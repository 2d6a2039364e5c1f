"""Types of single fields in policy documents, each of which says at load what is wrong with it.

Checking here, not when rules are compiled, is what shows every mistake of a document at once.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, JsonValue, PlainValidator, StringConstraints, WithJsonSchema

from proxy.core.policy.expressions import Expression, Scope
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.folders import Folder
from proxy.core.policy.patterns import Glob, Pattern
from proxy.core.policy.validating import Schema
from proxy.core.policy.values import exact

_COUNTED_BY = r"(tool|tenant|client|user|args(\.[^.]+)+)"
_PYTHON_OBJECT = r"[\w.]+:[\w.]+"
_RULE_NAME = r"[^/]+/[^/]+"


def _glob(source: str) -> str:
    Glob.compile(source)
    return source


def _host(source: str) -> str:
    if "/" in source:
        raise ValueError(f"expected a host such as example.com, *.example.com or private, got '{source[:60]}'")
    return _glob(source)


def _counted_by(text: str) -> str:
    if not re.fullmatch(_COUNTED_BY, text):
        raise ValueError(f"expected tool, tenant, client, user or a path such as args.id, got '{text[:60]}'")
    return text


def _python_object(text: str) -> str:
    if not re.fullmatch(_PYTHON_OBJECT, text):
        raise ValueError(f"expected a Python object such as package.module:name, got '{text[:60]}'")
    return text


def _rule_name(text: str) -> str:
    if not re.fullmatch(_RULE_NAME, text):
        raise ValueError(f"expected a rule with its policy, such as orders/no-deletes, got '{text[:60]}'")
    return text


def _regex(source: str) -> str:
    if not source:
        raise ValueError("expected a pattern; an empty one is found in every text")
    Pattern.compile(source)
    return source


def _redaction(source: str) -> str:
    if Pattern.compile(source).finds(""):
        raise ValueError("the pattern fits the empty text; expected one that fits some characters")
    return source


def _expression(source: str) -> str:
    Expression.compile(source)
    return source


def _condition(source: str) -> str:
    """An expression that asks for nothing is the same for every call, so that its kind is known now."""
    expression = Expression.compile(source)
    if not expression.variables:
        try:
            expression.is_true(Scope(lambda _: None))
        except EvaluationError as error:
            example = "has(args.limit) && args.limit > 10"
            raise ValueError(f"no condition for any call: {error}; expected one such as {example}") from None
    return source


def _folder(path: str) -> str:
    Folder.of(path)
    return path


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isascii() or any(mark.isspace() or mark == "\\" for mark in text):
        raise ValueError("expected an http or https URL such as http://127.0.0.1:8181/v1/data/tools")
    if parts.username is not None or parts.fragment:
        raise ValueError("expected a URL without credentials and fragment")
    return text


def _json(value: Any) -> Any:
    return exact(value)


def _not_null(value: Any) -> Any:
    if value is None:
        raise ValueError('expected a value, got null; for null itself write {type: "null"}')
    return exact(value)


def _schema(value: Any) -> Any:
    if value == "declared":
        return value
    if isinstance(value, str):
        raise ValueError(f"expected 'declared' or a JSON Schema, got '{value[:60]}'")
    Schema.compile(value)
    return value


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"expected a number, got {value!r:.60}")
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _name(value: str) -> str:
    if not value or len(value) > 100 or "/" in value or not value.isprintable() or value != value.strip():
        raise ValueError("expected a name of 1 to 100 printable characters without '/' or blanks around it")
    return value


def _steps(path: str) -> str:
    if not all(path.split(".")):
        raise ValueError(f"expected a dotted path of keys, got '{path[:60]}'")
    return path


Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, StringConstraints(max_length=65_536)]
GlobText = Annotated[str, AfterValidator(_glob)]
RegexText = Annotated[str, AfterValidator(_regex)]
Redaction = Annotated[str, AfterValidator(_redaction)]
ExpressionText = Annotated[str, AfterValidator(_expression)]
ConditionText = Annotated[str, AfterValidator(_condition)]
UrlText = Annotated[str, StringConstraints(max_length=2048), AfterValidator(_url)]
FolderText = Annotated[str, AfterValidator(_folder)]
DottedPath = Annotated[str, AfterValidator(_steps)]
JsonField = Annotated[JsonValue, AfterValidator(_json)]
NotNull = Annotated[JsonValue, AfterValidator(_not_null)]
SchemaField = Annotated[
    JsonValue,
    AfterValidator(_schema),
    WithJsonSchema({"anyOf": [{"const": "declared"}, {"type": "object"}, {"type": "boolean"}]}),
]
CountedBy = Annotated[
    str, AfterValidator(_counted_by), WithJsonSchema({"type": "string", "pattern": f"^{_COUNTED_BY}$"})
]
PythonObject = Annotated[
    str, AfterValidator(_python_object), WithJsonSchema({"type": "string", "pattern": f"^{_PYTHON_OBJECT}$"})
]
RuleText = Annotated[str, AfterValidator(_rule_name), WithJsonSchema({"type": "string", "pattern": f"^{_RULE_NAME}$"})]
Number = Annotated[int | float, PlainValidator(_number), WithJsonSchema({"type": "number"})]

_ONE_OR_MANY = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
GlobTexts = Annotated[list[GlobText], BeforeValidator(_listed), WithJsonSchema(_ONE_OR_MANY)]
HostTexts = Annotated[
    list[Annotated[str, AfterValidator(_host)]], BeforeValidator(_listed), WithJsonSchema(_ONE_OR_MANY)
]
FolderTexts = Annotated[list[FolderText], BeforeValidator(_listed), WithJsonSchema(_ONE_OR_MANY)]
