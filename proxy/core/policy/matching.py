"""`match`: which requests and which calls a rule is for.

What a request decides alone is looked at once a request; what a call's name decides needs no arguments. Each match
says which of its keys is the first that does not fit, so that whoever asks can be shown why.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.calls import Api, Owner, RequestFacts
from proxy.core.jsontext import Object
from proxy.core.policy.conditions import Condition, Miss, compile_condition, first_miss
from proxy.core.policy.model import MatchModel
from proxy.core.policy.names import NamedTool, NameGlobs
from proxy.core.policy.patterns import Glob


@dataclass(frozen=True, slots=True)
class RequestMatch:
    models: tuple[Glob, ...] = ()
    apis: frozenset[Api] = frozenset()
    clients: tuple[Glob, ...] = ()
    headers: tuple[tuple[str, Glob], ...] = ()

    @classmethod
    def compile(cls, model: MatchModel) -> RequestMatch:
        return cls(
            tuple(map(Glob.compile, model.models)),
            frozenset(map(Api, model.apis)),
            tuple(map(Glob.compile, model.clients)),
            tuple((name.lower(), Glob.compile(glob)) for name, glob in model.headers.items()),
        )

    def miss(self, facts: RequestFacts) -> str:
        """The first key that does not fit; empty when all do."""
        if self.apis and facts.api not in self.apis:
            return "apis"
        if self.models and not any(glob.fits(facts.model) for glob in self.models):
            return "models"
        if self.clients and not (facts.client and any(glob.fits(facts.client) for glob in self.clients)):
            return "clients"
        for name, glob in self.headers:
            if not (name in facts.headers and glob.fits(facts.headers[name])):
                return f"headers.{name}"
        return ""

    def fits(self, facts: RequestFacts) -> bool:
        return not self.miss(facts)


@dataclass(frozen=True, slots=True)
class CallMatch:
    """`exact` is for rules that let calls go ahead: names as they are written, and conditions under every reading."""

    exact: bool
    tools: NameGlobs | None = None
    not_tools: NameGlobs | None = None
    owner: Owner | None = None
    declared: bool | None = None
    args: tuple[Condition, ...] = ()

    @classmethod
    def compile(cls, model: MatchModel, *, exact: bool) -> CallMatch:
        given = model.model_fields_set
        return cls(
            exact,
            NameGlobs.compile(model.tools) if model.tools else None,
            NameGlobs.compile(model.not_tools) if model.not_tools else None,
            Owner(model.owner) if "owner" in given else None,
            model.declared if "declared" in given else None,
            tuple(compile_condition(path, condition.given()) for path, condition in model.args.items()),
        )

    def tool_miss(self, tool: NamedTool) -> str:
        """The first key about the name that does not fit; empty when all do."""
        if self.tools is not None and not (self.tools.fits_exactly(tool) if self.exact else self.tools.fits(tool)):
            return "tools"
        return "notTools" if self.not_tools is not None and self.not_tools.fits_exactly(tool) else ""

    def fits_tool(self, tool: NamedTool) -> bool:
        """Whether the name alone fits."""
        return not self.tool_miss(tool)

    def miss(self, tool: NamedTool, owner: Owner, *, declared: bool) -> str:
        """The first key beside `args` that does not fit; empty when all do."""
        if self.owner is not None and self.owner is not owner:
            return "owner"
        if self.declared is not None and self.declared is not declared:
            return "declared"
        return self.tool_miss(tool)

    def fits_call(self, tool: NamedTool, owner: Owner, *, declared: bool) -> bool:
        """Whether all but the arguments fits."""
        return not self.miss(tool, owner, declared=declared)

    def may_fit_server(self, label: str) -> bool:
        """Whether some call of a server that the upstream asks could fit: any glob fits some name, so that only
        `notTools` can leave out a whole server."""
        if not self._fits_upstreams:
            return False
        return self.not_tools is None or not self.not_tools.take_all_behind(label)

    def fits_server(self, label: str) -> bool:
        """Whether every call of a server that the upstream asks is sure to fit."""
        if not self._fits_upstreams or self.not_tools is not None:
            return False
        return self.tools is None or self.tools.take_all_behind(label)

    @property
    def _fits_upstreams(self) -> bool:
        return self.owner in (None, Owner.UPSTREAM) and self.declared is not False

    def argument_miss(self, arguments: Object) -> Miss | None:
        """The first condition on arguments that does not hold. Raises UnjudgeableError, save for rules that let calls
        go ahead."""
        return first_miss(self.args, arguments, for_all_readings=self.exact)

    def fits_arguments(self, arguments: Object) -> bool:
        """As `argument_miss`."""
        return self.argument_miss(arguments) is None
