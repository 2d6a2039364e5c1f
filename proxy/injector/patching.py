"""Making the patch that puts a sidecar into a pod.

Rules: a patch only adds, but for a value that is null; what is in the pod stays as it is and where it is, after what
is put before it. A pod that was patched is not patched again. What a container says of its own environment is
left, with a warning, since nobody here knows why it says so. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.jsontext import Object
from proxy.injector.ownconfig import check_config
from proxy.injector.pods import (
    CONFIG,
    INJECTED,
    Wishes,
    check_containers,
    check_names,
    has_sidecar,
    items,
    mapping,
    obstacle,
    opts_out,
    wishes,
)

POLICY_FOLDER = "/etc/sidecall/policies/maps"
_POLICY_VOLUME = "sidecall-policies"


@dataclass(frozen=True, slots=True)
class Template:
    """A sidecar as the chart renders it. `first` are init containers that come before everything else; `config` is
    the text of the configuration; `is_native`: the proxy is an init container that stays."""

    container: Object
    config: str
    is_native: bool = True
    first: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    env: tuple[Object, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """Operations of a JSON patch, none where the pod is left alone, and what its maker should know."""

    operations: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()


def patch(pod: Object, template: Template) -> Patch:
    """How a pod gets its sidecar. Raises PodRefusedError."""
    if opts_out(pod):
        return Patch()
    if has_sidecar(pod, template.container):
        return Patch(warnings=("the proxy is in the pod already: it was left as it is",))
    check_names(pod)
    if reason := obstacle(pod):
        return Patch(warnings=(f"no sidecar was put into the pod: {reason}",))
    check_containers(pod, [*template.first, template.container])
    wish = wishes(pod)
    if wish.config is not None:
        check_config(wish.config, template.config)
    proxy, volumes = _proxy(template, wish)
    front = [*template.first, *([proxy] if template.is_native else [])]
    warnings: list[str] = []
    operations = [
        *_entries(pod, "labels", template.labels),
        *_entries(pod, "annotations", _annotations(template, wish)),
        *_environment(pod, template, wish, warnings=warnings),
        *_inserted(pod, "initContainers", front),
        *_appended(pod, "containers", [] if template.is_native else [proxy]),
        *_appended(pod, "volumes", volumes),
    ]
    return Patch(tuple(operations), tuple(warnings))


def _proxy(template: Template, wish: Wishes) -> tuple[Object, list[Object]]:
    """The proxy's container and the pod's new volumes, with what the pod wishes."""
    container: dict[str, Any] = {**template.container}
    volumes = [*template.volumes]
    variables: list[Object] = []
    if wish.upstream:
        variables.append({"name": "SIDECALL_UPSTREAM", "value": wish.upstream})
    if wish.policies is not None:
        folders = [f"{POLICY_FOLDER}/{name}" for name in wish.policies]
        mounts = [mount for mount in items(container.get("volumeMounts")) if not _is_policies(mount)]
        volumes = [volume for volume in volumes if not _is_policies(volume)]
        for index, (name, folder) in enumerate(zip(wish.policies, folders, strict=True)):
            mounts.append({"name": f"{_POLICY_VOLUME}-{index}", "mountPath": folder, "readOnly": True})
            volumes.append({"name": f"{_POLICY_VOLUME}-{index}", "configMap": {"name": name}})
        container["volumeMounts"] = mounts
        variables.append({"name": "SIDECALL_POLICIES", "value": ":".join(folders)})
    if variables:
        container["env"] = [*items(container.get("env")), *variables]
    return container, volumes


def _is_policies(found: Object) -> bool:
    return str(found.get("name", "")).startswith(_POLICY_VOLUME)


def _annotations(template: Template, wish: Wishes) -> dict[str, str]:
    """A pod's own configuration stays."""
    config = {} if wish.config is not None else {CONFIG: template.config}
    return {**template.annotations, **config, INJECTED: "true"}


def _environment(pod: Object, template: Template, wish: Wishes, *, warnings: list[str]) -> Iterator[Object]:
    """The application's containers learn where the proxy is."""
    for index, container in enumerate(items(mapping(pod.get("spec")).get("containers"))):
        name = str(container.get("name"))
        if wish.containers is not None and name not in wish.containers:
            continue
        own = {str(variable.get("name", "")): variable for variable in items(container.get("env"))}
        for variable in template.env:
            if own.get(str(variable["name"]), variable) != variable:
                warnings.append(
                    f"container {name} has its own {variable['name']}, which stays: see that it leads to the proxy"
                )
        new = [variable for variable in template.env if variable["name"] not in own]
        yield from _listed(f"/spec/containers/{index}/env", container.get("env"), new)


def _entries(pod: Object, key: str, wanted: Mapping[str, str]) -> Iterator[Object]:
    there = mapping(pod.get("metadata")).get(key)
    new = {name: value for name, value in wanted.items() if name not in mapping(there)}
    if not mapping(there):
        yield from [_add(f"/metadata/{key}", new)] if new else []
        return
    for name, value in new.items():
        yield _add(f"/metadata/{key}/{name.replace('~', '~0').replace('/', '~1')}", value)


def _inserted(pod: Object, key: str, new: Sequence[Object]) -> Iterable[Object]:
    """Before everything that is there."""
    if not items(mapping(pod.get("spec")).get(key)):
        return _listed(f"/spec/{key}", None, new)
    return [_add(f"/spec/{key}/{index}", item) for index, item in enumerate(new)]


def _appended(pod: Object, key: str, new: Sequence[Object]) -> Iterable[Object]:
    return _listed(f"/spec/{key}", mapping(pod.get("spec")).get(key), new)


def _listed(path: str, there: Any, new: Sequence[Object]) -> Iterable[Object]:
    if not new:
        return []
    return [_add(f"{path}/-", item) for item in new] if there else [_add(path, [*new])]


def _add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}
