"""What a patch does to a pod: it only adds, once, and what was there stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.injector.patching import Patch, patch
from proxy.injector.pods import PodRefusedError
from tests.injector.recorded import INJECTED, TEMPLATE, Found, patched, pod

PLAIN = replace(TEMPLATE, is_native=False)
ENFORCED = replace(TEMPLATE, first=({"name": "sidecall-enforce"},))


def names(found: Any) -> list[str]:
    return [item["name"] for item in found or []]


def after(name: str = "deployment", template: Any = TEMPLATE) -> Found:
    return patched(pod(name), patch(pod(name), template))


@pytest.mark.parametrize("name", INJECTED)
@pytest.mark.parametrize("template", [TEMPLATE, PLAIN, ENFORCED], ids=["native", "plain", "enforced"])
def test_what_was_there_stays_in_its_order(name: str, template: Any) -> None:
    """And a pod that was patched is not patched again."""
    before, found = pod(name), after(name, template)
    for key in ("containers", "initContainers", "volumes"):
        old = names(before["spec"].get(key))
        assert [one for one in names(found["spec"].get(key)) if one in old] == old
    for key in ("labels", "annotations"):
        assert before["metadata"].get(key, {}).items() <= found["metadata"][key].items()
    assert patch(found, template) == Patch(warnings=("the proxy is in the pod already: it was left as it is",))


def test_a_native_sidecar_comes_before_all_init_containers_and_the_rule_before_it() -> None:
    """So that they too can call it."""
    assert names(after("init-containers", ENFORCED)["spec"]["initContainers"]) == [
        *("sidecall-enforce", "sidecall", "migrate", "logs"),
    ]
    assert names(after("deployment")["spec"]["initContainers"]) == ["sidecall"]


def test_a_plain_sidecar_comes_after_the_containers() -> None:
    """The first one stays the default for logs and exec."""
    found = after(template=PLAIN)["spec"]
    assert names(found["containers"]) == ["agent", "sidecall"]
    assert "initContainers" not in found


def test_containers_learn_where_the_proxy_is() -> None:
    """Beside what they have; the proxy itself does not."""
    found = after(template=PLAIN)["spec"]["containers"]
    assert found[0]["env"] == [{"name": "LOG_LEVEL", "value": "info"}, *TEMPLATE.env]
    assert "env" not in found[1]
    assert after("job")["spec"]["containers"][0]["env"] == [*TEMPLATE.env]


def test_only_named_containers_do_where_the_pod_names_some() -> None:
    """Others keep what they have; so does a variable of the container's own, and its maker is told."""
    made = patch(pod("init-containers"), TEMPLATE)
    agent, metrics = patched(pod("init-containers"), made)["spec"]["containers"]
    assert names(agent["env"]) == ["OPENAI_API_KEY", "OPENAI_BASE_URL"]
    assert "valueFrom" in agent["env"][0]
    assert "env" not in metrics
    assert made.warnings == ("container agent has its own OPENAI_API_KEY, which stays: see that it leads to the proxy",)


def test_a_variable_that_is_there_already_is_no_reason_to_warn() -> None:
    """Nor to add it again."""
    found = pod()
    found["spec"]["containers"][0]["env"] = [*TEMPLATE.env]
    made = patch(found, TEMPLATE)
    assert made.warnings == ()
    assert patched(found, made)["spec"]["containers"][0]["env"] == [*TEMPLATE.env]


def test_the_configuration_comes_as_an_annotation_unless_the_pod_has_its_own() -> None:
    """Nothing has to be in the pod's namespace before it."""
    assert after()["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "sidecall.io/config": TEMPLATE.config,
        "sidecall.io/injected": "true",
    }
    found = pod()
    own = f"{TEMPLATE.config}defaultAction: block\n"
    found["metadata"]["annotations"] = {"sidecall.io/config": own}
    assert patched(found, patch(found, TEMPLATE))["metadata"]["annotations"]["sidecall.io/config"] == own


def test_a_configuration_of_the_pod_that_is_none_is_refused() -> None:
    """The proxy would not start by it, or not where the application looks for it."""
    found = pod()
    found["metadata"]["annotations"] = {"sidecall.io/config": "a: ["}
    with pytest.raises(PodRefusedError, match=r"^sidecall\.io/config:2:1: "):
        patch(found, TEMPLATE)


@pytest.mark.parametrize(
    "claim",
    [{"annotations": {"sidecall.io/injected": "true"}}, {"labels": {"sidecall.io/sidecar": "true"}}],
    ids=["annotation", "label"],
)
def test_a_pod_that_only_claims_to_have_it_gets_it(claim: Found) -> None:
    """As one has that was copied from another."""
    found = pod()
    found["metadata"] |= claim
    assert names(patched(found, patch(found, TEMPLATE))["spec"]["initContainers"]) == ["sidecall"]


@pytest.mark.parametrize("key", ["containers", "initContainers"])
@pytest.mark.parametrize("name", ["sidecall", "sidecall-enforce"])
def test_a_container_of_another_that_has_the_proxys_name_is_refused(key: str, name: str) -> None:
    """It would keep the proxy out in silence."""
    found = pod()
    found["spec"].setdefault(key, []).append({"name": name, "image": "registry.example.com/other:1"})
    with pytest.raises(PodRefusedError, match=f"a container '{name}' of its own"):
        patch(found, ENFORCED)


def test_a_misspelled_annotation_is_refused() -> None:
    """Nobody runs under other policies than were meant."""
    found = pod()
    found["metadata"]["annotations"] = {"sidecall.io/policy": "own"}
    with pytest.raises(PodRefusedError, match=r"sidecall\.io/policy is no annotation of Sidecall; expected one of"):
        patch(found, TEMPLATE)
    found["metadata"]["labels"] = {"sidecall.io/inject": "false"}
    assert patch(found, TEMPLATE) == Patch()


def test_policies_of_the_pod_take_the_place_of_the_templates() -> None:
    """Each ConfigMap in a folder of its own, in the order of the annotation."""
    spec = after("job")["spec"]
    [proxy] = spec["initContainers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in proxy["volumeMounts"]}
    assert mounts == {
        "sidecall-config": "/etc/sidecall/config",
        "sidecall-state": "/var/lib/sidecall",
        "sidecall-policies-0": "/etc/sidecall/policies/maps/company-policies",
        "sidecall-policies-1": "/etc/sidecall/policies/maps/night",
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes.keys() == {*mounts, "kube-api-access-x7k2p"}
    assert volumes["sidecall-policies-1"]["configMap"] == {"name": "night"}
    assert {variable["name"]: variable["value"] for variable in proxy["env"]} == {
        "SIDECALL_UPSTREAM": "https://llm.example.com/v1",
        "SIDECALL_POLICIES": "/etc/sidecall/policies/maps/company-policies:/etc/sidecall/policies/maps/night",
    }


def test_the_template_is_not_changed_by_a_pods_wishes() -> None:
    """The next pod gets what the template says."""
    before = repr(TEMPLATE)
    after("job")
    assert repr(TEMPLATE) == before


def test_a_pod_that_does_not_fit_is_left_alone_with_a_reason() -> None:
    """Whoever makes it sees that it has no sidecar."""
    made = patch(pod("host-network"), TEMPLATE)
    assert made.operations == ()
    [warning] = made.warnings
    assert warning.startswith("no sidecar was put into the pod: it is in the network of its node")


def test_a_pod_with_nulls_is_patched_as_if_they_were_not_there() -> None:
    """As clients send them that write out every field."""
    found = pod()
    found["metadata"] |= {"labels": None, "annotations": None}
    found["spec"] |= {"initContainers": None, "volumes": None}
    found["spec"]["containers"][0]["env"] = None
    done = patched(found, patch(found, TEMPLATE))
    assert done["metadata"]["labels"] == TEMPLATE.labels
    assert names(done["spec"]["initContainers"]) == ["sidecall"]
    assert len(done["spec"]["volumes"]) == 3
    assert done["spec"]["containers"][0]["env"] == [*TEMPLATE.env]
