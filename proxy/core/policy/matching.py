"""`match`: which requests and which calls a rule is for.

What a request decides alone is looked at once a request; what a call's name decides needs no arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.calls import Api, Owner, RequestFacts
from proxy.core.jsontext import Object
from proxy.core.policy.conditions import Condition, compile_condition, conditions_hold
from proxy.core.policy.failures import UnjudgeableError
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

    def fits(self, facts: RequestFacts) -> bool:
        if self.apis and facts.api not in self.apis:
            return False
        if self.models and not any(glob.fits(facts.model) for glob in self.models):
            return False
        if self.clients and not (facts.client and any(glob.fits(facts.client) for glob in self.clients)):
            return False
        return all(name in facts.headers and glob.fits(facts.headers[name]) for name, glob in self.headers)


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

    def fits_tool(self, tool: NamedTool) -> bool:
        """Whether the name alone fits."""
        if self.tools is not None and not (self.tools.fits_exactly(tool) if self.exact else self.tools.fits(tool)):
            return False
        return self.not_tools is None or not self.not_tools.fits_exactly(tool)

    def fits_call(self, tool: NamedTool, owner: Owner, *, declared: bool) -> bool:
        """Whether all but the arguments fits."""
        if self.owner is not None and self.owner is not owner:
            return False
        if self.declared is not None and self.declared is not declared:
            return False
        return self.fits_tool(tool)

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

    def fits_arguments(self, arguments: Object) -> bool:
        """Raises UnjudgeableError, save where a condition that cannot be judged does not hold."""
        try:
            return conditions_hold(self.args, arguments, for_all_readings=self.exact)
        except UnjudgeableError:
            if self.exact:
                return False
            raise
