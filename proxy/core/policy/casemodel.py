"""Test documents as they are written: calls, batches and results, and what is expected of them.

The same models read a call that is to be explained. What a case comes to is not known here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, StringConstraints, WithJsonSchema, model_validator

from proxy.core.policy.fields import JsonField, Name, RuleText, Text
from proxy.core.policy.model import Document
from proxy.core.policy.problems import misplaced

KIND = "ToolPolicyTest"


def _declared(value: Any) -> dict[str, Any] | None:
    """Names, or names with schemas, as names with schemas."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return dict.fromkeys(value)
    if isinstance(value, dict) and all(schema is None or isinstance(schema, dict | bool) for schema in value.values()):
        return value
    raise ValueError("expected a list of tool names, or a mapping of tool names to JSON Schemas (null: none)")


def _result(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


Declared = Annotated[
    dict[str, Any] | None,
    PlainValidator(_declared),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": ["object", "boolean", "null"]}},
            ]
        }
    ),
]
Answers = dict[str, JsonField]
_ANSWERS: list[Any] = [{"cap-calls": 5, "orders/ask-a-person": "approved"}]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Texts = Annotated[list[Text], Field(min_length=1)]


class CallModel(Document):
    """A tool call as the model made it."""

    tool: Text = Field(examples=["search"])
    """The tool's name, as the model wrote it."""
    args: JsonField = Field(default={}, examples=[{"limit": 99}])
    """The arguments; what is no object is one of the ways in which models go wrong."""
    raw_args: Text | None = None
    """The arguments as text, in place of `args`: for what JSON cannot say, such as a key that comes twice."""
    input: Text | None = None
    """The text of a custom tool's call, in place of `args`."""
    owner: Literal["client", "proxy", "upstream"] = "client"
    """Who runs the call."""
    namespace: Text = ""
    """The tool's namespace, or the label of its MCP server."""
    call_id: Text = "call_1"
    """The call's id."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [key for key in ("args", "rawArgs", "input") if key in self.given()]
        if len(given) > 1:
            raise misplaced(f"there is '{given[0]}' already; expected one of args, rawArgs and input", given[1])
        return self


class RequestModel(Document):
    """The request that a call was made in."""

    model: Text = Field(default="", examples=["gpt-5"])
    """The model that the request names."""
    api: Literal["chat", "responses"] = "chat"
    """The API that it came by."""
    client: Text = ""
    """The configured name of the caller."""
    headers: dict[str, Text] = Field(default={})
    """Headers by name."""
    user: Text = ""
    """Its `safety_identifier`, or `user`."""
    metadata: dict[str, JsonField] = Field(default={})
    """Its metadata."""
    declared: Declared = Field(default=None, examples=[["search"], {"search": {"type": "object"}}])
    """The tools that it declares: names, or names with their JSON Schemas. Left out: those that are called."""


class ExplainModel(CallModel, RequestModel):
    """A call, or a result of it, whose decision is to be explained."""

    result: Text | None = None
    """What the tool gave back; result rules are explained."""
    is_error: bool = False
    """Whether it gave back an error."""
    answers: Answers = Field(default={}, examples=_ANSWERS)
    """What rules that ask somebody are told, as in a test case."""


class ShadowModel(Document):
    """What a rule in shadow mode would have decided."""

    policy: Text
    """Its policy."""
    rule: Text
    """The rule."""
    decision: Literal["rewritten", "blocked", "answered", "pending"]
    """The decision."""


class ExpectModel(Document):
    """What is expected; what is not named may be anything."""

    decision: Literal["allowed", "rewritten", "blocked", "answered", "approved", "denied", "pending"] = "allowed"
    """What is decided of the call."""
    outcome: Literal["ok", "redacted", "replaced", "truncated", "blocked"] = "ok"
    """What becomes of a result."""
    policy: Text = ""
    """The policy that decides; empty: none does."""
    rule: Text = ""
    """The rule that decides, or of a result one that acts on it; empty: none does."""
    args: dict[str, JsonField] = Field(default={})
    """The arguments that the call goes ahead with."""
    raw_args: Text = ""
    """The same as text, to the byte."""
    result: Text | None = None
    """The text that the model is given, as a whole; null: none, since the call goes ahead."""
    contains: Texts = Field(default=[])
    """Parts of that text."""
    lacks: Texts = Field(default=[])
    """What must not be in that text, nor in the arguments."""
    then: Literal["continue", "stop", "fail"] = "continue"
    """What a block does to the turn."""
    deferred: bool = False
    """Whether the call is put off until the others of its batch have results."""
    failed: bool = False
    """Whether it is blocked because a rule could not be evaluated."""
    errors: list[RuleText] = Field(default=[])
    """The rules that could not be evaluated, as `policy/rule`."""
    shadows: list[ShadowModel] = Field(default=[])
    """What rules in shadow mode would have decided."""
    order: list[list[Text]] = Field(default=[])
    """Of a batch: the tools of the calls that the client gets, turn by turn."""
    ends: Literal["pass", "split", "continue", "stop", "fail"] = "pass"
    """Of a batch: all calls go to the client now; some do; none does, and the model is asked again; the turn ends with
    a rule's message; the client gets 403."""
    message: Text = ""
    """Of a batch that `stop` or `fail` ends: the message."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise misplaced("expected at least one expectation, such as {decision: blocked}")
        return self


OF_BATCHES = frozenset({"order", "ends", "message"})
OF_RESULTS = frozenset({"outcome", "policy", "rule", "result", "contains", "lacks", "errors", "shadows"})
OF_CALLS = frozenset(ExpectModel.model_fields) - OF_BATCHES - {"outcome"}


def _check(expect: ExpectModel, known: frozenset[str], what: str) -> None:
    """An expectation that has no meaning where it stands is a mistake, not one that always holds."""
    if wrong := sorted(expect.model_fields_set - known):
        key = ExpectModel.model_fields[wrong[0]].alias or wrong[0]
        raise misplaced(f"'{key}' cannot be expected of {what}", "expect", key)


class BatchCallModel(CallModel):
    """A call of a batch, and what is expected of it."""

    expect: ExpectModel | None = None
    """What is expected of this call."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.expect is not None:
            _check(self.expect, OF_CALLS, "a call")
        return self


class ResultModel(Document):
    """What the tool of a call gave back."""

    text: Text
    """Its text."""
    is_error: bool = False
    """Whether it is an error."""


Result = Annotated[
    ResultModel | None,
    BeforeValidator(_result),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "isError": {"type": "boolean", "default": False}},
                    "required": ["text"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class CaseModel(RequestModel):
    """What comes in, and what is expected of it."""

    name: Label
    """What the case shows; unique in its document."""
    call: CallModel | None = None
    """One call."""
    batch: list[BatchCallModel] | None = Field(default=None, min_length=1)
    """Several calls of one turn, in the model's order."""
    result: Result = None
    """What the tool of `call` gave back: result rules are tested."""
    answers: Answers = Field(default={}, examples=_ANSWERS)
    """What rules that ask somebody are told, by `rule` or `policy/rule`. A limit: how many calls it has counted before;
    requireApproval: approved, denied or pending; ask: the service's result; middleware: the same, or of a result its
    new text. Without it: none counted, pending, no answer."""
    expect: ExpectModel | None = None
    """What is expected."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.call is None) == (self.batch is None):
            raise misplaced("expected either call or batch")
        if self.expect is None and not any(call.expect for call in self.batch or ()):
            raise misplaced("the key 'expect' is missing: a case expects something")
        if self.result is not None and self.call is None:
            raise misplaced("expected call beside result: the call that it is the result of", "result")
        if self.expect is not None:
            kinds = ((OF_RESULTS, "a result"), (OF_BATCHES, "a batch"), (OF_CALLS, "a call"))
            _check(self.expect, *kinds[0 if self.result is not None else 1 if self.batch is not None else 2])
        return self


class CasesMetadata(Document):
    """What the tests are."""

    name: Name
    """A name, by custom the policy's."""
    title: Text = ""
    """A short line for people."""
    description: Text = ""
    """What they show."""


class CasesDocument(Document):
    """Cases that policies are tested with."""

    api_version: Literal["sidecall.io/v1"]
    """The version of this format."""
    kind: Literal["ToolPolicyTest"]
    """What this document is."""
    metadata: CasesMetadata
    """What the tests are."""
    default_action: Literal["allow", "block"] = "allow"
    """What a call gets that no rule decides, as in the configuration."""
    cases: list[CaseModel]
    """The cases."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: set[str] = set()
        for index, case in enumerate(self.cases):
            if case.name in seen:
                message = f"there is a case '{case.name}' already; expected a name of its own"
                raise misplaced(message, "cases", index, "name")
            seen.add(case.name)
        return self
