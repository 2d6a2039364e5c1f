"""Rules as they are judged: frozen values that `compile` makes once of the documents."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.calls import Owner, RequestFacts
from proxy.core.policy.expressions import Expression
from proxy.core.policy.findings import Finder
from proxy.core.policy.matching import CallMatch, RequestMatch
from proxy.core.policy.names import NamedTool
from proxy.core.policy.patterns import Pattern
from proxy.core.policy.rewriting import Rewrite
from proxy.core.policy.validating import Schema
from proxy.core.policy.values import Steps
from proxy.core.policy.verdicts import Needs, RuleName, Then


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Block:
    message: str
    then: Then


@dataclass(frozen=True, slots=True)
class Answer:
    """`content` is the text, or the expression that gives it."""

    content: str | Expression


@dataclass(frozen=True, slots=True)
class Validate:
    """`schema` None stands for the schema that the request declares."""

    schema: Schema | None


@dataclass(frozen=True, slots=True)
class Limit:
    """`by` holds fixed words and, of arguments, the path."""

    most: int
    window: float
    by: tuple[str | Steps, ...]


@dataclass(frozen=True, slots=True)
class Defer:
    pass


@dataclass(frozen=True, slots=True)
class Hide:
    pass


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """A person decides: within `wait` seconds, or later; `ttl` is how long the question stands, and an approval."""

    wait: float
    ttl: float
    message: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Another service decides. `passes_on`: where it does not, the next rule is tried."""

    url: str
    seconds: float
    passes_on: bool


@dataclass(frozen=True, slots=True)
class Middleware:
    """A Python object decides: `package.module:attr`."""

    target: str


Action = Allow | Block | Answer | Rewrite | Validate | Limit | Defer | Hide | RequireApproval | Ask | Middleware
"""What a rule does to a call."""


@dataclass(frozen=True, slots=True)
class Redact:
    """What is looked for, each with the text in its place."""

    findings: tuple[tuple[Pattern | Finder, str], ...]


@dataclass(frozen=True, slots=True)
class Replace:
    content: str


@dataclass(frozen=True, slots=True)
class Truncate:
    most: int


@dataclass(frozen=True, slots=True)
class Withhold:
    message: str


ResultAction = Redact | Replace | Truncate | Withhold | Middleware


@dataclass(frozen=True, slots=True)
class Guard:
    """Which requests and calls something is for: all matches must fit, and then `when`."""

    requests: tuple[RequestMatch, ...]
    calls: tuple[CallMatch, ...]
    when: Expression | None = None

    def fits_request(self, facts: RequestFacts) -> bool:
        return all(match.fits(facts) for match in self.requests)

    def fits_tool(self, tool: NamedTool) -> bool:
        return all(match.fits_tool(tool) for match in self.calls)

    def fits_call(self, tool: NamedTool, owner: Owner, *, declared: bool) -> bool:
        return not any(match.miss(tool, owner, declared=declared) for match in self.calls)

    def may_fit_server(self, label: str) -> bool:
        """Whether some call of a server that the upstream asks could fit, as far as names and owner tell."""
        return all(match.may_fit_server(label) for match in self.calls)

    def fits_server(self, label: str) -> bool:
        """Whether every call of a server that the upstream asks fits, as far as names and owner tell."""
        return all(match.fits_server(label) for match in self.calls)

    @property
    def is_for_all_requests(self) -> bool:
        return all(match == RequestMatch() for match in self.requests)

    @property
    def has_conditions(self) -> bool:
        """Whether more than the name, the owner and the request counts."""
        return self.when is not None or any(match.args for match in self.calls)

    @property
    def needs(self) -> Needs:
        needs = Needs.ARGUMENTS if any(match.args for match in self.calls) else Needs.NAME
        return max(needs, needs_of(self.when))


def needs_of(expression: Expression | None) -> Needs:
    if expression is None:
        return Needs.NAME
    if "batch" in expression.variables:
        return Needs.BATCH
    return Needs.ARGUMENTS if expression.reads_arguments else Needs.NAME


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose rule it is, and what its policy says of it."""

    name: RuleName
    shadow: bool
    ignores_errors: bool


@dataclass(frozen=True, slots=True)
class Rule:
    origin: Origin
    guard: Guard
    action: Action

    @property
    def always_ends(self) -> bool:
        """Whether every call that the guard fits by name ends here."""
        return (
            not self.origin.shadow and not self.guard.has_conditions and isinstance(self.action, Allow | Block | Hide)
        )

    @property
    def could_hold(self) -> bool:
        """Whether an enforced rule could hold, change or defer a call; one that allows can when it fails."""
        if self.origin.shadow:
            return False
        return not isinstance(self.action, Allow) or (self.guard.has_conditions and not self.origin.ignores_errors)

    @property
    def could_hold_upstream(self) -> bool:
        """As `could_hold`, of a call that the upstream runs: that cannot be put off, and where it would be answered or
        changed there is an error instead, which a policy may ignore."""
        if isinstance(self.action, Defer):
            return self.guard.has_conditions and not (self.origin.shadow or self.origin.ignores_errors)
        return self.could_hold and not (isinstance(self.action, Answer | Rewrite) and self.origin.ignores_errors)

    @property
    def needs(self) -> Needs:
        return max(self.guard.needs, _needs_of_action(self.action))


def _needs_of_action(action: Action) -> Needs:
    match action:
        case Rewrite():
            return max(Needs.ARGUMENTS, needs_of(action.expression))
        case Validate() | RequireApproval() | Middleware():
            return Needs.ARGUMENTS
        case Ask():
            return Needs.BATCH  # a service is told of the batch
        case Answer(content=Expression() as expression):
            return needs_of(expression)
        case Limit(by=by):
            return Needs.ARGUMENTS if any(isinstance(part, tuple) for part in by) else Needs.NAME
        case _:
            return Needs.NAME


@dataclass(frozen=True, slots=True)
class ResultRule:
    origin: Origin
    guard: Guard
    action: ResultAction


@dataclass(frozen=True, slots=True)
class LaneRule:
    policy: str
    most: int
    guard: Guard
