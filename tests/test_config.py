"""The configuration's models."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from pydantic import BaseModel

from proxy.config import Client, Config, find_client, is_loopback
from proxy.core.jsontext import render
from proxy.settings import Surroundings

MI, KI = 1 << 20, 1 << 10


def parse(environ: dict[str, str] | None = None, /, **settings: Any) -> Config:
    return Config.model_validate_json(
        render(settings), by_alias=True, by_name=False, context=Surroundings(environ=environ or {})
    )


def test_the_defaults_are_those_of_the_contract() -> None:
    """Every setting has the default that the documentation shows."""
    config = Config()
    assert (config.listen.host, config.listen.port, config.listen.reuse_port) == ("127.0.0.1", 15480, False)
    assert (config.listen.max_body_bytes, config.listen.allow_any_caller, config.listen.tls) == (64 * MI, False, None)
    assert (config.admin.host, config.admin.port, config.admin.token) == ("127.0.0.1", 15490, None)
    assert (config.admin.insecure, config.admin.ready_needs_store) == (False, False)
    assert (config.upstream.base_url, config.upstream.auth) == ("https://api.openai.com/v1", "bearer")
    timeouts = config.upstream.timeouts
    assert (timeouts.connect, timeouts.first_byte, timeouts.idle) == (5, 1800, 900)
    assert (config.upstream.api_key, config.upstream.ca_file, config.upstream.client_cert) == (None, None, None)
    assert (config.upstream.headers, config.paths.allow, config.policies) == ({}, None, ())
    assert (config.default_action, config.unsupported, config.orphans) == ("allow", "auto", "pass")
    continuations = config.continuations
    assert (continuations.max, continuations.max_consecutive_errors, continuations.restore_bytes) == (40, 3, 256 * KI)
    assert (config.denials.stop_after, config.clients, config.tools) == (5, (), ())
    assert (config.state.address(), config.state.ttl, config.state.stored_ttl) == ("sqlite:", 86400, 720 * 3600)
    assert (config.state.on_unavailable, config.state.keys()) == ("refuse", ())
    assert (config.audit.path, config.audit.arguments) == ("-", "redacted")
    limits = config.limits
    assert (limits.nesting, limits.event_bytes, limits.batch_calls) == (128, 8 * MI, 128)
    assert (limits.held_bytes, limits.buffered_bytes) == (16 * MI, 48 * MI)
    assert (config.metrics.max_tool_names, config.log.level) == (200, "info")
    assert (config.shutdown.delay, config.shutdown.drain) == (0, 30)


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = {model}
    todo: list[Any] = [field.annotation for field in model.model_fields.values()]
    while todo:
        annotation = todo.pop()
        todo += getattr(annotation, "__args__", ())
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
            found.add(annotation)
            todo += [part for field in annotation.model_fields.values() for part in (field.annotation, *field.metadata)]
    return found


def test_every_setting_says_what_it_is_for() -> None:
    """The reference and the schema for editors are made of these words."""
    silent = [
        f"{model.__name__}.{name}"
        for model in models(Config)
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert silent == []


def test_there_is_a_schema_for_editors_with_defaults_as_they_are_written() -> None:
    """Keys are those of files, and durations and sizes have their units."""
    schema = Config.model_json_schema()
    assert schema["$defs"]["Listen"]["properties"]["maxBodyBytes"]["default"] == "64Mi"
    assert schema["$defs"]["Shutdown"]["properties"]["drain"]["default"] == "30s"
    assert "defaultAction" in schema["properties"]


def test_a_base_url_has_no_slash_at_its_end() -> None:
    """Paths are put behind it."""
    assert parse(upstream={"baseUrl": "http://h:1/v1/"}).upstream.base_url == "http://h:1/v1"


def test_an_encryption_key_may_be_one_or_several() -> None:
    """The first one writes."""
    environ = {"A": "a", "B": "b"}
    assert parse(environ, state={"encryptionKey": {"env": "A"}}).state.keys() == (b"a",)
    assert parse(environ, state={"encryptionKey": [{"env": "B"}, {"env": "A"}]}).state.keys() == (b"b", b"a")


def test_the_url_of_the_state_may_be_a_secret() -> None:
    """It may carry a password, and is in no repr either way."""
    config = parse({"S": "redis://:pw4711@h/0"}, state={"url": {"env": "S"}})
    assert config.state.address() == "redis://:pw4711@h/0"
    assert "pw4711" not in repr(config)
    assert "pw4711" not in repr(parse(state={"url": "redis://:pw4711@h/0"}))


CLIENTS = parse(
    {"A": "key-of-a"},
    clients=[
        {"name": "a", "key": {"env": "A"}},
        {"name": "b", "keySha256": hashlib.sha256(b"key-of-b").hexdigest().upper()},
    ],
).clients


@pytest.mark.parametrize(
    ("credential", "name"),
    [("key-of-a", "a"), ("key-of-b", "b"), ("key-of-c", None), ("", None), ("key-of-a ", None), ("\udcff", None)],
)
def test_a_client_is_known_by_its_key(credential: str, name: str | None) -> None:
    """As it is, or by its digest."""
    found = find_client(CLIENTS, credential)
    assert (found.name if found else None) == name


def test_an_empty_credential_is_nobodys() -> None:
    """Not even where a digest is that of nothing."""
    assert find_client([Client(name="x", key_sha256=hashlib.sha256(b"").hexdigest())], "") is None


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, own: bool) -> None:
    """An unspecified address is reached by others."""
    assert is_loopback(host) is own
