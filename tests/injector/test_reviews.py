"""Recorded reviews and their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.injector.reviews import ReviewError, answer
from tests.injector.recorded import INJECTED, NAMES, TEMPLATE, applied, operations, pod, response, review

ALONE = {"opted-out", "update", "another-kind"}
WARNED = {"host-network", "unreadable-pod"}
REFUSED = {"wrong-annotation"}


def test_every_recording_has_an_expectation() -> None:
    """None is there for nothing."""
    assert {*INJECTED, *ALONE, *WARNED, *REFUSED} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_a_review_with_the_uid_of_its_request(name: str) -> None:
    """Whatever it says."""
    found = json.loads(answer(review(name), TEMPLATE).body)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert found["response"]["uid"] == json.loads(review(name))["request"]["uid"]
    assert found["response"]["allowed"] is (name not in REFUSED)


@pytest.mark.parametrize("name", INJECTED)
def test_a_pod_gets_its_sidecar_and_a_second_review_of_it_nothing(name: str) -> None:
    """The patch is a JSON patch that can be applied; the webhook may be called again after others."""
    first = answer(review(name), TEMPLATE)
    assert response(first.body)["patchType"] == "JSONPatch"
    assert first.outcome == "injected"
    after = applied(pod(name), operations(first.body))
    assert after["spec"]["initContainers"][0]["name"] == "sidecall"
    again = json.loads(review(name))
    again["request"]["object"] = after
    second = answer(json.dumps(again).encode(), TEMPLATE)
    assert "patch" not in response(second.body)
    assert second.outcome == "left alone"
    assert response(second.body)["warnings"] == ["sidecall: the proxy is in the pod already: it was left as it is"]


@pytest.mark.parametrize("name", sorted(ALONE | WARNED))
def test_what_is_not_for_it_is_left_alone(name: str) -> None:
    """Allowed as it is; where somebody may have expected more, with a warning."""
    found = answer(review(name), TEMPLATE)
    assert operations(found.body) == []
    assert bool(response(found.body).get("warnings")) is (name in WARNED)


def test_a_wrong_annotation_is_refused_with_what_is_wrong() -> None:
    """The pod would run otherwise than its maker meant."""
    found = answer(review("wrong-annotation"), TEMPLATE)
    assert response(found.body)["status"] == {
        "code": 400,
        "reason": "BadRequest",
        "message": "sidecall: sidecall.io/containers: the pod has no container 'agnet'; it has agent",
    }
    assert found.outcome == "refused"


def test_warnings_reach_the_maker_of_the_pod_and_the_log() -> None:
    """The API server shows them."""
    found = answer(review("init-containers"), TEMPLATE)
    assert response(found.body)["warnings"] == [f"sidecall: {warning}" for warning in found.warnings]
    assert (found.namespace, found.name) == ("agents", "shop-agent-5d8f6c7b9-")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "no AdmissionReview"),
        (b'{"kind": "Pod"}', "no AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "expected a review of"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "no request with a uid"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": ""}}', "a uid"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": 1}}', "a uid"),
    ],
)
def test_what_is_no_review_is_told(body: bytes, said: str) -> None:
    """There is no uid to answer to."""
    with pytest.raises(ReviewError, match=said):
        answer(body, TEMPLATE)


@pytest.mark.parametrize("thing", [None, "pod", [], {}, {"metadata": 3, "spec": "x"}, {"spec": {"containers": [None]}}])
def test_an_object_that_is_no_pod_gets_an_answer(thing: Any) -> None:
    """Nothing that may come as an object makes it fail."""
    found = json.loads(review("deployment"))
    found["request"]["object"] = thing
    assert operations(answer(json.dumps(found).encode(), TEMPLATE).body) == []
