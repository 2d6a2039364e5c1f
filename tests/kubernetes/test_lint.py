"""What security linters find in what is rendered, and in the Dockerfile: nothing that is not explained here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.charts import SETS, Document, documents, proxies, rendered
from tests.kubernetes.tools import ROOT, run

EXPLAINED = {
    "CKV_K8S_11": "no CPU limit: a proxy that is throttled is a slow one",
    "CKV_K8S_15": "the pull policy is a value; with a tag that never changes IfNotPresent is right",
    "CKV_K8S_43": "the digest is a value: it is not known before the image is built",
    "CKV_K8S_35": "extraEnv, where these value sets ask for it",
    "CKV2_K8S_6": "nobody calls the pod of `helm test`; the gateway's policy is a value; an application's is its own",
}

IMAGE = {
    "CKV_DOCKER_2": "Kubernetes probes the admin port; a HEALTHCHECK would be a second truth",
    "CKV_DOCKER_7": "the base image's tag stands in an ARG, which is not looked at",
}


def findings(framework: str, *files: Path) -> list[dict[str, Any]]:
    arguments = [argument for file in files for argument in ("--file", str(file))]
    done = run("checkov", "--framework", framework, "--skip-download", "--quiet", "-o", "json", *arguments)
    reports = json.loads(done.stdout)
    found: list[dict[str, Any]] = []
    for report in reports if isinstance(reports, list) else [reports]:
        assert "results" in report, done.stdout[:500]
        assert report["summary"]["parsing_errors"] == 0
        assert report["summary"]["passed"] > 0
        found += report["results"]["failed_checks"]
    return found


def shown(finding: dict[str, Any]) -> str:
    return f"{finding['check_id']} {finding['resource']}: {finding['check_name']}"


def proxy_alone(found: list[Document]) -> list[Document]:
    """What was rendered, with an application's pod as if the proxy were all of it: the rest is not the chart's."""
    for pod, container in proxies(found):
        pod["containers"] = [{key: value for key, value in container.items() if key != "restartPolicy"}]
        pod["initContainers"] = []
    return found


def test_checkov_finds_nothing_that_is_not_explained(scratch: Path) -> None:
    """In every value set, but for the init container that sets a rule, which needs a right and says so."""
    files = []
    for name in SETS:
        files.append(scratch / f"lint-{name}.yaml")
        files[-1].write_text(yaml.safe_dump_all(proxy_alone(documents(rendered("helm4", name)))))
    found = {shown(f) for f in findings("kubernetes", *files) if f["check_id"] not in EXPLAINED}
    # The pod of `helm test` ends by itself, so that it needs no probes.
    assert {one for one in found if not re.match(r"CKV_K8S_[89] Pod\.agents\.\S+-test:", one)} == set()


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    """Nothing at all."""
    done = run("hadolint", "--no-color", "Dockerfile", cwd=ROOT)
    assert done.stdout == ""
    assert done.returncode == 0


def test_checkov_finds_nothing_in_the_dockerfile_that_is_not_explained() -> None:
    """The same for the image."""
    found = [f for f in findings("dockerfile", ROOT / "Dockerfile") if f["check_id"] not in IMAGE]
    assert [shown(finding) for finding in found] == []
