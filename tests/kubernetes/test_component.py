"""The kustomize components: made of the chart, and laid over workloads that ask for them and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kubernetes.charts import Document, containers, documents
from tests.kubernetes.component import FOLDER, KEY_SECRET, VALUES, component
from tests.kubernetes.tools import ran, run

WORKLOAD = """
apiVersion: apps/v1
kind: %s
metadata: {name: %s, labels: {%s}}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      initContainers: [{name: migrate, image: migrate:1}]
      containers: [{name: agent, image: agent:1, envFrom: [{configMapRef: {name: sidecall-app}}]}]
"""
ASKS = 'sidecall.io/inject: "true"'


@pytest.mark.parametrize("name", VALUES)
def test_it_is_up_to_date(name: str) -> None:
    """What lies in its folder is what the chart renders now."""
    assert {path.name: path.read_text() for path in (FOLDER / name).iterdir()} == component(name)


def built(name: str, folder: Path) -> list[Document]:
    """Three workloads with the component laid over them, as `kubectl kustomize` gives them."""
    used = folder / "component"
    used.mkdir()
    for file, text in component(name).items():
        (used / file).write_text(text)
    workloads = [WORKLOAD % (kind, kind.lower(), ASKS) for kind in ("Deployment", "DaemonSet")]
    (folder / "app.yaml").write_text("---".join([*workloads, WORKLOAD % ("Deployment", "other", "app: other")]))
    (folder / "no-deletes.yaml").write_text("apiVersion: sidecall.io/v1\n")
    policies = {"name": "sidecall-policies", "files": ["no-deletes.yaml"], "options": {"disableNameSuffixHash": True}}
    whole = {
        "resources": ["app.yaml"],
        "components": ["component"],
        "configMapGenerator": [policies],
        "images": [{"name": "sidecall", "newName": "registry.example.com/sidecall", "newTag": "1"}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    return documents(ran("kubectl", "kustomize", folder))


@pytest.mark.parametrize("name", VALUES)
def test_it_puts_the_sidecar_first_into_what_asks_for_it(name: str, tmp_path: Path) -> None:
    """The proxy starts before the workload's own init containers; the workload's own parts stay."""
    found = built(name, tmp_path)
    workloads = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in found if "template" in d.get("spec", {})}
    assert [c["name"] for c in containers(workloads.pop("other"))] == ["migrate", "agent"]
    assert len(workloads) == 2
    maps = {d["metadata"]["name"] for d in found if d["kind"] == "ConfigMap"}
    for pod in workloads.values():
        assert [container["name"] for container in containers(pod)] == ["sidecall", "migrate", "agent"]
        assert pod["initContainers"][0]["image"] == "registry.example.com/sidecall:1"
        assert pod["initContainers"][0]["restartPolicy"] == "Always"
        named = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        assert named < maps
        assert pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] in maps
        secrets = [s["secret"]["name"] for v in pod["volumes"] for s in v.get("projected", {}).get("sources", [])]
        assert secrets == ([KEY_SECRET] if name == "sidecar-with-key" else [])


@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_takes_what_it_makes(name: str, tmp_path: Path) -> None:
    """Every document of it is valid."""
    path = tmp_path / "built.yaml"
    path.write_text(yaml.safe_dump_all(built(name, tmp_path)))
    done = run("kubernetes-validate", "-k", "1.29", "--strict", path)
    assert done.returncode == 0, done.stdout
