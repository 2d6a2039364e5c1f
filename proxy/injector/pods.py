"""Reading a pod as it comes to a webhook: as much as is needed to decide whether a sidecar fits into it.

Rules: a pod is looked at and never changed, and nothing of it is taken for granted. What is not understood is left
alone, with a reason; a mistake in an annotation or a label of ours is refused, so that nobody runs something else than
was meant. Pure: no I/O.
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
_ANNOTATIONS = (CONFIG, CONTAINERS, INJECT, INJECTED, POLICIES, UPSTREAM)
_LABELS = (INJECT, SIDECAR)

_URL = re.compile(r"https?://[^\s?#@\\]+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class PodRefusedError(ValueError):
    """The pod says what cannot be done, and is not made; the message is for whoever made it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a pod's annotations ask for. `policies`: ConfigMaps, None where the template's are right; `containers`:
    names, None for all; `config`: the text of its own configuration."""

    policies: tuple[str, ...] | None = None
    upstream: str = ""
    containers: tuple[str, ...] | None = None
    config: str | None = None


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


def has_sidecar(pod: Object, proxy: Object) -> bool:
    """Whether a proxy is in it already, whoever put it there: a container such as `proxy`. An annotation that says so,
    as a copied pod has it, is no container."""
    spec = mapping(pod.get("spec"))
    inside = [*items(spec.get("containers")), *items(spec.get("initContainers"))]
    return any(container.get("name") == PROXY and _is_like(container, proxy) for container in inside)


def _is_like(container: Object, proxy: Object) -> bool:
    """By its image, of whatever version, or by what it is started with."""
    if container.get("command"):
        return False
    is_same = _repository(container) == _repository(proxy)
    return is_same or (bool(proxy.get("args")) and container.get("args") == proxy["args"])


def _repository(container: Object) -> str:
    """An image without its tag and digest; a port of its registry is no tag."""
    return re.sub(r":[^/:]*$", "", str(container.get("image", "")).partition("@")[0])


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


def check_names(pod: Object) -> None:
    """What is misspelled would be overlooked. Raises PodRefusedError."""
    for kind, found, known in (("annotation", annotations_of(pod), _ANNOTATIONS), ("label", labels_of(pod), _LABELS)):
        unknown = sorted(name for name in found if name.startswith(PREFIX) and name not in known)
        if unknown:
            raise PodRefusedError(f"{unknown[0]} is no {kind} of Sidecall; expected one of {', '.join(known)}")
        if found.get(INJECT, "true") not in ("true", "false"):
            raise PodRefusedError(f'{INJECT}: expected "true" or "false" as this {kind}')


def check_containers(pod: Object, added: Sequence[Object]) -> None:
    """Two containers of one name cannot be in a pod. Raises PodRefusedError."""
    spec = mapping(pod.get("spec"))
    inside = {*names(spec.get("containers")), *names(spec.get("initContainers"))}
    if taken := [name for name in names([*added]) if name in inside]:
        raise PodRefusedError(
            f"the pod has a container '{taken[0]}' of its own, which is not the proxy: give it another name, "
            f'or keep the proxy out with the label {INJECT}: "false"'
        )


def wishes(pod: Object) -> Wishes:
    """What the annotations ask for. Raises PodRefusedError."""
    found = annotations_of(pod)
    upstream = str(found.get(UPSTREAM, ""))
    if UPSTREAM in found and not _URL.fullmatch(upstream):
        raise PodRefusedError(f"{UPSTREAM}: expected a URL such as https://host/v1, without credentials and query")
    policies = _listed(found.get(POLICIES))
    if policies == ():
        raise PodRefusedError(f"{POLICIES}: expected the name of a ConfigMap")
    if wrong := [name for name in policies or () if not _NAME.fullmatch(name)]:
        raise PodRefusedError(f"{POLICIES}: expected names of ConfigMaps, parted by commas; {wrong[0]!r} is none")
    containers = _listed(found.get(CONTAINERS))
    if containers == ():
        raise PodRefusedError(f"{CONTAINERS}: expected names of containers, parted by commas")
    there = names(mapping(pod.get("spec")).get("containers"))
    if unknown := [name for name in containers or () if name not in there]:
        raise PodRefusedError(f"{CONTAINERS}: the pod has no container {unknown[0]!r}; it has {', '.join(there)}")
    return Wishes(policies, upstream, containers, str(found[CONFIG]) if CONFIG in found else None)


def _listed(value: object) -> tuple[str, ...] | None:
    """The parts of a list in one text; None where there is no text."""
    if value is None:
        return None
    parts: Sequence[str] = str(value).split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
