"""The kustomize components, made of what the chart renders, so that the container is written once.
`python -m tests.kubernetes.component` writes them; a test says when they are behind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.charts import Document, documents, of_kind, of_values
from tests.kubernetes.tools import ROOT

FOLDER = ROOT / "helm" / "kustomize"
KEY_SECRET = "sidecall-endpoint"
VALUES: dict[str, Document] = {"sidecar": {}, "sidecar-with-key": {"upstream": {"existingSecret": KEY_SECRET}}}
POLICY = {"apiVersion": "sidecall.io/v1", "kind": "ToolPolicy", "metadata": {"name": "any"}, "spec": {}}
HEAD = "# Made of the chart: python -m tests.kubernetes.component\n"


def component(name: str) -> dict[str, str]:
    """The files of a component, by their names."""
    whole = {"mode": "sidecar", "fullnameOverride": "sidecall", "policies": {"any": POLICY}, **VALUES[name]}
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "values.yaml"
        values.write_text(yaml.safe_dump(whole))
        found = documents(of_values("helm4", values, app=True))
    [workload] = of_kind(found, "Deployment")
    [settings] = of_kind(found, "ConfigMap", "sidecall")
    pod = workload["spec"]["template"]["spec"]
    [app] = [container for container in pod["containers"] if container["name"] == "agent"]
    return {
        "kustomization.yaml": HEAD + _dump(_kustomization([f"{v['name']}={v['value']}" for v in app["env"]])),
        "sidecall.yaml": HEAD + settings["data"]["sidecall.yaml"].strip() + "\n",
        "pod.yaml": HEAD + _dump(_patch(pod)),
    }


def _patch(pod: Document) -> Document:
    """Laid over a workload: lists are merged by name, and what is new comes first."""
    labels = {"sidecall.io/sidecar": "true"}
    spec = {"initContainers": pod["initContainers"], "volumes": pod["volumes"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def _kustomization(environment: list[str]) -> Document:
    """Policies are not among its ConfigMaps: a component cannot make one that who uses it then fills."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "configMapGenerator": [
            {"name": "sidecall", "files": ["sidecall.yaml"]},
            {"name": "sidecall-app", "literals": environment},
        ],
        "patches": [
            {
                "path": "pod.yaml",
                "target": {"kind": "Deployment|StatefulSet|DaemonSet|Job", "labelSelector": "sidecall.io/inject=true"},
            }
        ],
    }


def _dump(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=120)
    return text


def main() -> None:
    for name in VALUES:
        for file, text in component(name).items():
            (FOLDER / name / file).write_text(text)


if __name__ == "__main__":
    main()
