from __future__ import annotations

import pytest

from proxy.authoring.sources import load_set, placed_rules, read_sources
from proxy.core.policy.verdicts import DefaultAction, RuleName
from proxy.errors import ConfigError
from tests.authoring.files import CASES, CONFIG, POLICY, write


def problems(*paths: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_set(paths, {})
    return [str(problem) for problem in raised.value.problems]


def test_a_folder_gives_its_policies_and_tests() -> None:
    """A configuration that lies in it is not meant."""
    write(policy=POLICY, cases=CASES, sidecall=CONFIG)
    sources = read_sources(["."], {})
    assert [document.file for document in sources.policies] == ["policy.yaml"]
    assert [cases.model.metadata.name for cases in sources.cases] == ["orders"]
    assert sources.default_action is None


def test_a_configuration_that_is_named_stands_for_its_policies() -> None:
    """And for its default action."""
    write(policy=POLICY, sidecall=CONFIG, other=POLICY.replace("name: orders", "name: others"))
    assert load_set(["sidecall.yaml"], {}).default_action is DefaultAction.BLOCK
    assert load_set(["sidecall.yaml", "other.yaml"], {}).policies == ("orders", "others")
    assert load_set(["policy.yaml"], {}).default_action is DefaultAction.ALLOW


def test_mistakes_of_all_files_are_told() -> None:
    """Of policies, tests and configurations, each where it stands."""
    write(policy=POLICY, cases=CASES.replace("call:", "cal:"), sidecall=CONFIG + "admn: {}\n")
    found = problems("cases.yaml", "sidecall.yaml", "policy.yaml")
    assert [line.partition(" ")[0] for line in found] == ["cases.yaml:6:5:", "sidecall.yaml:5:1:"]
    assert problems("none.yaml") == ["none.yaml: there is no such file; expected a policy file"]


def test_a_set_has_policies() -> None:
    """A path without any is a mistake of its own."""
    write(cases=CASES)
    assert problems("cases.yaml") == ["cases.yaml: there is no policy; expected kind: ToolPolicy"]


def test_rules_have_places() -> None:
    """In the order of their files."""
    write(policy=POLICY, bare="apiVersion: sidecall.io/v1\nkind: ToolPolicy\nmetadata: {name: bare}\nspec: {}\n")
    found = [(rule, str(place)) for rule, place in placed_rules(read_sources(["."], {}).policies)]
    assert found == [
        (RuleName("orders", "no-deletes"), "policy.yaml:6:7: orders/no-deletes"),
        (RuleName("orders", "cap-limit"), "policy.yaml:9:7: orders/cap-limit"),
    ]
