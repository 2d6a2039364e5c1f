"""What each way in renders: the gateway beside one replica and many, the sidecar native, plain and enforced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kubernetes.charts import Document, documents, of_kind, of_values, proxies, rendered


def found(name: str) -> list[Document]:
    return documents(rendered("helm4", name))


def app(name: str) -> tuple[Document, Document]:
    """The pod of an application with a sidecar, and the application's container."""
    [(pod, _)] = proxies(found(name))
    [own] = [container for container in pod["containers"] if container["name"] == "agent"]
    return pod, own


def test_one_replica_has_no_budget_and_many_do() -> None:
    """A budget for a single pod would only keep nodes from being drained."""
    kinds = {
        name: {d["kind"] for d in found(name)} for name in ("defaults", "redis-address", "redis-secret-autoscaling")
    }
    assert "PodDisruptionBudget" not in kinds["defaults"]
    assert "PodDisruptionBudget" in kinds["redis-address"]
    assert {"PodDisruptionBudget", "HorizontalPodAutoscaler"} <= kinds["redis-secret-autoscaling"]


def test_a_scaled_deployment_leaves_its_replicas_to_the_scaler() -> None:
    """An upgrade must not set them back."""
    [scaled] = of_kind(found("redis-secret-autoscaling"), "Deployment")
    [fixed] = of_kind(found("redis-address"), "Deployment")
    assert "replicas" not in scaled["spec"]
    assert fixed["spec"]["replicas"] == 3


def test_clients_reach_one_port_and_scrapers_the_other() -> None:
    """The clients' Service has no admin port, and the NetworkPolicy tells the two apart."""
    all_found = found("network")
    [service] = of_kind(all_found, "Service")
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["sidecall"]
    [network] = of_kind(all_found, "NetworkPolicy")
    reached = {rule["ports"][0]["port"]: rule["from"] for rule in network["spec"]["ingress"]}
    assert set(reached) == {"sidecall", "sidecall-admin"}
    assert reached["sidecall-admin"][0]["namespaceSelector"]["matchLabels"]
    assert network["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_nobody_listed_means_nobody() -> None:
    """An empty list must not become a rule without `from`, which lets everybody in."""
    [network] = of_kind(found("network-nobody"), "NetworkPolicy")
    assert network["spec"]["ingress"] == []


def test_the_key_of_the_endpoint_is_the_proxys_alone() -> None:
    """The application gets one that is worth nothing, and no volume of the proxy."""
    pod, own = app("sidecar-whole")
    assert {"name": "OPENAI_API_KEY", "value": "sidecall"} in own["env"]
    assert "volumeMounts" not in own
    assert {"name": "OPENAI_BASE_URL", "value": "http://127.0.0.1:15480/v1"} in own["env"]
    assert [v["name"] for v in pod["volumes"] if "projected" in v] == ["sidecall-secrets"]


def test_a_client_keeps_its_own_key_where_the_proxy_has_none() -> None:
    """Then the key of the application is what the endpoint gets."""
    _, own = app("sidecar")
    assert [variable["name"] for variable in own["env"]] == ["OPENAI_BASE_URL"]


def test_a_native_sidecar_starts_before_the_application_and_a_plain_one_beside_it() -> None:
    """The kubelet waits for the startup probe of a native one; the two forms differ in nothing else."""
    native, plain = app("sidecar")[0], app("sidecar-plain")[0]
    [one] = native["initContainers"]
    [other] = [container for container in plain["containers"] if container["name"] == "sidecall"]
    assert one.pop("restartPolicy") == "Always"
    assert one["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert one == other
    assert not plain["initContainers"]


@pytest.mark.parametrize(
    ("name", "families"), [("sidecar-enforced", ["ip", "ip6"]), ("sidecar-plain-enforced", ["ip6"])]
)
def test_the_rule_comes_first_and_names_the_proxys_uid(name: str, families: list[str]) -> None:
    """Before anything else runs, other uids are kept from the endpoint."""
    pod, _ = app(name)
    enforce = pod["initContainers"][0]
    assert enforce["name"] == "sidecall-enforce"
    assert enforce["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    rule = enforce["command"][1]
    assert re.findall(r"(ip6?) daddr", rule) == families
    assert rule.count("meta skuid != 10001") == len(families)


def test_a_change_of_the_configuration_starts_pods_anew_and_one_of_policies_does_not(tmp_path: Path) -> None:
    """The checksum covers the one and not the other."""

    def checksum(values: str) -> object:
        path = tmp_path / "values.yaml"
        path.write_text(values)
        [deployment] = of_kind(documents(of_values("helm4", path)), "Deployment")
        return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/sidecall-config"]

    policy = "{apiVersion: sidecall.io/v1, kind: ToolPolicy, metadata: {name: a}, spec: {mode: %s}}"
    first = checksum(f"policies: {{a: {policy % 'enforce'}}}")
    assert first == checksum(f"policies: {{a: {policy % 'shadow'}}}")
    assert first != checksum(f"policies: {{a: {policy % 'shadow'}}}\nconfig: {{defaultAction: block}}")


def test_monitors_find_the_pods() -> None:
    """Their selectors fit the labels, and their port is one of the container's."""
    [pod_monitor] = of_kind(found("pod-monitor"), "PodMonitor")
    [deployment] = of_kind(found("pod-monitor"), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert pod_monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert pod_monitor["spec"]["podMetricsEndpoints"][0]["port"] in {port["name"] for port in container["ports"]}

    services = of_kind(found("service-monitor"), "Service")
    [service_monitor] = of_kind(found("service-monitor"), "ServiceMonitor")
    wanted = service_monitor["spec"]["selector"]["matchLabels"].items()
    [chosen] = [service for service in services if wanted <= service["metadata"]["labels"].items()]
    assert chosen["spec"]["ports"][0]["targetPort"] == "sidecall-admin"

    [monitor] = of_kind(found("sidecar-whole"), "PodMonitor")
    [workload] = of_kind(found("sidecar-whole"), "Deployment")
    own = workload["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= own.items()
    assert workload["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == "15490"
