"""Reading the configuration: file, environment, flags, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Config
from proxy.configfile import Overrides, load_config, parse_address, read_remote
from proxy.errors import ConfigError

HEAD = "apiVersion: sidecall.io/v1\nkind: Config\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sidecall.yaml"


def load(file: Path, text: str, environ: dict[str, str] | None = None, flags: Overrides | None = None) -> Config:
    file.write_text(text if text.startswith("apiVersion") else HEAD + text)
    return load_config(file, environ=environ or {}, flags=flags or Overrides())


def complaints(file: Path, text: str, environ: dict[str, str] | None = None, **flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, text, environ, Overrides(**flags))  # type: ignore[arg-type]  # policies are not given here
    return [str(problem).replace(f"{file}:", "") for problem in caught.value.problems]


def test_without_a_file_every_setting_has_its_default() -> None:
    """No file is as good as an empty one."""
    assert load_config(None, environ={}) == Config()


def test_a_file_that_says_nothing_gives_the_defaults(file: Path) -> None:
    """Only the two lines of the heading are needed."""
    assert load(file, "") == Config()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("listen:\n  prot: 8080\n", "4:3", "unknown key 'prot' (did you mean 'port'?); expected one of host, port,"),
        ("admn: {}\n", "3:1", "(did you mean 'admin'?)"),
        ("clients: [{name: a, kye: {env: K}}]\n", "3:21", "(did you mean 'key'?)"),
        ("upstream: {apiKey: {evn: K}}\n", "3:21", "(did you mean 'env'?)"),
        ("upstream: {headers: {x: {fiel: K}}}\n", "3:26", "(did you mean 'file'?)"),
        ("upstream: {auth: baerer}\n", "3:18", "(did you mean 'bearer'?); expected bearer, api-key or none"),
        ("listen: {maxBodyBytes: lots}\n", "3:24", "expected a size such as 512Ki"),
        ("shutdown: {drain: soon}\n", "3:19", "expected a duration such as 250ms"),
        ("admin: {port: eighty}\n", "3:15", "expected a whole number"),
        ("admin: {port: 70000}\n", "3:15", "expected 65535 or less"),
        ("continuations: {max: -1}\n", "3:22", "expected 0 or more"),
        ("continuations: {max: 1.5}\n", "3:22", "expected a whole number"),
        ("listen: {host: no}\n", "3:16", "put it in quotes"),
        ("listen: {host: 'a b'}\n", "3:16", "expected a host name or an address"),
        ("listen: {reusePort: 1}\n", "3:21", "expected true or false"),
        ("listen: 5\n", "3:9", "expected a mapping"),
        ("listen:\n", "3:", "expected a mapping"),
        ("policies: a\n", "3:11", "expected a list"),
        ("policies: [1]\n", "3:12", "expected text"),
        ("listen: {tls: {certFile: x}}\n", "3:10", "the key 'keyFile' is missing"),
        ("upstream: {baseUrl: example.com}\n", "3:21", "expected an http or https URL"),
        ("upstream: {baseUrl: 'http://h:99999/'}\n", "3:21", "expected an http or https URL"),
        ("state: {url: 'redis://h:99999'}\n", "3:14", "expected memory:, sqlite:PATH"),
        ("upstream: {baseUrl: 'https://u:p@h/v1'}\n", "3:21", "without credentials"),
        ("upstream: {apiKey: {env: NONE}}\n", "3:20", "NONE is not set"),
        ("state: {url: 'mysql:x'}\n", "3:14", "expected memory:, sqlite:PATH"),
        ("state: {url: 'redis+cluster://h:1/1'}\n", "3:14", "redis+cluster://HOST,HOST (rediss for TLS)"),
        ("state: {url: 'redis://h', caFile: x}\n", "3:35", "has no effect without TLS; expected a rediss:// address"),
        ("state: {clientCert: {certFile: x, keyFile: y}}\n", "3:21", "has no effect without TLS"),
        ("state: {encryptionKey: {env: NONE}}\n", "3:24", "NONE is not set"),
        ("state: {encryptionKey: [{env: NONE}]}\n", "3:25", "NONE is not set"),
        ("clients: [{name: a}]\n", "3:11", "either key or keySha256"),
        ("clients: [{name: a, keySha256: 'zz'}]\n", "3:32", "64 digits"),
        ("clients: [{name: 'a b', keySha256: 'zz'}]\n", "3:18", "expected a name"),
        (f"clients: [{{name: a, keySha256: '{'0' * 64}'}}, {{name: a, keySha256: '{'1' * 64}'}}]\n", "3:", "twice"),
        ("apiVersion: sidecall.io/v2\nkind: Config\n", "1:13", "expected sidecall.io/v1"),
        ("apiVersion: sidecall.io/v1\n", "1:1", "the key 'kind' is missing"),
        ("tools: [{mcp: {name: d, url: 'http://h/{x}'}}]\n", "3:15", "expected a URL without arguments"),
        (
            "tools: [{mcp: {name: d, url: 'http://h'}}, {mcp: {name: d, url: 'http://i'}}]\n",
            "3:57",
            "'d' is here twice",
        ),
        (f"{HEAD}---\na: 1\n", "4:1", "one document"),
    ],
)
def test_a_mistake_is_told_where_it_is_and_with_what_was_expected(text: str, place: str, said: str, file: Path) -> None:
    """One line, with a place, and a suggestion where a key is close to a known one."""
    told = complaints(file, text)
    assert any(line.startswith(f"{place}") and said in line for line in told), told


def test_all_mistakes_are_told_at_once_in_the_order_of_their_places(file: Path) -> None:
    """Nobody has to start five times to see five mistakes."""
    told = complaints(file, "denials: 5\nlisten: {prot: 1, port: x}\nadmn: {}\n", {"SIDECALL_ADMIN": "here"})
    assert [line.partition(" ")[0] for line in told] == ["SIDECALL_ADMIN:", "3:10:", "4:10:", "4:25:", "5:1:"]


@pytest.mark.parametrize("text", ["", "- a\n", "a\n", "apiVersion: [\n"])
def test_what_is_no_configuration_at_all_is_refused(text: str, file: Path) -> None:
    """An empty file, another shape and what is not YAML have a line too."""
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"sidecall\.yaml:\d+:\d+: "):
        load_config(file, environ={})


def test_a_missing_file_is_told_by_name(file: Path) -> None:
    """The name is the one that was given."""
    with pytest.raises(ConfigError, match=r"sidecall\.yaml: .*cannot be read"):
        load_config(file, environ={})


def test_no_message_shows_a_value(file: Path) -> None:
    """Whatever stands in the wrong place may be a secret."""
    secret = "sk-4711"
    places = [
        "upstream: {{apiKey: {0}, auth: {0}, headers: {0}, baseUrl: {0}, timeouts: {{idle: {0}}}}}",
        "admin: {{token: [{0}], port: {0}, host: [{0}], insecure: {0}}}",
        "state: {{url: {0}, ttl: {0}, encryptionKey: {0}}}",
        "clients: [{{name: a, key: {0}, keySha256: {0}}}]",
        "tools: [{{name: t, python: {0}, http: {{url: 'http://u:{0}@h/', method: {0}, headers: {{x: [{0}]}}}}}}]",
        "limits: {{nesting: {0}}}",
    ]
    told = complaints(file, "\n".join(places).format(secret), {"SIDECALL_UPSTREAM": secret, "SIDECALL_ADMIN": secret})
    assert len(told) > 12
    assert not [line for line in told if secret in line]


# ---------------------------------------------------------------- environment and flags


def test_flags_override_the_environment_and_the_environment_the_file(file: Path) -> None:
    """Each setting by itself."""
    environ = {"SIDECALL_LISTEN": "0.0.0.0:1", "SIDECALL_ADMIN": "[::1]:2", "SIDECALL_UPSTREAM": "http://env/v1"}
    config = load(
        file,
        "listen: {host: h, port: 9, reusePort: true}\nupstream: {baseUrl: 'http://file/v1'}\n",
        environ,
        Overrides(upstream="http://flag/v1/", listen="127.0.0.2:3"),
    )
    assert (config.listen.host, config.listen.port, config.listen.reuse_port) == ("127.0.0.2", 3, True)
    assert (config.admin.host, config.admin.port) == ("::1", 2)
    assert config.upstream.base_url == "http://flag/v1"


def test_relative_paths_count_from_the_file_or_from_where_the_command_was_given(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's own from its folder, those of environment and flags from the working directory."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    text = "policies: [p, /q]\nstate: {url: 'sqlite:s.db'}\naudit: {path: a.jsonl}\n"
    config = load(file, text)
    assert config.policies == (str(tmp_path / "p"), "/q")
    assert config.state.address() == f"sqlite:{tmp_path / 's.db'}"
    assert config.audit.path == str(tmp_path / "a.jsonl")
    config = load(file, text, {"SIDECALL_POLICIES": "x:y", "SIDECALL_STATE": "sqlite:z.db"})
    assert config.policies == (str(here / "x"), str(here / "y"))
    assert config.state.address() == f"sqlite:{here / 'z.db'}"
    assert load(file, text, {"SIDECALL_POLICIES": "x"}, Overrides(policies=("f",))).policies == (str(here / "f"),)


def test_an_empty_variable_says_nothing(file: Path) -> None:
    """As it is usual for shells and charts that pass on what they have."""
    names = ("UPSTREAM", "LISTEN", "ADMIN", "POLICIES", "STATE")
    assert load(file, "", {f"SIDECALL_{name}": "" for name in names}) == Config()


@pytest.mark.parametrize(
    ("environ", "flags", "said"),
    [
        ({"SIDECALL_LISTEN": "8080"}, {}, "SIDECALL_LISTEN: expected HOST:PORT"),
        ({}, {"listen": ":8080"}, "--listen: expected HOST:PORT"),
        ({}, {"admin": "h:99999"}, "--admin: expected HOST:PORT"),
        ({}, {"upstream": "ftp://x"}, "--upstream: expected an http or https URL"),
        ({"SIDECALL_STATE": "what"}, {}, "SIDECALL_STATE: expected memory:"),
        ({"SIDECALL_STATE": "redis+sentinel://h"}, {}, "SIDECALL_STATE: expected memory:"),
        ({"SIDECALL_UPSTREAM": "\udcff"}, {}, "SIDECALL_UPSTREAM: expected text in UTF-8"),
    ],
)
def test_a_mistake_outside_the_file_is_told_by_the_name_of_the_setting(
    environ: dict[str, str], flags: dict[str, str], said: str, file: Path
) -> None:
    """There is no line to show."""
    assert any(line.startswith(said) for line in complaints(file, "", environ, **flags))


@pytest.mark.parametrize(
    ("text", "address"), [("h:1", ("h", 1)), ("[::1]:80", ("::1", 80)), ("127.0.0.1:0", ("127.0.0.1", 0))]
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    """An IPv6 address stands in brackets."""
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "::1:80", "h:x", "h:-1", "h:65536", "h:１", "h:1 "])
def test_anything_else_is_no_address(text: str) -> None:
    """Neither half may be missing."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


# ---------------------------------------------------------------- settings that meet


@pytest.mark.parametrize(
    ("listen", "more", "starts"),
    [
        ("host: 127.0.0.1", "", True),
        ("host: '::1'", "", True),
        ("host: localhost", "", True),
        ("host: 0.0.0.0", "", False),
        ("host: example.com", "", False),
        ("host: 0.0.0.0, allowAnyCaller: true", "", True),
        ("host: 0.0.0.0", "clients: [{name: a, key: {env: K}}]\n", True),
    ],
)
def test_a_configured_key_is_not_open_to_every_caller(listen: str, more: str, starts: bool, file: Path) -> None:
    """On an address that others reach, callers must be known, or everybody be let in knowingly."""
    text = f"listen: {{{listen}}}\nupstream: {{apiKey: {{env: K}}}}\n{more}"
    if starts:
        load(file, text, {"K": "v"})
    else:
        (told,) = complaints(file, text, {"K": "v"})
        assert told.startswith("3:16: ")
        assert "allowAnyCaller" in told


def test_an_override_does_not_hide_a_section_that_is_none(file: Path) -> None:
    """The mistake of the file is told where it is."""
    told = complaints(file, "upstream: 5\n", {"SIDECALL_UPSTREAM": "http://h/v1"})
    assert told == ["3:11: expected a mapping"]


def test_what_is_wrong_without_a_file_has_no_place() -> None:
    """Flags and environment can contradict each other, too."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, environ={"SIDECALL_ADMIN": "a:b"})
    assert [str(problem).partition(" ")[0] for problem in caught.value.problems] == ["SIDECALL_ADMIN:"]


def test_an_address_of_the_environment_is_judged_with_the_file(file: Path) -> None:
    """The override is what is told."""
    told = complaints(file, "upstream: {apiKey: {env: K}}\n", {"K": "v", "SIDECALL_LISTEN": "0.0.0.0:1"})
    assert [line.partition(" ")[0] for line in told] == ["SIDECALL_LISTEN:"]


def test_a_configuration_for_another_machine_is_judged_without_its_secrets() -> None:
    """They are there, not here; everything else is judged as ever."""
    head = "apiVersion: sidecall.io/v1\nkind: Config\n"
    config = read_remote(f"{head}upstream: {{apiKey: {{env: NOT_SET_HERE}}}}\n", "theirs")
    assert config.upstream.api_key is not None
    assert not config.upstream.api_key.is_here
    with pytest.raises(ConfigError, match="theirs:3:14: expected either"):
        read_remote(f"{head}state: {{url: {{}}}}\n", "theirs")
    twice = "clients: [{name: a, key: {env: A}}, {name: a, key: {env: B}}]\n"
    with pytest.raises(ConfigError, match=r"theirs:3:\d+: the name 'a' is here twice"):
        read_remote(head + twice, "theirs")
