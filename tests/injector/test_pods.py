"""What is seen of a pod before anything is put into it."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.injector.pods import (
    SIDECAR,
    PodRefusedError,
    Wishes,
    check_containers,
    check_names,
    has_sidecar,
    obstacle,
    opts_out,
    wishes,
)
from tests.injector.recorded import pod


def annotated(**annotations: str) -> dict[str, Any]:
    found = pod()
    found["metadata"]["annotations"] = {f"sidecall.io/{name}": value for name, value in annotations.items()}
    return found


def with_spec(**spec: Any) -> dict[str, Any]:
    found = pod()
    found["spec"] |= spec
    return found


PROXY: dict[str, Any] = {"name": "sidecall", "image": "host:5000/sidecall:1", "args": ["serve", "--config", "/c"]}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (PROXY, True),
        ({"name": "sidecall", "image": "host:5000/sidecall"}, True),
        ({"name": "sidecall", "image": "host:5000/sidecall:2@sha256:0a"}, True),
        ({"name": "sidecall", "image": "mirror/of/it:7", "args": ["serve", "--config", "/c"]}, True),
        ({**PROXY, "command": ["sleep"]}, False),
        ({**PROXY, "name": "proxy"}, False),
        ({"name": "sidecall", "image": "nginx"}, False),
        ({"name": "sidecall", "image": "host:5001/sidecall:1"}, False),
        ({"name": "sidecall"}, False),
    ],
)
def test_a_sidecar_is_seen_whoever_put_it_there(container: dict[str, Any], expected: bool) -> None:
    """By its container, which has its name and its image or arguments."""
    for found in (with_spec(initContainers=[container]), with_spec(containers=[{"name": "a"}, container])):
        assert has_sidecar(found, PROXY) is expected


@pytest.mark.parametrize("found", [pod(), annotated(injected="true"), {"metadata": {"labels": {SIDECAR: "true"}}}])
def test_what_says_that_there_is_a_sidecar_is_none(found: dict[str, Any]) -> None:
    """A copied pod says so."""
    assert not has_sidecar(found, PROXY)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"annotations": {"sidecall.io/policy": "a"}}, "sidecall.io/policy is no annotation of Sidecall"),
        ({"annotations": {"sidecall.io/sidecar": "true"}}, "sidecall.io/sidecar is no annotation"),
        ({"labels": {"sidecall.io/policies": "a"}}, "sidecall.io/policies is no label"),
        ({"labels": {"sidecall.io/inject": "no"}}, 'expected "true" or "false" as this label'),
        ({"annotations": {"sidecall.io/inject": "yes"}}, 'expected "true" or "false" as this annotation'),
    ],
)
def test_misspelled_names_are_told(metadata: dict[str, Any], said: str) -> None:
    """They would be overlooked."""
    with pytest.raises(PodRefusedError) as raised:
        check_names({"metadata": {**metadata}})
    assert said in str(raised.value)


def test_names_of_others_are_no_matter() -> None:
    """And ours are known."""
    known = {f"sidecall.io/{name}": "x" for name in ("config", "containers", "policies", "upstream")}
    annotations = {**known, "sidecall.io/inject": "true", "sidecall.io/injected": "true", "example.com/policy": "a"}
    found: dict[str, Any] = {"annotations": annotations, "labels": {SIDECAR: "true", "app": "a"}}
    check_names({"metadata": found})
    check_names({})


def test_a_name_is_for_one_container() -> None:
    """Whichever list it is in."""
    check_containers(pod(), [PROXY])
    with pytest.raises(PodRefusedError, match=r'keep the proxy out with the label sidecall[.]io/inject: "false"'):
        check_containers(with_spec(initContainers=[{"name": "sidecall"}]), [PROXY])


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
        ("a", "b.c"), "http://h:1/v1", ("agent",), config="x"
    )


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"upstream": "llm.example.com"}, "sidecall.io/upstream: expected a URL"),
        ({"upstream": "https://user:word@host/v1"}, "sidecall.io/upstream: expected a URL"),
        ({"upstream": ""}, "sidecall.io/upstream: expected a URL"),
        ({"policies": "a,B"}, "'B' is none"),
        ({"policies": "../a"}, "'../a' is none"),
        ({"policies": " , "}, "expected the name of a ConfigMap"),
        ({"containers": ""}, "expected names of containers"),
        ({"containers": "agnet"}, "no container 'agnet'; it has agent"),
    ],
)
def test_a_mistake_in_an_annotation_is_told(annotations: dict[str, str], said: str) -> None:
    """With what was expected, and nothing of what may be a secret."""
    with pytest.raises(PodRefusedError, match=r"^sidecall\.io/") as raised:
        wishes(annotated(**annotations))
    assert said in str(raised.value)
    assert "word" not in str(raised.value)
