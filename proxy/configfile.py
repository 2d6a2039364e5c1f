"""Reading the configuration: the file, then the environment over it, then flags over both.

Rules: all problems are told at once, each where it stands, and none shows a value, since any value may be a
secret in the wrong place. Relative paths of the file count from its folder, those of environment and flags from
the working directory. Must not know what settings do.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from proxy.config import API_VERSION, Config, located_state
from proxy.core.jsontext import Path as JsonPath
from proxy.core.jsontext import render
from proxy.core.policy.problems import suggestion
from proxy.errors import ConfigError, Problem
from proxy.settings import Secret, Surroundings
from proxy.yamlfile import Document, Place, read_documents, read_text

KIND = "Config"
PREFIX = "SIDECALL_"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings from outside the file; None leaves the file's. `listen` and `admin` are HOST:PORT."""

    upstream: str | None = None
    listen: str | None = None
    admin: str | None = None
    policies: tuple[str, ...] | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class _Override:
    """One value from outside: where it is from, what it takes the place of, and itself."""

    source: str
    path: JsonPath
    value: Any


def environment_overrides(environ: Mapping[str, str]) -> Overrides:
    """What `SIDECALL_…` variables say; an empty one says nothing. Policies are parted as in PATH."""
    given = {field.name: environ.get(PREFIX + field.name.upper()) or None for field in fields(Overrides)}
    policies = tuple(part for part in (given.pop("policies") or "").split(os.pathsep) if part)
    return Overrides(**given, policies=policies or None)


def load_config(path: Path | str | None, *, environ: Mapping[str, str], flags: Overrides = Overrides()) -> Config:
    """The configuration of one process. Raises ConfigError with every problem."""
    document = _read(Path(path)) if path is not None else _no_file()
    raw = copy.deepcopy(document.value)
    assert isinstance(raw, dict)
    problems = [] if path is None else [document.problem((), message) for message in _heading(raw)]
    overrides: list[_Override] = []
    for source, given in (("environment", environment_overrides(environ)), ("flag", flags)):
        for name, value in ((field.name, getattr(given, field.name)) for field in fields(given)):
            if value is not None:
                try:
                    overrides += _overrides(name, value, source)
                except ValueError as error:
                    problems.append(Problem(_spelled(name, source), 0, 0, str(error)))
    for override in overrides:
        _put(raw, override)
    folder = Path(path).parent if path is not None else Path()
    config, found = _validated(raw, Surroundings(folder, environ), _Places(document, overrides))
    problems += found
    if config is None or problems:
        raise ConfigError(sorted(problems, key=lambda problem: (problem.line, problem.column)))
    return config


def read_remote(text: str, name: str) -> Config:
    """A configuration that another machine will run: nothing is looked for on this one. Raises ConfigError; `name` is
    what its problems are told of."""
    document = _one(read_text(text, name), name)
    assert isinstance(document.value, dict)
    problems = [document.problem((), message) for message in _heading(document.value)]
    config, found = _validated(document.value, Surroundings(Path(), {}, are_its_own=False), _Places(document, []))
    if config is None or found or problems:
        raise ConfigError([*problems, *found])
    return config


def _read(path: Path) -> Document:
    return _one(read_documents(path), str(path))


def _one(documents: Sequence[Document], file: str) -> Document:
    if not documents:
        raise ConfigError([Problem(file, 1, 1, f"the file is empty; expected a document of kind {KIND}")])
    if len(documents) > 1:
        raise ConfigError([documents[1].problem((), "expected one document in the configuration file")])
    if not isinstance(documents[0].value, dict):
        raise ConfigError([documents[0].problem((), f"expected a mapping of kind {KIND}")])
    return documents[0]


def _no_file() -> Document:
    nowhere = Place((0, 0), (0, 0))
    return Document({"apiVersion": API_VERSION, "kind": KIND}, "configuration", {(): nowhere})


def _heading(raw: dict[str, Any]) -> Iterator[str]:
    """What a file must say of itself. Values that are there are judged with all others."""
    for key, value in (("apiVersion", API_VERSION), ("kind", KIND)):
        if key not in raw:
            yield f"the key '{key}' is missing: expected {key}: {value}"


# ---------------------------------------------------------------- environment and flags


def _spelled(name: str, source: str) -> str:
    return f"--{name}" if source == "flag" else PREFIX + name.upper()


def _overrides(name: str, value: str | tuple[str, ...], source: str) -> list[_Override]:
    """Raises ValueError for what cannot be understood."""
    shown = _spelled(name, source)
    _check_text(value)
    if isinstance(value, tuple):
        return [_Override(shown, ("policies",), [str(Path.cwd() / one) for one in value])]
    match name:
        case "upstream":
            return [_Override(shown, ("upstream", "baseUrl"), value)]
        case "state":
            return [_Override(shown, ("state", "url"), _state(value))]
        case _:
            host, port = parse_address(value)
            return [_Override(shown, (name, "host"), host), _Override(shown, (name, "port"), port)]


def _check_text(value: str | tuple[str, ...]) -> None:
    try:
        "".join(value).encode()
    except UnicodeEncodeError:
        raise ValueError("expected text in UTF-8") from None


def _state(url: str) -> str:
    try:
        return located_state(url, Path.cwd())
    except PydanticCustomError as error:
        raise ValueError(error.message()) from None


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:15480")
    return host, int(port)


def _put(raw: dict[str, Any], override: _Override) -> None:
    """Set a value; a section that is no mapping stays, to be told as the mistake that it is."""
    at = raw
    for step in override.path[:-1]:
        below = at.setdefault(str(step), {})
        if not isinstance(below, dict):
            return
        at = below
    at[str(override.path[-1])] = override.value


@dataclass(frozen=True, slots=True)
class _Places:
    """Where settings come from."""

    document: Document
    overrides: list[_Override]

    def problem(self, path: JsonPath, message: str, *, at_value: bool = True) -> Problem:
        for override in reversed(self.overrides):
            if path[: len(override.path)] == override.path:
                return Problem(override.source, 0, 0, message)
        return (self.document.value_problem if at_value else self.document.problem)(path, message)


# ---------------------------------------------------------------- judging


def _validated(raw: dict[str, Any], surroundings: Surroundings, places: _Places) -> tuple[Config | None, list[Problem]]:
    """The configuration, if it is one, and what is wrong with it."""
    try:
        # JSON mode: strict, and yet lists become tuples and words become members of enums
        config = Config.model_validate_json(render(raw), by_alias=True, by_name=False, context=surroundings)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return None, [_problem(detail, raw, places) for detail in details]
    return config, [places.problem(path, message) for path, message in _contradictions(config)]


def _problem(detail: ErrorDetails, raw: dict[str, Any], places: _Places) -> Problem:
    path = _path_in(raw, detail)
    at_value = detail["type"] not in ("extra_forbidden", "missing")
    return places.problem(path, _message(detail, raw, path), at_value=at_value)


def _contradictions(config: Config) -> Iterator[tuple[JsonPath, str]]:
    """What is wrong with settings that are right one by one."""
    if config.is_open_to_others():
        yield (
            ("listen", "host"),
            "upstream.apiKey without clients would serve every caller on an address that is not loopback; "
            "expected clients, or listen.allowAnyCaller: true",
        )
    yield from _twice("clients", (client.name for client in config.clients))
    yield from _twice("tools", (tool.name for tool in config.tools))
    yield from _twice("tools", (tool.mcp.name if tool.mcp is not None else None for tool in config.tools), "mcp")
    address = config.state.url
    if (not isinstance(address, Secret) or address.is_here) and not config.state.address().startswith("rediss"):
        for key, files in (("caFile", config.state.ca_file), ("clientCert", config.state.client_cert)):
            if files is not None:
                yield ("state", key), "has no effect without TLS; expected a rediss:// address as state.url"


def _twice(section: str, names: Iterable[str | None], *below: str) -> Iterator[tuple[JsonPath, str]]:
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        if name is not None:
            seen[name] += 1
            if seen[name] > 1:
                yield (section, index, *below, "name"), f"the name '{name}' is here twice; expected names of their own"


def _path_in(source: Any, detail: ErrorDetails) -> JsonPath:
    """A location as a path in the file: pydantic also names branches of unions."""
    path: list[str | int] = []
    for step in detail["loc"]:
        if _has(source, step):
            source = source[step]
            path.append(step)
    return tuple(path)


def _has(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


_EXPECTED = {
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "too_short": "expected at least one",
}


def _message(detail: ErrorDetails, raw: Any, path: JsonPath) -> str:
    """What is wrong, and what was expected; the value itself is not shown."""
    kind, ctx = detail["type"], detail.get("ctx", {})
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    value = _at(raw, path)
    match kind:
        case "extra_forbidden":
            known = _known_keys(Config, path[:-1])
            return f"unknown key '{last}'{suggestion(last, known)}; expected one of {', '.join(known)}"
        case "missing":
            return f"the key '{last}' is missing"
        case "enum" | "literal_error":
            words = str(ctx.get("expected", "")).replace("'", "")
            known = words.replace(" or ", ", ").split(", ")
            return f"unknown value{suggestion(str(value), known)}; expected {words}"
        case "greater_than_equal":
            return f"expected {ctx.get('ge')} or more"
        case "less_than_equal":
            return f"expected {ctx.get('le')} or less"
        case "string_type" if isinstance(value, bool | int | float):
            return "expected text; YAML reads this as something else: put it in quotes"
        case _:
            return _EXPECTED.get(kind, detail["msg"])


def _at(value: Any, path: JsonPath) -> Any:
    for step in path:
        value = value[step]
    return value


def _known_keys(model: type[BaseModel], path: JsonPath) -> list[str]:
    """The keys that a mapping at this path may have."""
    for step in path:
        field = next((f for n, f in model.model_fields.items() if step in (n, f.alias)), None)
        inner = _model_in(field.annotation, *field.metadata) if field is not None else None
        model = inner or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(*annotations: Any) -> type[BaseModel] | None:
    """The model that annotations such as `tuple[Client, ...] | None` hold, if any."""
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        if (found := _model_in(*getattr(annotation, "__args__", ()))) is not None:
            return found
    return None
