"""Policy documents as they are written: pydantic models, from which the JSON Schemas for editors come too.

A document that these models take is well-formed: every pattern, expression and schema in it compiles. What one
rule says is checked here; what rules say together is `compile`'s. Keys are camelCase as in the contract.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from proxy.core.policy.expressions import RESULT_VARIABLES, Expression
from proxy.core.policy.fields import (
    ConditionText,
    CountedBy,
    DottedPath,
    ExpressionText,
    FolderTexts,
    GlobText,
    GlobTexts,
    HostTexts,
    JsonField,
    Name,
    NotNull,
    Number,
    PythonObject,
    Redaction,
    RegexText,
    SchemaField,
    Text,
    UrlText,
)
from proxy.core.policy.problems import PolicyProblems, misplaced, problems_of
from proxy.core.policy.quantities import Duration, Size

API_VERSION = "sidecall.io/v1"
KIND = "ToolPolicy"


class Document(BaseModel):
    """What all parts of a document have in common: strict, frozen, and no key that is not known."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True
    )

    def given(self) -> dict[str, Any]:
        """The values that the document gives, by its keys, in the order of the model."""
        fields = type(self).model_fields.items()
        return {f.alias or name: getattr(self, name) for name, f in fields if name in self.model_fields_set}


class ConditionModel(Document):
    """Plain conditions on one argument; all that are given must hold."""

    equals: NotNull = None
    """The value is this one."""
    in_: list[JsonField] = Field(default=[], alias="in", min_length=1)
    """The value is one of these."""
    not_in: list[JsonField] = Field(default=[], min_length=1)
    """The value is none of these; holds when it is absent."""
    glob: GlobTexts = Field(default=[], min_length=1)
    """The text fits a glob (a star crosses `/`)."""
    not_glob: GlobTexts = Field(default=[], min_length=1)
    """The text fits no glob; holds when it is absent."""
    regex: RegexText = ""
    """An RE2 pattern is found in the text, anywhere unless it is anchored."""
    gt: Number = 0
    """The number is greater than this."""
    gte: Number = 0
    """The number is this or greater."""
    lt: Number = 0
    """The number is smaller than this."""
    lte: Number = 0
    """The number is this or smaller."""
    longer_than: int = Field(default=0, ge=0)
    """More characters or items than this."""
    shorter_than: int = Field(default=0, ge=0)
    """Fewer characters or items than this."""
    inside: FolderTexts = Field(default=[], min_length=1)
    """The path lies in a folder, once `.`, `..` and `//` are resolved; a relative path counts from the folder."""
    not_inside: FolderTexts = Field(default=[], min_length=1)
    """The path lies in none of these folders; holds when it is absent."""
    host: HostTexts = Field(default=[], min_length=1)
    """The URL's host fits a glob, or is `private`."""
    not_host: HostTexts = Field(default=[], min_length=1)
    """The URL's host fits no glob (`private` too); holds when there is no host."""
    type: Literal["string", "integer", "number", "boolean", "array", "object", "null"] = "string"
    """The JSON type of the value."""
    present: bool = True
    """Whether the argument is there; null is."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise misplaced("expected at least one condition")
        return self


class MatchModel(Document):
    """Which calls a rule is for. All given keys must hold; in a list any may."""

    tools: list[GlobText] = Field(default=[], min_length=1)
    """Globs of tool names, spelling aside; of a namespaced or MCP tool the name alone or behind its namespace."""
    not_tools: list[GlobText] = Field(default=[], min_length=1)
    """Globs of tool names, compared exactly, that the rule is not for."""
    models: list[GlobText] = Field(default=[], min_length=1)
    """Globs of model names, case sensitive."""
    apis: list[Literal["chat", "responses"]] = Field(default=[], min_length=1)
    """The APIs that the request came by."""
    owner: Literal["client", "proxy", "upstream"] = "client"
    """Who runs the call."""
    declared: bool = True
    """Whether the request declares the tool; false: the model made it up."""
    clients: list[GlobText] = Field(default=[], min_length=1)
    """Globs of the configured names of clients."""
    headers: dict[str, GlobText] = Field(default={}, min_length=1)
    """Globs of request headers by name."""
    args: dict[DottedPath, ConditionModel] = Field(default={}, min_length=1)
    """Conditions on arguments by dotted path."""


class Nothing(Document):
    """An action without settings."""


class BlockModel(Document):
    """The call is held; its result says that it was blocked."""

    message: Text = "This call is not allowed."
    """Why, for the model."""
    then: Literal["continue", "stop", "fail"] = "continue"
    """The model is told, the turn ends with the message as its text, or the client gets 403."""


class AnswerModel(Document):
    """The call is held; this is its result."""

    content: Text | None = None
    """The result."""
    expr: ExpressionText | None = None
    """A CEL expression that gives the result, a string."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.content is None) == (self.expr is None):
            raise misplaced("expected either content or expr")
        return self


class ClampModel(Document):
    """Bounds of a number."""

    min: Number | None = None
    """The least."""
    max: Number | None = None
    """The most."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is None and self.max is None:
            raise misplaced("expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise misplaced("expected min to be at most max", "min")
        return self


class PatchModel(Document):
    """One operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    """What to do."""
    path: Text
    """A JSON pointer to the place."""
    from_: Text | None = Field(default=None, alias="from")
    """A JSON pointer to what is moved or copied."""
    value: JsonField = None
    """The value to add, to put in place, or to compare with."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.op in ("move", "copy") and self.from_ is None:
            raise misplaced(f"the key 'from' is missing, which {self.op} needs")
        if self.op in ("add", "replace", "test") and "value" not in self.model_fields_set:
            raise misplaced(f"the key 'value' is missing, which {self.op} needs")
        for key, pointer in (("path", self.path), ("from", self.from_)):
            if pointer and not pointer.startswith("/"):
                raise misplaced(f"expected a JSON pointer such as '/limit', got '{pointer[:60]}'", key)
        return self


class RewriteModel(Document):
    """Arguments changed. Several kinds of change in one rule are made in the order of this list."""

    merge: dict[str, JsonField] | None = None
    """A JSON merge patch (RFC 7386)."""
    default: dict[str, JsonField] | None = None
    """Values for keys that are absent."""
    clamp: dict[DottedPath, ClampModel] | None = None
    """Numbers by dotted path, held within bounds."""
    patch: list[PatchModel] | None = None
    """A JSON patch (RFC 6902)."""
    expr: ExpressionText | None = None
    """A CEL expression that gives the new object."""
    history: Literal["given", "original"] = "given"
    """What the model sees of the call on later requests: what the client was given, or its own text."""

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if not self.model_fields_set - {"history"}:
            raise misplaced("expected one of merge, default, clamp, patch, expr")
        return self


class ValidateModel(Document):
    """Arguments that do not parse or do not fit are blocked."""

    schema_: SchemaField = Field(alias="schema")
    """`declared` for the schema that the request declares, or a JSON Schema."""


class LimitModel(Document):
    """At most so many calls in a window of time."""

    max: int = Field(ge=1)
    """How many."""
    per: Duration = Field(gt=0)
    """The window."""
    by: list[CountedBy] = Field(default=["tenant", "tool"], min_length=1)
    """What is counted apart: `tool`, `tenant`, `client`, `user`, `args.PATH`. `[tenant, tool]` when left out; the list
    alone decides, so that without `tenant` all tenants share one count."""


class ApprovalModel(Document):
    """Held until a person decides."""

    wait: Duration = 0.0
    """How long the request waits for the decision."""
    ttl: Duration = Field(default=3600.0, gt=0)
    """How long a decision may take, and how long an approval counts from then on."""
    message: Text = ""
    """Why, for the person and the model."""


class AskModel(Document):
    """An external decision by Open Policy Agent's data API."""

    url: UrlText
    """Where to ask."""
    timeout: Duration = Field(default=5.0, gt=0)
    """How long to wait for the decision."""
    on_error: Literal["fail", "next"] = "fail"
    """What no decision does: an evaluation error, or the next rule."""


class RedactModel(Document):
    """What is looked for in a result, and what is put in its place."""

    pattern: Redaction | None = None
    """An RE2 pattern."""
    name: Literal["email", "phone", "creditCard", "iban", "ipAddress", "jwt", "awsKey", "privateKey"] | None = None
    """A ready name in place of a pattern."""
    with_: Text = Field(default="[redacted]", alias="with")
    """The text in its place, as it stands."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.pattern is None) == (self.name is None):
            raise misplaced("expected either pattern or name")
        return self


class ReplaceModel(Document):
    """Another text in place of the result."""

    content: Text
    """The text."""


class TruncateModel(Document):
    """A long result is cut, with a note."""

    max_bytes: Size
    """How many bytes of the result stay."""


class WithholdModel(Document):
    """The result is kept back."""

    message: Text = "This result is not shown."
    """Why, for the model."""


class ResultModel(Document):
    """What is done to a result on its way to the model; one of these."""

    redact: list[RedactModel] | None = Field(default=None, min_length=1)
    """Findings are replaced."""
    replace: ReplaceModel | None = None
    """The whole is replaced."""
    truncate: TruncateModel | None = None
    """The end is cut off."""
    block: WithholdModel | None = None
    """Nothing is shown."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        _exactly_one(self.given(), "redact", "replace", "truncate", "block")
        return self


ACTIONS = (
    *("allow", "block", "answer", "rewrite", "validate", "limit", "requireApproval", "defer", "ask", "middleware"),
    *("hide", "result"),
)


def _exactly_one(given: dict[str, Any], *choices: str) -> None:
    found = [key for key in choices if key in given]
    if not found:
        raise misplaced(f"expected one of {', '.join(choices)}")
    if len(found) > 1:
        raise misplaced(f"there is '{found[0]}' already; expected one of them alone", found[1])
    if given[found[0]] is None:
        raise misplaced(f"expected a mapping, got nothing (null): write {found[0]}: {{}}", found[0])


class RuleModel(Document):
    """A rule: which calls it is for, and its one action."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [action]} for action in ACTIONS]})

    name: Name
    """Unique in its policy."""
    match: MatchModel = MatchModel()
    """Which calls the rule is for; all when left out."""
    when: ConditionText | None = None
    """A CEL expression; the rule is for calls for which it is true."""
    allow: Nothing | None = None
    """The call goes ahead."""
    block: BlockModel | None = None
    """The call is held, and the model told."""
    answer: AnswerModel | None = None
    """The call is held, and answered."""
    rewrite: RewriteModel | None = None
    """The call's arguments are changed."""
    validate_: ValidateModel | None = Field(default=None, alias="validate")
    """The call's arguments must fit a JSON Schema."""
    limit: LimitModel | None = None
    """So many calls in a window of time."""
    require_approval: ApprovalModel | None = None
    """A person decides."""
    defer: Nothing | None = None
    """The call is surfaced when the others of its batch have results."""
    ask: AskModel | None = None
    """Another service decides."""
    middleware: PythonObject | None = None
    """A Python object decides: `package.module:attr`."""
    hide: Nothing | None = None
    """The tool is taken out of the request."""
    result: ResultModel | None = None
    """What is done to the call's result."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        given = self.given()
        _exactly_one(given, *ACTIONS)
        if "hide" in given:
            _hide_matches_requests(given)
        if self.when is not None and self.result is None:
            read = Expression.compile(self.when).variables & RESULT_VARIABLES
            if read:
                raise misplaced(f"'{min(read)}' is known in a result rule only; expected args", "when")
        for key in ("answer", "rewrite"):
            if key in given and given[key].expr and Expression.compile(given[key].expr).variables & RESULT_VARIABLES:
                raise misplaced("the result is known in a result rule only; expected args", key, "expr")
        return self


def _hide_matches_requests(given: dict[str, Any]) -> None:
    allowed = "hide matches by name, model, api, client and headers alone; expected those, or block in place of hide"
    if given.get("when") is not None:
        raise misplaced(allowed, "when")
    for key in ("args", "owner", "declared"):
        if "match" in given and key in given["match"].given():
            raise misplaced(allowed, "match", key)


class BatchModel(Document):
    """What holds for a whole batch."""

    max_parallel: int | None = Field(default=None, ge=1)
    """At most so many calls are surfaced at a time."""


class SpecModel(Document):
    """What the policy says."""

    mode: Literal["enforce", "shadow"] = "enforce"
    """Applied, or only decided, counted and logged."""
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """What an error in evaluating a rule does: the call is blocked, or the rule skipped."""
    match: MatchModel = MatchModel()
    """Narrows every rule of the policy."""
    batch: BatchModel = BatchModel()
    """How calls of one batch are surfaced."""
    rules: list[RuleModel] = []
    """The rules in their order."""


class MetadataModel(Document):
    """What the policy is."""

    name: Name
    """Unique in a set of policies."""
    title: Text = ""
    """A short line for people."""
    category: Text = ""
    """Where the policy is listed."""
    severity: Literal["low", "medium", "high", "critical"] = "medium"
    """How much depends on it."""
    description: Text = ""
    """What it is for."""


class PolicyDocument(Document):
    """A policy that governs tool calls."""

    api_version: Literal["sidecall.io/v1"]
    """The version of this format."""
    kind: Literal["ToolPolicy"]
    """What this document is."""
    metadata: MetadataModel
    """Its name, and what people may want to know of it."""
    spec: SpecModel
    """Its settings and rules."""


def read_document(source: Any, number: int = 0) -> PolicyDocument:
    """A document from what its file says. Raises PolicyProblems with all that is wrong in it."""
    try:
        return PolicyDocument.model_validate(source)
    except ValidationError as error:
        raise PolicyProblems(problems_of(error, source, model=PolicyDocument, document=number)) from None
