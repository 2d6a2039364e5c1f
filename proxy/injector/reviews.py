"""Answering an AdmissionReview (admission.k8s.io/v1): bytes in, bytes out.

What is no review at all is a ReviewError; everything else gets an answer, and all but a pod that would run otherwise
than its maker says is allowed: the injector is no guard. Pure: no I/O.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from proxy.core.jsontext import Object, parse, render
from proxy.injector.patching import Patch, Template, patch
from proxy.injector.pods import PodRefusedError, mapping

VERSION = "admission.k8s.io/v1"


class ReviewError(ValueError):
    """What came is no review that could be answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply, and what of it belongs into the log."""

    body: bytes
    namespace: str
    name: str
    outcome: str
    warnings: tuple[str, ...] = ()


def answer(body: bytes, template: Template) -> Answer:
    """The reply to a review. Raises ReviewError."""
    request = _request(body)
    pod = request.get("object")
    metadata = mapping(mapping(pod).get("metadata"))
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    namespace = str(request.get("namespace", ""))
    if not _is_new_pod(request) or not isinstance(pod, dict):
        return Answer(_reply(request, Patch()), namespace, name, "left alone")
    try:
        made = patch(pod, template)
    except PodRefusedError as error:
        return Answer(_refusal(request, str(error)), namespace, name, "refused", (str(error),))
    outcome = "injected" if made.operations else "left alone"
    return Answer(_reply(request, made), namespace, name, outcome, made.warnings)


def _request(body: bytes) -> Object:
    try:
        review = parse(body)
    except ValueError:
        raise ReviewError("the body is not JSON") from None
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise ReviewError("the body is no AdmissionReview")
    if review.get("apiVersion") != VERSION:
        raise ReviewError(f"expected a review of {VERSION}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise ReviewError("the review has no request with a uid")
    return request


def _is_new_pod(request: Object) -> bool:
    kind: Any = mapping(request.get("kind"))
    is_pod = (kind.get("group"), kind.get("version"), kind.get("kind")) == ("", "v1", "Pod")
    return is_pod and request.get("operation") == "CREATE" and not request.get("subResource")


def _reply(request: Object, made: Patch) -> bytes:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if made.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(render([*made.operations])).decode()
    if made.warnings:
        response["warnings"] = [f"sidecall: {warning}" for warning in made.warnings]
    return render({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})


def _refusal(request: Object, message: str) -> bytes:
    status = {"code": 400, "reason": "BadRequest", "message": f"sidecall: {message}"}
    response = {"uid": request["uid"], "allowed": False, "status": status}
    return render({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})
