"""The configuration: every setting, its default, and what it means.

Rules: models are frozen and strict, and every field says what it is for, since the JSON Schema and the reference
are made of it. What can be judged by looking at one setting is judged there; what needs two is judged in
`Config`. Must not know the server, nor where a setting stood in a file (`proxy/configfile.py` does).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from proxy.core.policy.verdicts import DefaultAction
from proxy.settings import (
    Duration,
    FilePath,
    HeaderSettings,
    OutputPath,
    Secret,
    Settings,
    Size,
    TextOrSecret,
    Timeout,
    duration,
    expected,
    folder_of,
    size,
)
from proxy.stores.redis_address import Trust, parse_redis_address
from proxy.toolconfig import ToolEntry

API_VERSION: Final = "sidecall.io/v1"
DEFAULT_UPSTREAM = "https://api.openai.com/v1"


def _host(text: str) -> str:
    if not re.fullmatch(r"[^\s/\[\]@\x00-\x1f]{1,255}", text):
        raise expected("expected a host name or an address, such as 127.0.0.1")
    return text


Host = Annotated[str, AfterValidator(_host)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=0)]


class Auth(StrEnum):
    """How the configured key is sent to the upstream."""

    BEARER = "bearer"
    API_KEY = "api-key"
    NONE = "none"


class Unsupported(StrEnum):
    """What becomes of surfaces that can carry tool calls and are not governed."""

    AUTO = "auto"
    PASS = "pass"  # noqa: S105 - no password
    DENY = "deny"


class Orphans(StrEnum):
    """What becomes of calls in a history that have no result."""

    PASS = "pass"  # noqa: S105 - no password
    REPAIR = "repair"


class OnUnavailable(StrEnum):
    """What becomes of a request that needs the store while the store is down."""

    REFUSE = "refuse"
    PASS = "pass"  # noqa: S105 - no password


class AuditArguments(StrEnum):
    """How much of a call's arguments an audit record holds."""

    NONE = "none"
    REDACTED = "redacted"
    FULL = "full"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class CertificateFiles(Settings):
    """A certificate and its key, as PEM files."""

    cert_file: FilePath = Field(description="The PEM file of the certificate and its chain.")
    key_file: FilePath = Field(description="The PEM file of the private key.")


class Listen(Settings):
    """Where clients call."""

    host: Host = Field(default="127.0.0.1", description="The address that clients call.")
    port: Port = Field(default=15480, description="The port that clients call; 0 takes any free one.")
    reuse_port: bool = Field(
        default=False, description="Share the port with other processes, so that one machine can run several."
    )
    max_body_bytes: Size = size("64Mi", "The largest body of a governed request. What passes unread has no bound.")
    allow_any_caller: bool = Field(
        default=False,
        description="Start on an address that is not loopback with an apiKey and without clients: "
        "whoever reaches the port then uses the key.",
    )
    tls: CertificateFiles | None = Field(default=None, description="Serve TLS with this certificate.")


class Admin(Settings):
    """Where health, metrics and the admin page are."""

    host: Host = Field(default="127.0.0.1", description="The address of health, metrics and the admin page.")
    port: Port = Field(default=15490, description="The port of health, metrics and the admin page; 0: any free one.")
    insecure: bool = Field(
        default=False, description="Open the admin page without a token to requests from this machine: for a laptop."
    )
    ready_needs_store: bool = Field(default=False, description="Be ready only while the store answers.")
    token: Secret | None = Field(default=None, description="The bearer token of the admin page and its API.")

    @property
    def can_approve(self) -> bool:
        """Whether there is a way for a person to approve a call."""
        return self.token is not None or self.insecure


class Timeouts(Settings):
    """How long the upstream may take with a governed request."""

    connect: Timeout = duration("5s", "The longest time for connecting to the upstream.")
    first_byte: Timeout = duration("30m", "The longest time until the upstream's answer begins.")
    idle: Timeout = duration("15m", "The longest silence within an answer.")


def _url(url: str) -> str:
    """An http or https URL. Raises an error that does not show it: it may hold a secret."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\s\\\x00-\x1f]", url):
        raise expected("expected an http or https URL such as https://host/v1")
    return url


def _base_url(url: str) -> str:
    parts = urlsplit(_url(url))
    if parts.username is not None or parts.query or parts.fragment:
        raise expected("expected a URL without credentials, query and fragment; a key belongs under apiKey")
    return url.rstrip("/")


class Upstream(Settings):
    """The OpenAI-compatible endpoint."""

    base_url: Annotated[str, AfterValidator(_base_url)] = Field(
        default=DEFAULT_UPSTREAM, description="What the client's /v1 maps to."
    )
    auth: Auth = Field(default=Auth.BEARER, description="How apiKey is sent: as a bearer token, as api-key, or not.")
    api_key: Secret | None = Field(default=None, description="The endpoint's key, in place of the clients' own.")
    timeouts: Timeouts = Field(default=Timeouts(), description="Time limits of governed requests.")
    ca_file: FilePath | None = Field(default=None, description="A PEM file of authorities to trust for the upstream.")
    client_cert: CertificateFiles | None = Field(default=None, description="A certificate to show to the upstream.")
    headers: HeaderSettings = Field(default={}, repr=False, description="Headers to set on every upstream request.")


class Paths(Settings):
    """Which paths pass at all."""

    allow: tuple[str, ...] | None = Field(
        default=None,
        description="Globs of paths that pass, such as /v1/files/*. Without it: all, or with an apiKey the known ones.",
    )


class Continuations(Settings):
    """How long a turn may go on by itself when every call of it was held."""

    max: Count = Field(default=40, description="The most upstream calls beyond the first within one request.")
    max_consecutive_errors: Annotated[int, Field(ge=1)] = Field(
        default=3, description="How many rounds in a row may have nothing but errors as results."
    )
    restore_bytes: Size = size("256Ki", "How much of hidden results goes back into the history of a conversation.")


class Denials(Settings):
    """When a model that keeps asking for what it cannot have is stopped."""

    stop_after: Annotated[int, Field(ge=1)] = Field(
        default=5, description="After how many blocked calls in a row a further block ends the turn."
    )


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        raise expected("expected a name of letters, digits, '-', '_' and '.', at most 63 long")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise expected("expected a SHA-256 in hex: 64 digits")
    return text


class Client(Settings):
    """A caller, known by its bearer token or api-key."""

    name: Annotated[str, AfterValidator(_name)] = Field(description="The client's name, for rules, logs and state.")
    key: Secret | None = Field(default=None, description="The key that the client sends.")
    key_sha256: Annotated[str, AfterValidator(_sha256)] | None = Field(
        default=None, repr=False, description="The SHA-256 of that key in hex, in place of the key."
    )

    @model_validator(mode="after")
    def _one_key(self) -> Client:
        if (self.key is None) == (self.key_sha256 is None):
            raise expected("expected either key or keySha256")
        return self

    def digest(self) -> bytes:
        """The SHA-256 of the key as it is now."""
        if self.key_sha256 is not None:
            return bytes.fromhex(self.key_sha256)
        assert self.key is not None
        return hashlib.sha256(self.key.read().encode()).digest()


def find_client(clients: Sequence[Client], credential: str) -> Client | None:
    """The client that a credential belongs to. Takes as long for a wrong one as for a right one."""
    shown = hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()
    found = [client for client in clients if hmac.compare_digest(client.digest(), shown)]
    return found[0] if found and credential else None


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value if isinstance(value, tuple) else (value,)


def located_state(url: str, folder: Path) -> str:
    """A state URL with its path as it is opened. Raises an error that does not show it: it may hold a password."""
    scheme, _, rest = url.partition(":")
    if url in ("memory:", "sqlite:"):
        return url
    if scheme == "sqlite" and rest and not rest.startswith("//"):
        return f"sqlite:{folder / rest}"
    if scheme.startswith("redis") and _is_redis(url):
        return url
    raise expected(
        "expected memory:, sqlite:PATH, redis://HOST, redis+sentinel://HOST,HOST/SERVICE or redis+cluster://HOST,HOST "
        "(rediss for TLS)"
    )


def _is_redis(url: str) -> bool:
    try:
        parse_redis_address(url)
    except ValueError:
        return False
    return True


def _state_url(url: str | Secret, info: ValidationInfo) -> str | Secret:
    folder = folder_of(info.context)
    if isinstance(url, Secret):
        if url.is_here:
            located_state(url.read(), folder)
        return url
    return located_state(url, folder)


class State(Settings):
    """Where held calls, approvals and counts are kept."""

    url: Annotated[TextOrSecret, AfterValidator(_state_url)] = Field(
        default="sqlite:",
        repr=False,
        description="memory:, sqlite:PATH, redis://…, redis+sentinel://… or redis+cluster://… (rediss for TLS); "
        "may be a secret.",
    )
    ca_file: FilePath | None = Field(
        default=None,
        description="A PEM file of authorities to trust for rediss://, in place of the system's.",
    )
    client_cert: CertificateFiles | None = Field(
        default=None, description="A certificate to show to a rediss:// server."
    )
    ttl: Timeout = duration("24h", "How long a split batch is remembered after its last use.")
    stored_ttl: Timeout = duration("720h", "The same for what the upstream stores.")
    on_unavailable: OnUnavailable = Field(
        default=OnUnavailable.REFUSE,
        description="Whether a request whose history has tool calls is refused or passes while the store is down.",
    )
    encryption_key: Annotated[tuple[Secret, ...], BeforeValidator(_tuple)] = Field(
        default=(), description="A key, or a list of keys, that what is stored is encrypted with; the first one writes."
    )
    _folder: Path = PrivateAttr(default_factory=Path)

    def model_post_init(self, context: Any, /) -> None:
        self._folder = folder_of(context)

    def address(self) -> str:
        """The URL of the store, as it is opened."""
        return located_state(self.url.read(), self._folder) if isinstance(self.url, Secret) else self.url

    def trust(self) -> Trust:
        """The files for TLS to the store."""
        own = self.client_cert
        return Trust(self.ca_file, own.cert_file if own else None, own.key_file if own else None)

    def keys(self) -> tuple[bytes, ...]:
        """The encryption keys as they are now; the first one writes."""
        return tuple(key.read().encode() for key in self.encryption_key)


class Audit(Settings):
    """The record of every call."""

    path: OutputPath = Field(default="-", description="The file of the audit records; '-' is standard error.")
    arguments: AuditArguments = Field(
        default=AuditArguments.REDACTED, description="How much of the arguments is recorded; redacted: keys and types."
    )


def _webhook_url(url: str | Secret) -> str | Secret:
    if not isinstance(url, Secret):
        _url(url)
    elif url.is_here:
        _url(url.read())
    return url


class ApprovalWebhook(Settings):
    """Who is told of each new approval."""

    url: Annotated[TextOrSecret, AfterValidator(_webhook_url)] = Field(
        repr=False, description="Where a new approval is posted; may be a secret."
    )
    secret: Secret = Field(description="The key of the HMAC-SHA256 of the body, in x-sidecall-signature.")


class Approvals(Settings):
    """Calls that a person has to approve."""

    webhook: ApprovalWebhook | None = Field(default=None, description="Tell a webhook of each new approval.")


class Limits(Settings):
    """What bounds memory."""

    nesting: Annotated[int, Field(ge=1, le=512)] = Field(default=128, description="How deep JSON may nest.")
    event_bytes: Size = size("8Mi", "The largest event of a stream.")
    batch_calls: Annotated[int, Field(ge=1)] = Field(default=128, description="The most calls of one batch.")
    held_bytes: Size = size("16Mi", "How much of one request may be held back.")
    buffered_bytes: Size = size("48Mi", "How much may be buffered over all requests.")


class Metrics(Settings):
    """What metrics tell apart."""

    max_tool_names: Count = Field(default=200, description="How many tool names metrics tell apart.")


class Log(Settings):
    """What is logged."""

    level: LogLevel = Field(default=LogLevel.INFO, description="The least important kind of line that is logged.")


class Shutdown(Settings):
    """How it ends on SIGTERM."""

    delay: Duration = duration("0s", "How long connections are still taken after SIGTERM.")
    drain: Duration = duration("30s", "How long running requests may then take to end.")


class Config(Settings):
    """The whole configuration of one process."""

    api_version: Literal["sidecall.io/v1"] = Field(default=API_VERSION, description="The version of this format.")
    kind: Literal["Config"] = Field(default="Config", description="What the document is.")
    listen: Listen = Field(default=Listen(), description="Where clients call.")
    admin: Admin = Field(default=Admin(), description="Where health, metrics and the admin page are.")
    upstream: Upstream = Field(default=Upstream(), description="The endpoint that is called.")
    paths: Paths = Field(default=Paths(), description="Which paths pass at all.")
    policies: tuple[FilePath, ...] = Field(default=(), description="Policy files, folders and globs, in order.")
    default_action: DefaultAction = Field(
        default=DefaultAction.ALLOW, description="What a call gets that no rule decided."
    )
    unsupported: Unsupported = Field(
        default=Unsupported.AUTO,
        description="Whether surfaces that carry tool calls and are not governed pass; auto: while there is no rule.",
    )
    continuations: Continuations = Field(
        default=Continuations(), description="How long a turn may go on by itself when every call was held."
    )
    denials: Denials = Field(default=Denials(), description="When a model that keeps asking is stopped.")
    orphans: Orphans = Field(
        default=Orphans.PASS, description="Whether calls without a result get an error result in the history."
    )
    clients: tuple[Client, ...] = Field(
        default=(), description="Who may call; with none, anyone who reaches the port may."
    )
    tools: tuple[ToolEntry, ...] = Field(default=(), description="Tools whose code runs beside the proxy.")
    state: State = Field(default=State(), description="Where held calls, approvals and counts are kept.")
    approvals: Approvals = Field(default=Approvals(), description="Calls that a person has to approve.")
    audit: Audit = Field(default=Audit(), description="The record of every call.")
    limits: Limits = Field(default=Limits(), description="What bounds memory.")
    metrics: Metrics = Field(default=Metrics(), description="What metrics tell apart.")
    log: Log = Field(default=Log(), description="What is logged.")
    shutdown: Shutdown = Field(default=Shutdown(), description="How it ends on SIGTERM.")

    def is_open_to_others(self) -> bool:
        """Whether callers that nobody knows could use the configured key from another machine."""
        return (
            self.upstream.api_key is not None
            and not self.clients
            and not self.listen.allow_any_caller
            and not is_loopback(self.listen.host)
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
