"""What the chart refuses to install: values that are wrong, and values that are wrong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.charts import HELMS
from tests.kubernetes.tools import CHART, run

POLICY = "{apiVersion: sidecall.io/v1, kind: ToolPolicy, metadata: {}, spec: {}}"
WRONG = {
    "gateway: {replicas: 2}": "more than one replica needs state that they share",
    "gateway: {autoscaling: {enabled: true}}": "more than one replica needs state that they share",
    "listen: {port: 15490}": "listen.port and listen.adminPort are the same",
    "gateway: {autoscaling: {enabled: true, minReplicas: 9, maxReplicas: 3}}": "minReplicas is more than maxReplicas",
    "clients: [{name: a, existingSecret: b}, {name: a, existingSecret: c}]": "the name a is there twice",
    "gateway: null": "gateway",
    "state: {redis: null}": "redis",
    "state: {redis: {url: 'redis://a', existingSecret: b}}": "both set",
    "state: {redis: {url: 'redis://:secret@a:6379'}}": "holds credentials",
    "state: {redis: {url: 'http://a'}}": "url",
    "upstream: {existingSecret: key}": "whoever reaches the gateway would use the endpoint's key",
    "gateway: {shutdown: {delay: 30, gracePeriod: 35}}": "leaves running requests no time",
    "{mode: sidecar, sidecar: {enforce: {enabled: true}}}": "sidecar.enforce needs",
    "{mode: sidecar, metrics: {serviceMonitor: {enabled: true}}}": "sidecars have no Service",
    "config: {listen: {host: '::'}}": "use the value listen.address",
    "config: {state: {url: 'memory:'}}": "use the value state.redis",
    "config: {policies: [a]}": "use the value policies and policyConfigMaps",
    "config: {shutdown: {delay: 1s}}": "use the value gateway.shutdown and sidecar.shutdown",
    "config: {kind: Config}": "config.kind is written by the chart",
    "mode: other": "mode",
    "replicas: 1": "replicas",
    "image: {digest: 'sha256:1'}": "digest",
    "clients: [{name: a}]": "clients",
    "clients: [{name: a, existingSecret: b, keySha256: c}]": "clients",
    "policies: {a: {kind: Pod}}": "policies",
    "metrics: {rules: {overheadSeconds: 0.07}}": "overheadSeconds",
    "listen: {port: 80}": "port",
    f"{{mode: injector, policies: {{a: {POLICY}}}}}": "put them into ConfigMaps",
    "{mode: injector, metrics: {serviceMonitor: {enabled: true}}}": "sidecars have no Service",
}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("values", WRONG)
def test_it_is_refused_with_what_is_wrong(helm: str, values: str, tmp_path: Path) -> None:
    """Nothing is rendered, and the message names the value or says what to do."""
    path = tmp_path / "values.yaml"
    path.write_text(values)
    done = run(helm, "template", "release", CHART, "--values", path)
    assert done.returncode != 0
    assert not done.stdout
    assert WRONG[values] in done.stderr


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("mode", ["sidecar", "injector"])
def test_a_native_sidecar_is_refused_where_there_are_none(helm: str, mode: str, tmp_path: Path) -> None:
    """Before Kubernetes 1.29 it would be an init container that never ends."""
    path = tmp_path / "values.yaml"
    path.write_text(f"mode: {mode}")
    done = run(helm, "template", "release", CHART, "--values", path, "--kube-version", "1.28.4")
    assert done.returncode != 0
    assert "set sidecar.native: false" in done.stderr
