"""Reading a pod as it comes to a webhook: as much as is needed to decide whether a sidecar fits into it.

Rules: a pod is looked at and never changed, and nothing of it is taken for granted. What is not understood is left
alone, with a reason; a mistake in an annotation of ours is refused, so that nobody runs something else than was
meant. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.jsontext import Object

PREFIX = "sidecall.io/"
INJECT, INJECTED, SIDECAR = (PREFIX + name for name in ("inject", "injected", "sidecar"))
CONFIG, POLICIES, UPSTREAM, CONTAINERS = (PREFIX + name for name in ("config", "policies", "upstream", "containers"))
PROXY = "sidecall"

_URL = re.compile(r"https?://[^\s?#@\\]+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class AnnotationError(ValueError):
    """An annotation of ours says what cannot be done; the message is for whoever made the pod."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a pod's annotations ask for. `policies`: ConfigMaps, None where the template's are right; `containers`:
    names, None for all; `has_config`: it brings its own configuration."""

    policies: tuple[str, ...] | None = None
    upstream: str = ""
    containers: tuple[str, ...] | None = None
    has_config: bool = False


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Object]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def names(values: Any) -> list[str]:
    return [str(item.get("name", "")) for item in items(values)]


def labels_of(pod: Object) -> Mapping[str, Any]:
    return mapping(mapping(pod.get("metadata")).get("labels"))


def annotations_of(pod: Object) -> Mapping[str, Any]:
    return mapping(mapping(pod.get("metadata")).get("annotations"))


def has_sidecar(pod: Object) -> bool:
    """Whether a proxy is in it already, whoever put it there."""
    spec = mapping(pod.get("spec"))
    inside = names(spec.get("containers")) + names(spec.get("initContainers"))
    return PROXY in inside or INJECTED in annotations_of(pod) or labels_of(pod).get(SIDECAR) == "true"


def opts_out(pod: Object) -> bool:
    return "false" in (labels_of(pod).get(INJECT), annotations_of(pod).get(INJECT))


def obstacle(pod: Object) -> str:
    """Why a sidecar does not fit into a pod; empty when it does."""
    spec = mapping(pod.get("spec"))
    containers = spec.get("containers")
    if not containers or not all(names(containers)):
        return "its containers cannot be read"
    for key in ("containers", "initContainers", "volumes"):
        value = spec.get(key)
        if value is not None and (not isinstance(value, list) or len(items(value)) != len(value)):
            return f"its {key} cannot be read"
    for key in ("labels", "annotations"):
        if not isinstance(mapping(pod.get("metadata")).get(key, {}), dict | None):
            return f"its {key} cannot be read"
    if any(not isinstance(container.get("env", []), list | None) for container in items(containers)):
        return "the environment of a container cannot be read"
    if spec.get("hostNetwork") is True:
        return "it is in the network of its node, where the proxy would serve the whole node"
    if mapping(spec.get("os")).get("name", "linux") != "linux":
        return "it is not for Linux"
    taken = [name for name in names(spec.get("volumes")) if name.startswith(f"{PROXY}-")]
    return f"it has a volume {taken[0]} of its own" if taken else ""


def wishes(pod: Object) -> Wishes:
    """What the annotations ask for. Raises AnnotationError."""
    found = annotations_of(pod)
    upstream = str(found.get(UPSTREAM, ""))
    if upstream and not _URL.fullmatch(upstream):
        raise AnnotationError(f"{UPSTREAM}: expected a URL such as https://host/v1, without credentials and query")
    policies = _listed(found.get(POLICIES))
    if policies == ():
        raise AnnotationError(f"{POLICIES}: expected the name of a ConfigMap")
    if wrong := [name for name in policies or () if not _NAME.fullmatch(name)]:
        raise AnnotationError(f"{POLICIES}: expected names of ConfigMaps, parted by commas; {wrong[0]!r} is none")
    containers = _listed(found.get(CONTAINERS))
    there = names(mapping(pod.get("spec")).get("containers"))
    if unknown := [name for name in containers or () if name not in there]:
        raise AnnotationError(f"{CONTAINERS}: the pod has no container {unknown[0]!r}; it has {', '.join(there)}")
    return Wishes(policies, upstream, containers, CONFIG in found)


def _listed(value: object) -> tuple[str, ...] | None:
    """The parts of a list in one text; None where there is no text."""
    if value is None:
        return None
    parts: Sequence[str] = str(value).split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
