"""Rendering the chart, and the chart of an application that includes it."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.tools import CHART, HERE, ran

HELMS = ("helm3", "helm4")
SETS = {path.stem: path for path in sorted((HERE / "values").glob("*.yaml"))}
NAMESPACE = "agents"

Document = dict[str, Any]


def values_of(name: str) -> Document:
    found: Document = yaml.safe_load(SETS[name].read_text())
    return found


SIDECARS = [name for name in SETS if values_of(name).get("mode") == "sidecar"]
INJECTORS = [name for name in SETS if values_of(name).get("mode") == "injector"]
PROXIES = [name for name in SETS if name not in INJECTORS]


@functools.cache
def rendered(helm: str, name: str) -> str:
    """A value set, as a version of Helm renders it; a sidecar's with the application that includes it."""
    return of_values(helm, SETS[name], app=name in SIDECARS)


def of_values(helm: str, values: Path, *more: str, app: bool = False) -> str:
    """The chart with a file of values, or an application that includes it. `more` are arguments of Helm."""
    with tempfile.TemporaryDirectory() as folder:
        chart = CHART
        if app:
            chart = Path(folder) / "app"
            shutil.copytree(HERE / "app", chart)
            shutil.copytree(CHART, chart / "charts" / "sidecall")
            (chart / "values.yaml").write_text(yaml.safe_dump({"sidecall": yaml.safe_load(values.read_text())}))
            values = chart / "values.yaml"
        return ran(helm, "template", "release", chart, "--namespace", NAMESPACE, "--values", values, *more)


def documents(text: str) -> list[Document]:
    """What was rendered, without documents that are empty."""
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(found: list[Document], kind: str, name: str = "") -> list[Document]:
    return [d for d in found if d["kind"] == kind and (not name or d["metadata"]["name"] == name)]


def pods(found: list[Document]) -> Iterator[Document]:
    """The spec of every pod and pod template."""
    for document in found:
        if document["kind"] == "Pod":
            yield document["spec"]
        elif "template" in document.get("spec", {}):
            yield document["spec"]["template"]["spec"]


def containers(pod: Document) -> list[Document]:
    return [*(pod.get("initContainers") or []), *pod["containers"]]


def proxies(found: list[Document]) -> list[tuple[Document, Document]]:
    """Every pod with a proxy in it, and the proxy's container."""
    return [(pod, container) for pod in pods(found) for container in containers(pod) if container["name"] == "sidecall"]
