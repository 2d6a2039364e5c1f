"""Reviews as an API server sends them, a template as the chart renders one, and applying patches."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

from proxy.injector.patching import Patch, Template

FOLDER = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
INJECTED = ("deployment", "init-containers", "job")

Found = dict[str, Any]

TEMPLATE = Template(
    container={
        "name": "sidecall",
        "image": "sidecall:1",
        "restartPolicy": "Always",
        "args": ["serve", "--config", "/etc/sidecall/config/sidecall.yaml"],
        "volumeMounts": [
            {"name": "sidecall-config", "mountPath": "/etc/sidecall/config"},
            {"name": "sidecall-policies-0", "mountPath": "/etc/sidecall/policies/maps/everywhere"},
            {"name": "sidecall-state", "mountPath": "/var/lib/sidecall"},
        ],
    },
    config="apiVersion: sidecall.io/v1\nkind: Config\nadmin: {host: 0.0.0.0}\n",
    volumes=(
        {"name": "sidecall-config", "downwardAPI": {"items": []}},
        {"name": "sidecall-policies-0", "configMap": {"name": "everywhere"}},
        {"name": "sidecall-state", "emptyDir": {}},
    ),
    env=({"name": "OPENAI_BASE_URL", "value": "http://127.0.0.1:15480/v1"}, {"name": "OPENAI_API_KEY", "value": "no"}),
    labels={"sidecall.io/sidecar": "true"},
    annotations={"prometheus.io/scrape": "true"},
)


def review(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes()


def pod(name: str = "deployment") -> Found:
    found: Found = json.loads(review(name))["request"]["object"]
    return found


def applied(found: Found, operations: Any) -> Found:
    """A pod after the operations of a JSON patch, which may only add."""
    after = copy.deepcopy(found)
    for operation in operations:
        assert operation["op"] == "add"
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at: Any = after
        for part in above:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), operation["value"])
        else:
            at[last] = operation["value"]
    return after


def patched(found: Found, made: Patch) -> Found:
    return applied(found, json.loads(json.dumps(made.operations)))


def response(body: bytes) -> Found:
    found: Found = json.loads(body)["response"]
    return found


def operations(body: bytes) -> list[Found]:
    """What a reply's patch says."""
    found: list[Found] = json.loads(base64.b64decode(response(body).get("patch", "W10=")))
    return found
