"""Judging a configuration that a pod brings itself: whether it is one, and whether others find the proxy by it.

The probes, and the address that applications are told, are the template's. Nothing of the configuration is shown but
where its mistakes are, and none of the files that it names is looked at: it is for the pod. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config import Config, is_loopback
from proxy.configfile import read_remote
from proxy.errors import ConfigError
from proxy.injector.pods import CONFIG, PodRefusedError

_EVERYWHERE = ("0.0.0.0", "::", "localhost")  # noqa: S104 - compared, not bound
_MOST_TOLD = 5


def check_config(text: str, template: str) -> None:
    """Raises PodRefusedError for a configuration that cannot take the place of the template's."""
    try:
        found = read_remote(text, CONFIG)
    except ConfigError as error:
        raise PodRefusedError("; ".join(map(str, error.problems[:_MOST_TOLD]))) from None
    for problem in _unfit(found, read_remote(template, "template")):
        raise PodRefusedError(f"{CONFIG}: {problem}")


def _unfit(found: Config, expected: Config) -> Iterator[str]:
    if found.listen.port != expected.listen.port:
        yield f"listen.port: expected {expected.listen.port}, which applications are told"
    if found.listen.host not in (expected.listen.host, *_EVERYWHERE):
        yield f"listen.host: expected {expected.listen.host}, which applications are told"
    if found.listen.tls is not None:
        yield "listen.tls: expected none, since applications are told http"
    if found.admin.port != expected.admin.port:
        yield f"admin.port: expected {expected.admin.port}, which the probes ask"
    if is_loopback(found.admin.host) and not is_loopback(expected.admin.host):
        yield f"admin.host: expected {expected.admin.host}, where the probes come from outside the pod"
