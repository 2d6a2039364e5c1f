"""Reading the template: what the chart writes, and what is wrong with another."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.injector.patching import Template
from proxy.injector.template import read_template

CONFIG = "{apiVersion: sidecall.io/v1, kind: Config}"


def read(folder: Path, text: str) -> Template:
    path = folder / "sidecar.yaml"
    path.write_text(text)
    return read_template(path)


def test_a_whole_template_is_read(tmp_path: Path) -> None:
    """Every key has its place."""
    text = """\
container: {name: sidecall}
config: |
  apiVersion: sidecall.io/v1
  kind: Config
native: false
first: [{name: rule}]
volumes: [{name: sidecall-state}]
env: [{name: A, value: b}]
labels: {a: b}
annotations: {c: d}
"""
    assert read(tmp_path, text) == Template(
        container={"name": "sidecall"},
        config="apiVersion: sidecall.io/v1\nkind: Config\n",
        is_native=False,
        first=({"name": "rule"},),
        volumes=({"name": "sidecall-state"},),
        env=({"name": "A", "value": "b"},),
        labels={"a": "b"},
        annotations={"c": "d"},
    )


def test_what_is_left_out_is_empty(tmp_path: Path) -> None:
    """A native sidecar is the default."""
    found = read(tmp_path, f"container: {{name: sidecall}}\nconfig: '{CONFIG}'\n")
    assert found == Template(container={"name": "sidecall"}, config=CONFIG)
    assert found.is_native


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected one mapping"),
        ("[]", "expected one mapping"),
        ("container: {}\n---\nconfig: ''\n", "expected one mapping"),
        ("config: ''\n", "the key 'container' is missing"),
        (
            "container: {}\nconfig: ''\nvolume: []\n",
            "3:1: unknown key 'volume'",
        ),
        (
            "container: {}\nconfig: ''\nvolumes: [a]\n",
            "3:10: expected a list of mappings",
        ),
        ("container: {}\nconfig: 1\n", "2:9: expected text"),
        (
            "container: {}\nconfig: ''\nnative: 'no'\n",
            "3:9: expected true or false",
        ),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path: Path, text: str, said: str) -> None:
    """With line and column, as of every other file."""
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert any(said in str(problem) for problem in raised.value.problems)


def test_a_configuration_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    """Not by the pods that get it."""
    with pytest.raises(ConfigError, match=r"sidecar\.yaml: config:2:1: unknown key 'nosuch'"):
        read(tmp_path, "container: {}\nconfig: |\n  apiVersion: sidecall.io/v1\n  nosuch: 1\n  kind: Config\n")
