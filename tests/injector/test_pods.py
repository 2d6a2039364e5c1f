"""What is seen of a pod before anything is put into it."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.injector.pods import AnnotationError, Wishes, has_sidecar, obstacle, opts_out, wishes
from tests.injector.recorded import pod


def annotated(**annotations: str) -> dict[str, Any]:
    found = pod()
    found["metadata"]["annotations"] = {f"sidecall.io/{name}": value for name, value in annotations.items()}
    return found


def with_spec(**spec: Any) -> dict[str, Any]:
    found = pod()
    found["spec"] |= spec
    return found


@pytest.mark.parametrize(
    "found",
    [
        with_spec(initContainers=[{"name": "sidecall"}]),
        with_spec(containers=[{"name": "a"}, {"name": "sidecall"}]),
        annotated(injected="true"),
        {"metadata": {"labels": {"sidecall.io/sidecar": "true"}}},
    ],
)
def test_a_sidecar_is_seen_whoever_put_it_there(found: dict[str, Any]) -> None:
    """By its container, by the injector's annotation, by the chart's label."""
    assert has_sidecar(found)
    assert not has_sidecar(pod())


def test_a_pod_opts_out_by_label_or_annotation() -> None:
    """Either will do."""
    assert opts_out(annotated(inject="false"))
    assert opts_out(pod("opted-out"))
    assert not opts_out(annotated(inject="true"))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod(), ""),
        (with_spec(initContainers=None, volumes=None), ""),
        ({}, "containers"),
        ({"metadata": None, "spec": []}, "containers"),
        (with_spec(containers=[]), "containers"),
        (with_spec(containers=[{"name": "a"}, "b"]), "containers"),
        (with_spec(containers=[{"image": "a"}]), "containers"),
        (with_spec(initContainers={}), "initContainers"),
        (with_spec(volumes=["a"]), "volumes"),
        (with_spec(containers=[{"name": "a", "env": {}}]), "environment"),
        ({**pod(), "metadata": {"labels": []}}, "labels"),
        ({**pod(), "metadata": {"annotations": "a"}}, "annotations"),
        (with_spec(hostNetwork=True), "network of its node"),
        (with_spec(os={"name": "windows"}), "not for Linux"),
        (with_spec(volumes=[{"name": "sidecall-state"}]), "volume sidecall-state of its own"),
    ],
)
def test_what_keeps_a_sidecar_out_has_a_name(found: dict[str, Any], why: str) -> None:
    """Nothing that a pod may be makes it fail."""
    said = obstacle(found)
    assert why in said if why else said == ""


def test_wishes_are_read() -> None:
    """Lists are parted by commas; what is not said is None."""
    assert wishes(pod()) == Wishes()
    assert wishes(annotated(policies=" a,b.c ,a", upstream="http://h:1/v1", containers="agent", config="x")) == Wishes(
        ("a", "b.c"), "http://h:1/v1", ("agent",), has_config=True
    )


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"upstream": "llm.example.com"}, "sidecall.io/upstream: expected a URL"),
        ({"upstream": "https://user:word@host/v1"}, "sidecall.io/upstream: expected a URL"),
        ({"policies": "a,B"}, "'B' is none"),
        ({"policies": "../a"}, "'../a' is none"),
        ({"policies": " , "}, "expected the name of a ConfigMap"),
        ({"containers": "agnet"}, "no container 'agnet'; it has agent"),
    ],
)
def test_a_mistake_in_an_annotation_is_told(annotations: dict[str, str], said: str) -> None:
    """With what was expected, and nothing of what may be a secret."""
    with pytest.raises(AnnotationError, match=r"^sidecall\.io/") as raised:
        wishes(annotated(**annotations))
    assert said in str(raised.value)
    assert "word" not in str(raised.value)
