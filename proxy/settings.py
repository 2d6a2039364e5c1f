"""The kinds of value that a configuration is made of: durations, sizes, paths, headers, secrets.

Rules: a value is checked where it is read, and a message says what was expected without showing the value,
since it may be a secret written in the wrong place. A secret is named, never held in a model: it is read
through `Secret.read`, which looks at a file again when it changes. Validation is given a `Surroundings` as its
context. Must not know what the settings are for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

_DURATION = re.compile(r"(?:\d+(?:h|ms|m|s))+")
_DURATION_PART = re.compile(r"(\d+)(h|ms|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SIZE = re.compile(r"(\d+)(Ki|Mi|Gi)?")
_BYTES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive", "te", "trailer", "upgrade"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MOST_SECRET = 64 << 10
_MOST_DIGITS = 12

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a configuration is read in: the folder that relative paths count from, and the environment. Where it is for
    another machine, none of its secrets is looked for here (`are_its_own`)."""

    folder: Path = field(default_factory=Path)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    are_its_own: bool = True


def expected(message: str) -> PydanticCustomError:
    """A validation error that is told as it stands."""
    return PydanticCustomError("expected", "{text}", {"text": message})


class Settings(BaseModel):
    """A part of the configuration: frozen, strict, camelCase in files, and no key that is not known."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
    )


# ---------------------------------------------------------------- durations and sizes


def parse_duration(text: object) -> float:
    """Seconds, from `250ms`, `5s`, `10m`, `24h` or several in a row (`1h30m`)."""
    if not isinstance(text, str) or len(text) > 4 * _MOST_DIGITS or not _DURATION.fullmatch(text):
        raise expected("expected a duration such as 250ms, 5s, 10m or 24h")
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def parse_size(text: object) -> int:
    """Bytes, from `512Ki`, `64Mi`, `1Gi` or a whole number."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    found = _SIZE.fullmatch(text) if isinstance(text, str) and len(text) <= _MOST_DIGITS else None
    if found is None:
        raise expected("expected a size such as 512Ki, 64Mi or 1Gi, or a number of bytes")
    return int(found[1]) * _BYTES[found[2] or ""]


def _positive(value: Number) -> Number:
    if value <= 0:
        raise expected("expected more than nothing")
    return value


_DURATION_SCHEMA = {"type": "string", "pattern": f"^{_DURATION.pattern}$"}
_SIZE_SCHEMA = {"anyOf": [{"type": "string", "pattern": f"^{_SIZE.pattern}$"}, {"type": "integer", "minimum": 0}]}

Duration = Annotated[float, BeforeValidator(parse_duration), WithJsonSchema(_DURATION_SCHEMA)]
Timeout = Annotated[float, AfterValidator(_positive), BeforeValidator(parse_duration), WithJsonSchema(_DURATION_SCHEMA)]
Size = Annotated[int, AfterValidator(_positive), BeforeValidator(parse_size), WithJsonSchema(_SIZE_SCHEMA)]


def duration(default: str, description: str) -> float:
    """A field of durations; its default is written as in a file."""
    seconds: float = Field(
        default=parse_duration(default), description=description, json_schema_extra={"default": default}
    )
    return seconds


def size(default: str, description: str) -> int:
    """A field of sizes; its default is written as in a file."""
    count: int = Field(default=parse_size(default), description=description, json_schema_extra={"default": default})
    return count


# ---------------------------------------------------------------- paths


def _surroundings(context: object) -> Surroundings:
    return context if isinstance(context, Surroundings) else Surroundings()


def folder_of(context: object) -> Path:
    """The folder that relative paths count from."""
    return _surroundings(context).folder


def _located(path: str, info: ValidationInfo) -> str:
    """A path as it is opened: relative ones count from the folder of the configuration file."""
    if not path or "\0" in path:
        raise expected("expected a path")
    return str(folder_of(info.context) / path)


FilePath = Annotated[str, AfterValidator(_located)]
"""A file, a folder or a glob. Only its place is settled here; who opens it sees whether it is there."""


def _output(path: str, info: ValidationInfo) -> str:
    return path if path == "-" else _located(path, info)


OutputPath = Annotated[str, AfterValidator(_output)]
"""A file to write, or `-`."""


# ---------------------------------------------------------------- secrets


class Secret(Settings):
    """A secret by where it is kept: an environment variable or a file. Its value is in no model, repr or message."""

    env: str | None = Field(default=None, description="The environment variable that holds the secret.")
    file: FilePath | None = Field(
        default=None, description="The file that holds the secret; it is read again when it changes."
    )

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _seen: tuple[tuple[int, int, int], str] | None = PrivateAttr(default=None)
    _is_here: bool = PrivateAttr(default=True)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, dict | Secret):
            raise expected("expected {env: NAME} or {file: PATH}, never the secret itself")
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Read it once, so that one that is missing is told at the start."""
        if (self.env is None) == (self.file is None):
            raise expected("expected either {env: NAME} or {file: PATH}")
        surroundings = _surroundings(context)
        self._environ, self._is_here = surroundings.environ, surroundings.are_its_own
        if self._is_here:
            self.read()

    @property
    def is_here(self) -> bool:
        """Whether it can be read; a configuration for another machine names secrets of that one."""
        return self._is_here

    def read(self) -> str:
        """The secret as it is now. A file that has gone or become empty since keeps its last value."""
        if self.env is not None:
            value = self._environ.get(self.env)
            if value is None:
                raise expected(f"the environment variable {self.env} is not set")
            return _one_line(value, f"the environment variable {self.env}")
        assert self.file is not None
        return self._read_file(self.file)

    def _read_file(self, path: str) -> str:
        last = self._seen
        try:
            state = os.stat(path)
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if last is None or seen != last[0]:
                self._seen = (seen, _one_line(_secret_text(path), f"the file {path}"))
        except OSError as error:
            if last is None:
                raise expected(f"the file {path} cannot be read: {error.strerror}") from None
        except PydanticCustomError:
            if last is None:
                raise
        assert self._seen is not None
        return self._seen[1]


def _secret_text(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(_MOST_SECRET + 1)
    if len(data) > _MOST_SECRET:
        raise expected(f"the file {path} is larger than a secret can be ({_MOST_SECRET} bytes)")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise expected(f"the file {path} is not UTF-8 text") from None


def _one_line(value: str, where: str) -> str:
    if not value.strip():
        raise expected(f"{where} is empty; expected a secret")
    if _CONTROL.search(value):
        raise expected(f"{where} has line breaks or control characters; expected a secret on one line")
    return value


def text_or_secret(value: object) -> str:
    """Which of the two a value means to be."""
    return "secret" if isinstance(value, dict | Secret) else "text"


def _plain(value: str) -> str:
    if _CONTROL.search(value):
        raise expected("expected text on one line, without control characters")
    return value


TextOrSecret = Annotated[
    Annotated[str, AfterValidator(_plain), Tag("text")] | Annotated[Secret, Tag("secret")],
    Discriminator(text_or_secret),
]


def reader(value: str | Secret) -> Callable[[], str]:
    """What gives the value of a setting each time it is needed."""
    if isinstance(value, Secret):
        return value.read
    return lambda: value


# ---------------------------------------------------------------- headers


def _header_names(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    if any(not _HEADER_NAME.fullmatch(name) for name in headers):
        raise expected("expected names of HTTP headers")
    if framing := sorted(name for name in headers if name.lower() in _FRAMING):
        raise expected(f"the header {framing[0]} belongs to the connection and cannot be set")
    return headers


HeaderSettings = Annotated[dict[str, TextOrSecret], AfterValidator(_header_names)]
"""Headers by name; a value is text, or a secret. Not shown in a repr: text may be a credential all the same."""
