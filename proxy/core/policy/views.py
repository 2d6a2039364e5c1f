"""One call as rules see it: everything that is read of it is read once, and only when a rule asks.

A view also remembers whether an enforced rule looked at the arguments, and what rewriting made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.core.arguments import Arguments, Wrapping, read_arguments, render_arguments
from proxy.core.calls import Kind, Owner, RequestFacts
from proxy.core.jsontext import Json, Object, parse
from proxy.core.policy.consults import CallAsSeen
from proxy.core.policy.expressions import Expression, Scope
from proxy.core.policy.failures import EvaluationError, NotKnownError
from proxy.core.policy.names import NamedTool
from proxy.core.policy.rules import Guard
from proxy.core.policy.values import same
from proxy.core.policy.verdicts import Subject


def is_declared(tool: NamedTool, owner: Owner, facts: RequestFacts) -> bool:
    """Whether the request declares a tool. One that the upstream runs is its server's, whose list a request need not
    show: nobody made it up."""
    return owner is Owner.UPSTREAM or tool.declared_as(facts.declared) is not None


class CallView:
    __slots__ = (
        "_arguments",
        "_changed",
        "_facts",
        "_scope",
        "_text",
        "_values",
        "declared",
        "enforced",
        "looked",
        "subject",
        "tool",
    )

    def __init__(self, facts: RequestFacts, subject: Subject, **more: Json) -> None:
        """`more` are variables beside those of every call: `result` and `isError`."""
        self._facts = facts
        self.subject = subject
        self.tool = NamedTool.of(subject.call.name, subject.call.namespace)
        self.declared = is_declared(self.tool, subject.owner, facts)
        self.enforced = True
        self.looked = False
        self._arguments: Arguments | None = None
        self._changed: Object | None = None
        self._text: str | None = None
        self._scope: Scope | None = None
        self._values = more

    # ---------------------------------------------------------------- what rules ask

    def fits(self, guard: Guard) -> bool:
        """Whether what the guard says beside the name holds. Raises EvaluationError."""
        for match in guard.calls:
            if match.args and not match.fits_arguments(self.arguments()):
                return False
        return guard.when is None or self.ask(guard.when).is_true(self.scope)

    def ask(self, expression: Expression) -> Expression:
        """The expression, noted as one that looks where it does."""
        if expression.reads_arguments:
            self._look()
        return expression

    @property
    def scope(self) -> Scope:
        if self._scope is None:
            self._scope = Scope(self._find)
        return self._scope

    def arguments(self) -> Object:
        """The arguments, as changed so far. Raises EvaluationError when they are no object."""
        self._look()
        if self._changed is not None:
            return self._changed
        read = self._read()
        if read.value is None:
            raise EvaluationError(f"the arguments are no JSON object: {read.problem}")
        return read.value

    def misread(self) -> str:
        """Why the arguments do not parse; empty where they do. A key that comes twice parses."""
        self._look()
        read = self._read()
        if read.value is None:
            return read.problem or "it is no JSON object"
        if read.canonical is None:
            return ""
        try:
            text = parse(self.subject.call.text)
            if isinstance(text, str):
                parse(text)
        except ValueError:
            return "there is text behind the object"
        return ""

    def seen(self) -> CallAsSeen:
        """The call for whoever decides elsewhere."""
        self._look()
        call = self.subject.call
        return CallAsSeen(
            call_id=str(call.call_id),
            tool=self.tool.name,
            namespace=call.namespace,
            arguments=self._changed if self._changed is not None else self._read().value,
            raw=self._raw(),
            owner=self.subject.owner,
            declared=self.declared,
            batch=self.subject.batch,
            facts=self._facts,
        )

    def variable(self, name: str) -> Json:
        """What an expression reads under a name. Raises EvaluationError."""
        return self._find(name)

    def set_result(self, text: str) -> None:
        self._values["result"] = text
        self.scope.forget("result")

    # ---------------------------------------------------------------- what rewriting made of it

    def trial(self, arguments: Object) -> Scope:
        """The variables when `args` is this object (within one rewrite of several steps)."""
        if self._changed is arguments or (self._changed is None and self._read().value is arguments):
            return self.scope
        return Scope(lambda name: arguments if name == "args" else self._find(name))

    def would_change(self, new: Object) -> bool:
        return not same(new, self.arguments())

    def written(self, new: Object) -> str:
        """New arguments as the text of the call. Raises EvaluationError for what it cannot carry."""
        wrapping = self._read().wrapping
        if wrapping is Wrapping.INPUT and not (new.keys() == {"input"} and isinstance(new["input"], str)):
            raise EvaluationError("a custom tool takes one text, `input`, and nothing else")
        try:
            return render_arguments(new, wrapping)
        except (TypeError, ValueError, RecursionError) as error:
            raise EvaluationError(f"the new arguments cannot be written: {error}") from None

    def change(self, new: Object, text: str) -> None:
        """Go on with new arguments, whose text is what `written` gave."""
        self._changed, self._text = new, text
        self.scope.forget("args", "rawArgs")

    def original(self) -> Object:
        """The model's own arguments. Raises EvaluationError when they are no object."""
        value = self._read().value
        if value is None:
            raise EvaluationError("the arguments are no JSON object")
        return value

    @property
    def is_free_text(self) -> bool:
        return self.subject.call.kind is Kind.CUSTOM

    @property
    def is_upstreams(self) -> bool:
        return self.subject.owner is Owner.UPSTREAM

    @property
    def is_changed(self) -> bool:
        return self._changed is not None and not same(self._changed, self._read().value)

    @property
    def new_text(self) -> str | None:
        """The text for the owner, where it is not the model's."""
        if self.is_changed:
            return self._text
        return self._read().canonical if self.looked else None

    # ---------------------------------------------------------------- reading

    def _look(self) -> None:
        self.looked = self.looked or self.enforced

    def _read(self) -> Arguments:
        if self._arguments is None:
            if "args" in self._facts.unknown:
                raise NotKnownError("args")
            self._arguments = read_arguments(self.subject.call)
            if self.is_upstreams and self._arguments.canonical is not None:
                # Its owner cannot be given the text that rules saw, so nobody knows what it will read.
                problem = "it can be read in two ways"
                self._arguments = replace(self._arguments, value=None, canonical=None, problem=problem)
        return self._arguments

    def _find(self, name: str) -> Json:
        if name in self._values:
            return self._values[name]
        if name in self._facts.unknown:
            raise NotKnownError(name)
        if name == "args":
            if self._changed is not None:
                return self._changed
            return self.original()
        return _FINDERS[name](self)

    def _raw(self) -> str:
        if self._changed is not None and self._text is not None:
            return self._text
        return self._read().canonical or self.subject.call.text

    def _batch(self) -> Json:
        batch = self.subject.batch
        if batch is None:
            raise EvaluationError("the batch is not known here")
        return {"size": batch.size, "index": batch.index, "tools": list(batch.tools)}


_FINDERS: dict[str, Callable[[CallView], Json]] = {
    "tool": lambda view: view.tool.name,
    "rawArgs": CallView._raw,
    "callId": lambda view: view.subject.call.call_id,
    "model": lambda view: view._facts.model,
    "api": lambda view: str(view._facts.api),
    "owner": lambda view: str(view.subject.owner),
    "declared": lambda view: view.declared,
    "headers": lambda view: dict(view._facts.headers),
    "user": lambda view: view._facts.user,
    "metadata": lambda view: dict(view._facts.metadata),
    "client": lambda view: view._facts.client,
    "batch": CallView._batch,
}
