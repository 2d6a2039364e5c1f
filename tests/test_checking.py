"""Checking files before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.checking import Findings, check

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: orders}
spec:
  rules:
    - name: no-deletes
      match: {tools: ["delete_*"]}
      block: {message: Deleting is not allowed here.}
"""
UNREACHED = POLICY + "    - name: never\n      match: {tools: [delete_all]}\n      answer: {content: never}\n"
CONFIG = "apiVersion: sidecall.io/v1\nkind: Config\npolicies: [policy.yaml]\n"
TEST = "apiVersion: sidecall.io/v1\nkind: ToolPolicyTest\nmetadata: {name: t}\ncases: []\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*paths: str, **texts: str) -> Findings:
    for name, text in texts.items():
        Path(f"{name}.yaml").write_text(text)
    return check(paths, {})


def lines(findings: Findings) -> tuple[list[str], list[str]]:
    return [str(error) for error in findings.errors], [str(warning) for warning in findings.warnings]


def test_what_compiles_is_counted() -> None:
    """A policy that a configuration names too counts once."""
    findings = found("policy.yaml", "sidecall.yaml", policy=POLICY, sidecall=CONFIG)
    assert findings == Findings((), (), configurations=1, policies=1)


def test_a_folder_is_checked_with_all_that_is_in_it() -> None:
    """Cases are read by another command."""
    findings = found(".", policy=POLICY, cases=TEST, sidecall=CONFIG)
    assert findings == Findings((), (), configurations=1, policies=1)
    assert found("cases.yaml") == Findings((), (), configurations=0, policies=0)


def test_mistakes_of_all_files_are_told_once() -> None:
    """In configuration and policies, and where a configuration leads to."""
    wrong = POLICY.replace("block:", "blok:")
    errors, _ = lines(found("policy.yaml", "sidecall.yaml", "none.yaml", policy=wrong, sidecall=CONFIG + "admn: {}\n"))
    assert [error.partition(" ")[0] for error in errors] == ["none.yaml:"]
    errors, _ = lines(found("policy.yaml", "sidecall.yaml"))
    assert [error.partition(" ")[0] for error in errors] == ["sidecall.yaml:4:1:", "policy.yaml:8:7:"]
    errors, _ = lines(found("policy.yaml", "sidecall.yaml", sidecall=CONFIG))
    assert [error.partition(" ")[0] for error in errors] == ["policy.yaml:8:7:"]
    errors, _ = lines(found("broken.yaml", broken="a: ["))
    assert [error.partition(" ")[0] for error in errors] == ["broken.yaml:2:1:"]


def test_a_missing_policy_of_a_configuration_is_told() -> None:
    """By the name that the configuration leads to."""
    errors, _ = lines(found("sidecall.yaml", sidecall=CONFIG))
    assert errors == ["policy.yaml: there is no such file; expected a policy file"]


def test_a_rule_that_is_never_reached_is_a_warning() -> None:
    """With its place, its name and the rule that it is behind; once."""
    findings = found("policy.yaml", "sidecall.yaml", policy=UNREACHED, sidecall=CONFIG)
    _, warnings = lines(findings)
    assert warnings == [
        "policy.yaml:9:7: the rule 'never' can never be reached: every call that it matches ends "
        "at 'orders/no-deletes' before"
    ]
    assert findings.errors == ()


def test_approval_that_nobody_could_give() -> None:
    """A configuration without a token or `insecure` is wrong with it; policies by themselves are not."""
    rule = POLICY + "    - {name: ask, requireApproval: {}}\n"
    errors, _ = lines(found("config.yaml", config=CONFIG, policy=rule))
    assert [error.partition(" ")[0] for error in errors] == ["policy.yaml:9:19:"]
    assert lines(found("policy.yaml", policy=rule)) == ([], [])
    insecure = CONFIG + "admin: {insecure: true}\n"
    assert lines(found("config.yaml", config=insecure, policy=rule)) == ([], [])


def test_suspicious_reads_are_warnings_with_the_schemas_of_the_configuration() -> None:
    """Its tools are known to policies that are given beside it."""
    policy = POLICY.replace("delete_*", "price").replace("block:", "when: args.id == '' && args.nr == ''\n      block:")
    tool = (
        "tools: [{name: price, parameters: {type: object, properties: {id: {}}, required: [id]}, "
        "http: {method: GET, url: 'http://h/{id}'}}]\n"
    )
    _, warnings = lines(found("policy.yaml", policy=policy, sidecall=CONFIG + tool))
    assert [warning.partition(" is read")[0] for warning in warnings] == [
        "policy.yaml:8:13: args.id",
        "policy.yaml:8:13: args.nr",
    ]
    _, warnings = lines(found("policy.yaml", "sidecall.yaml"))
    assert warnings == [
        "policy.yaml:8:13: args.nr is read without has(args.nr): where it is absent, the rule cannot be evaluated",
        "policy.yaml:8:13: the schema of the tool has no argument 'nr'",
    ]


def test_sets_without_mistakes_are_handed_on() -> None:
    """What was given, and what each configuration names."""
    findings = found("policy.yaml", "sidecall.yaml", policy=POLICY, sidecall=CONFIG)
    assert [(len(one.documents), one.policies.policies) for one in findings.sets] == [(1, ("orders",))] * 2
    assert found("policy.yaml", policy=POLICY.replace("block:", "blok:")).sets == ()


def test_odd_spellings_are_warnings() -> None:
    """With their place."""
    errors, warnings = lines(found("policy.yaml", policy=POLICY.replace("delete_*", "{delete,drop}_*")))
    assert errors == []
    assert [line.partition(": ")[0] for line in warnings] == ["policy.yaml:7:23"]
