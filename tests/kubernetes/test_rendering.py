"""Every value set renders the same with Helm 3 and Helm 4, and gives what Kubernetes and the proxy understand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from proxy.configfile import load_config
from proxy.policyfiles import load_policies
from tests.kubernetes.charts import (
    HELMS,
    PROXIES,
    SETS,
    SIDECARS,
    Document,
    containers,
    documents,
    of_kind,
    of_values,
    pods,
    proxies,
    rendered,
)
from tests.kubernetes.tools import CHART, ran, run

KUBERNETES = ("1.29", "1.37")
MADE_ANEW = re.compile(r"(caBundle|ca\.crt|tls\.crt|tls\.key): \S+")
"""A certificate, which the chart makes where it finds none."""
WITHOUT_SCHEMA = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "Issuer", "Certificate"}


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_passes_the_linter(helm: str) -> None:
    """Nothing to warn of; that it has no icon is not a warning."""
    assert "[WARNING]" not in ran(helm, "lint", "--strict", CHART)


@pytest.mark.parametrize("name", SETS)
def test_both_versions_of_helm_render_the_same(name: str) -> None:
    """An installation does not depend on the version of Helm."""
    first, second = (
        # Each orders kinds that it does not know in its own way.
        sorted(documents(MADE_ANEW.sub("", rendered(helm, name))), key=lambda d: (d["kind"], d["metadata"]["name"]))
        for helm in HELMS
    )
    assert first == second
    assert first


@pytest.mark.parametrize("name", ["defaults", "sidecar-plain", "sidecar-plain-enforced"])
def test_older_clusters_get_plain_containers(name: str, scratch: Path) -> None:
    """The oldest that the chart installs on is Kubernetes 1.27, which has no native sidecars."""
    path = scratch / f"old-{name}.yaml"
    path.write_text(of_values("helm4", SETS[name], "--kube-version", "1.27.0", app=name in SIDECARS))
    ran("kubernetes-validate", "-k", "1.27", "--strict", path)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_what_is_rendered(version: str, scratch: Path) -> None:
    """Every document is valid, without keys that are not known; only kinds of others have no schema here."""
    files = []
    for name in SETS:
        files.append(scratch / f"{version}-{name}.yaml")
        files[-1].write_text(rendered("helm4", name))
    done = run("kubernetes-validate", "-k", version, "--strict", *files)
    assert done.returncode == 0, done.stdout[-4000:]
    kinds = set(re.findall(r"WARN .* schema for kind (\w+)", done.stdout))
    assert kinds == WITHOUT_SCHEMA
    assert done.stdout.count("INFO") > len(SETS)


def test_the_validator_refuses_what_is_misspelt(scratch: Path) -> None:
    """The test above would see a key that is wrong."""
    found = documents(rendered("helm4", "sidecar"))
    pod = proxies(found)[0][0]
    pod["initContainers"][0]["restartPolice"] = pod["initContainers"][0].pop("restartPolicy")
    path = scratch / "misspelt.yaml"
    path.write_text(yaml.safe_dump_all(found))
    done = run("kubernetes-validate", "-k", KUBERNETES[0], "--strict", path)
    assert done.returncode == 1
    assert "restartPolice" in done.stdout


def files_of(found: list[Document], folder: Path) -> Path:
    """The files of a rendering's proxy, below another folder than the container's; the configuration's path."""
    [settings] = [d for d in of_kind(found, "ConfigMap") if "sidecall.yaml" in d["data"]]
    text = settings["data"]["sidecall.yaml"].replace("/etc/sidecall", str(folder))
    (folder / "sidecall.yaml").write_text(text)
    own = folder / "policies" / "own"
    for policies in of_kind(found, "ConfigMap", settings["metadata"]["name"] + "-policies"):
        own.mkdir(parents=True)
        for file, policy in policies["data"].items():
            (own / file).write_text(policy)
    (folder / "secrets").mkdir()
    for name in re.findall(r"file: \S+/secrets/(\S+)", text):
        (folder / "secrets" / name).write_text("redis://:word@redis:6379" if name == "redis-url" else 40 * "k")
    return folder / "sidecall.yaml"


@pytest.mark.parametrize("name", PROXIES)
def test_the_proxy_takes_its_configuration(name: str, tmp_path: Path) -> None:
    """The file is read, the policies are compiled, and the ports are where the probes look."""
    found = documents(rendered("helm4", name))
    config = load_config(files_of(found, tmp_path), environ={})
    [(_, container)] = proxies(found)
    own = [folder for folder in config.policies if Path(folder).is_dir()]
    assert len(load_policies(own, tmp_path).policies) == sum(len(list(Path(folder).iterdir())) for folder in own)
    assert {probe["httpGet"]["port"] for key, probe in container.items() if key.endswith("Probe")} == {
        config.admin.port
    }
    assert config.listen.host == ("127.0.0.1" if name in SIDECARS else config.admin.host)
    assert config.admin.host in ("0.0.0.0", "::")


@pytest.mark.parametrize("name", PROXIES)
def test_what_the_configuration_names_is_mounted(name: str, tmp_path: Path) -> None:
    """Every file of the configuration lies in a folder of the container, and every mount has its volume."""
    found = documents(rendered("helm4", name))
    [(pod, container)] = proxies(found)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert not any("subPath" in mount for mount in mounts.values())
    assert {mount["name"] for mount in mounts.values()} == {volume["name"] for volume in pod["volumes"]}
    [settings] = [d for d in of_kind(found, "ConfigMap") if "sidecall.yaml" in d["data"]]
    for path in re.findall(r"(?:sqlite:|file: |- |path: |caFile: )(/\S+)", settings["data"]["sidecall.yaml"]):
        assert any(path == folder or path.startswith(f"{folder}/") for folder in mounts), path
    secrets = {
        item["path"]
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        for item in source["secret"]["items"]
    }
    assert secrets == set(re.findall(r"file: /etc/sidecall/secrets/(\S+)", settings["data"]["sidecall.yaml"]))


@pytest.mark.parametrize("name", SETS)
def test_containers_may_do_nothing_that_they_need_not(name: str) -> None:
    """No root, no capability, nothing to write to; the one exception is the rule's init container."""
    for pod in pods(documents(rendered("helm4", name))):
        assert pod["automountServiceAccountToken"] is False
        for container in containers(pod):
            if container["name"] == "agent":  # the application's own
                continue
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"] is True
            assert allowed["allowPrivilegeEscalation"] is False
            assert allowed["capabilities"]["drop"] == ["ALL"]
            if container["name"] != "sidecall-enforce":
                assert allowed["runAsNonRoot"] is True
                assert allowed["runAsUser"] == 10001
                assert "add" not in allowed["capabilities"]
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", PROXIES)
def test_times_to_end_fit_into_the_pods(name: str, tmp_path: Path) -> None:
    """What delay and drain take together is less than what the kubelet waits."""
    found = documents(rendered("helm4", name))
    config = load_config(files_of(found, tmp_path), environ={})
    [(pod, _)] = proxies(found)
    assert config.shutdown.delay + config.shutdown.drain < pod["terminationGracePeriodSeconds"]
    if name not in SIDECARS:
        assert config.shutdown.delay >= 5
