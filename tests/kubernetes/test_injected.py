"""The injector as the chart installs it: what it puts into recorded pods, which pods it is asked about, and its
certificate."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from proxy.configfile import load_config
from proxy.injector.patching import Template
from proxy.injector.reviews import answer
from proxy.injector.template import read_template
from tests.injector.recorded import INJECTED, applied, operations, pod, review
from tests.kubernetes.charts import INJECTORS, NAMESPACE, Document, containers, documents, of_kind, rendered
from tests.kubernetes.tools import ran

INJECT = "sidecall.io/inject"


def template(name: str, folder: Path) -> Template:
    """The sidecar that a value set's injector puts into pods."""
    [found] = [d for d in of_kind(documents(rendered("helm4", name)), "ConfigMap") if "sidecar.yaml" in d["data"]]
    path = folder / "sidecar.yaml"
    path.write_text(found["data"]["sidecar.yaml"])
    return read_template(path)


def injected(name: str, recording: str, folder: Path) -> Document:
    """A recorded pod as it is made."""
    found = answer(review(recording), template(name, folder))
    assert found.outcome == "injected"
    return applied(pod(recording), operations(found.body))


@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("name", INJECTORS)
def test_kubernetes_takes_the_pods(name: str, version: str, tmp_path: Path) -> None:
    """Every recorded pod with its sidecar is valid."""
    path = tmp_path / "pods.yaml"
    found = [injected(name, recording, tmp_path) for recording in INJECTED]
    for one, recording in zip(found, INJECTED, strict=True):
        one["metadata"]["name"] = recording
    path.write_text(yaml.safe_dump_all(found))
    ran("kubernetes-validate", "-k", version, "--strict", path)


@pytest.mark.parametrize("name", INJECTORS)
@pytest.mark.parametrize("recording", INJECTED)
def test_what_the_proxy_mounts_is_there(name: str, recording: str, tmp_path: Path) -> None:
    """Every mount has its volume, and the configuration comes as the annotation that the volume names."""
    made = injected(name, recording, tmp_path)
    [proxy] = [container for container in containers(made["spec"]) if container["name"] == "sidecall"]
    volumes = {volume["name"]: volume for volume in made["spec"]["volumes"]}
    assert {mount["name"] for mount in proxy["volumeMounts"]} == volumes.keys() - {"kube-api-access-x7k2p"}
    [item] = volumes["sidecall-config"]["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['sidecall.io/config']"
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for secret in ("upstream-key", "redis-url"):
        (secrets / secret).write_text("redis://redis")
    text = made["metadata"]["annotations"]["sidecall.io/config"].replace("/etc/sidecall/secrets", str(secrets))
    (tmp_path / item["path"]).write_text(text)
    environ = {variable["name"]: variable["value"] for variable in proxy.get("env", [])}
    config = load_config(tmp_path / item["path"], environ=environ)
    assert config.listen.host == "127.0.0.1"
    mounts = {mount["mountPath"] for mount in proxy["volumeMounts"]}
    assert set(config.policies) <= mounts
    if recording == "job":
        assert config.upstream.base_url == "https://llm.example.com/v1"
        assert len(config.policies) == 2


def asked_about(webhook: Document, namespace: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether a webhook is asked about a pod, by the rules of label selectors."""

    def holds(selector: Document, found: dict[str, str]) -> bool:
        for expression in selector["matchExpressions"]:
            inside = found.get(expression["key"]) in expression["values"]
            if inside is not (expression["operator"] == "In"):
                return False
        return True

    return holds(webhook["namespaceSelector"], namespace) and holds(webhook["objectSelector"], labels)


@pytest.mark.parametrize(
    ("namespace", "labels", "asked"),
    [
        ({}, {}, 0),
        ({INJECT: "true"}, {}, 1),
        ({}, {INJECT: "true"}, 1),
        ({INJECT: "true"}, {INJECT: "true"}, 1),
        ({INJECT: "true"}, {INJECT: "false"}, 0),
        ({INJECT: "false"}, {INJECT: "true"}, 1),
        ({"kubernetes.io/metadata.name": "kube-system", INJECT: "true"}, {INJECT: "true"}, 0),
        ({"kubernetes.io/metadata.name": NAMESPACE, INJECT: "true"}, {}, 0),
    ],
)
def test_it_is_asked_about_pods_that_ask_for_it_once(
    namespace: dict[str, str], labels: dict[str, str], asked: int
) -> None:
    """By a label of their own or of their namespace; never about its own pods."""
    [found] = of_kind(documents(rendered("helm4", "injector")), "MutatingWebhookConfiguration")
    assert sum(asked_about(webhook, namespace, labels) for webhook in found["webhooks"]) == asked
    for webhook in found["webhooks"]:
        assert webhook["sideEffects"] == "None"
        assert webhook["failurePolicy"] == "Fail"


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_its_own_certificate_is_for_its_service(helm: str) -> None:
    """Signed by the authority that the API server is told to trust."""
    found = documents(rendered(helm, "injector"))
    [secret] = of_kind(found, "Secret")
    [configuration] = of_kind(found, "MutatingWebhookConfiguration")
    authority = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["ca.crt"]))
    own = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    [deployment] = of_kind(found, "Deployment")
    assert f"release-sidecall.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)
    assert deployment["spec"]["template"]["spec"]["volumes"][1]["secret"]["secretName"] == secret["metadata"]["name"]
    for webhook in configuration["webhooks"]:
        assert webhook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
        assert webhook["clientConfig"]["service"]["name"] == "release-sidecall"


@pytest.mark.parametrize(
    ("name", "issuer"), [("injector-whole", "Issuer"), ("injector-plain-enforced", "ClusterIssuer")]
)
def test_cert_manager_makes_it_where_it_may(name: str, issuer: str) -> None:
    """And gives the API server its authority; the chart then makes none."""
    found = documents(rendered("helm4", name))
    assert of_kind(found, "Secret") == []
    [certificate] = of_kind(found, "Certificate")
    assert certificate["spec"]["issuerRef"]["kind"] == issuer
    assert len(of_kind(found, "Issuer")) == (issuer == "Issuer")
    [configuration] = of_kind(found, "MutatingWebhookConfiguration")
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": f"{NAMESPACE}/{certificate['metadata']['name']}"
    }
    assert all("caBundle" not in webhook["clientConfig"] for webhook in configuration["webhooks"])


def test_the_arguments_of_the_process_are_known() -> None:
    """As `sidecall injector` reads them, with the ports and files that are there."""
    [deployment] = of_kind(documents(rendered("helm4", "injector-whole")), "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    given: dict[str, Any] = dict(argument[2:].split("=", 1) for argument in container["args"][1:])
    assert container["args"][0] == "injector"
    assert given.keys() == {"listen", "template", "cert", "key"}
    assert given["listen"] == "[::]:8443"
    assert container["ports"][0]["containerPort"] == 8443
    folders = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert all(given[key].startswith(tuple(folders)) for key in ("template", "cert", "key"))
