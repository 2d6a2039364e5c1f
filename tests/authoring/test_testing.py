from __future__ import annotations

import pytest

from proxy.authoring.testing import Report, run_tests
from proxy.errors import ConfigError
from tests.authoring.files import CAPPED, CASES, CONFIG, POLICY, WRONG, write

OTHER = POLICY.replace("name: orders", "name: others").replace("delete_*", "search").replace("[search]", "[find]")


def run(*paths: str) -> Report:
    return run_tests(paths or ["."], {})


def names(report: Report) -> tuple[list[str], list[str]]:
    return [place.message for place in report.coverage.unreached], [
        place.message for place in report.coverage.without_near_miss
    ]


def test_cases_are_run_and_have_places() -> None:
    """A case that fails says where it stands."""
    write(policy=POLICY, cases=CASES + CAPPED + WRONG)
    report = run()
    assert [case.name for case in report.cases] == [
        "deleting is blocked",
        "a high limit is capped",
        "searching is blocked",
    ]
    (failed,) = report.failed
    assert (failed.document, str(failed.place)) == ("orders", "cases.yaml:11:5: ")


def test_cases_meet_the_policies_beside_them() -> None:
    """Those of another folder do not count."""
    write(a__policy=POLICY, a__cases=CASES + CAPPED, b__policy=OTHER, b__cases=CASES.replace("delete_order", "search"))
    report = run()
    assert [case.name for case in report.failed] == ["deleting is blocked"]
    assert [one.got for one in report.failed[0].outcome.differences] == ["others"]


def test_cases_that_lie_by_themselves_meet_all_policies() -> None:
    """In the order of the paths."""
    write(a__policy=OTHER, b__policy=POLICY, tests__cases=CASES + CAPPED)
    (failed,) = run("a", "b", "tests").failed
    assert [one.got for one in failed.outcome.differences] == ["blocked", "no-deletes", {"limit": 99}]


def test_a_configuration_that_is_named_decides_alone() -> None:
    """By its policies and its default action, unless a document says otherwise."""
    blocked = CASES + "  - name: unknown\n    call: {tool: x}\n    expect: {decision: blocked, rule: ''}\n"
    write(policy=POLICY, sidecall=CONFIG, t__cases=blocked, t__policy=OTHER)
    report = run("sidecall.yaml", "t/cases.yaml")
    assert report.failed == []
    write(t__cases=blocked.replace("cases:", "defaultAction: allow\ncases:"))
    assert [case.name for case in run("sidecall.yaml", "t/cases.yaml").failed] == ["unknown"]


def test_the_default_action_may_be_the_documents() -> None:
    """A set for which everything else is blocked is tested as that."""
    text = CASES.replace("cases:", "defaultAction: block\ncases:")
    write(policy=POLICY, cases=text + "  - name: unknown\n    call: {tool: x}\n    expect: {decision: blocked}\n")
    assert run().failed == []


def test_rules_that_no_case_makes_act_are_known() -> None:
    """Also those of policies that no test is for."""
    write(a__policy=POLICY, a__cases=CASES, b__policy=OTHER)
    assert names(run()) == (
        ["orders/cap-limit", "others/no-deletes", "others/cap-limit"],
        ["orders/no-deletes"],
    )


def test_a_near_miss_comes_close_to_a_rule() -> None:
    """Where a rule has conditions, a case for another tool is none."""
    write(policy=POLICY, cases=CASES + CAPPED)
    assert names(run()) == ([], ["orders/cap-limit"])
    write(cases=CASES + CAPPED + WRONG.replace("blocked}", "allowed}"))
    assert names(run()) == ([], [])


def test_a_rule_for_everything_has_nothing_to_let_by() -> None:
    """It is covered when it acts."""
    write(
        policy=POLICY.replace('      match: {tools: ["delete_*"]}\n', ""),
        cases=CASES,
    )
    assert names(run()) == (["orders/cap-limit"], [])


def test_mistakes_are_told_of_policies_that_no_test_is_for() -> None:
    """They would not be loaded either."""
    write(a__policy=POLICY, a__cases=CASES, b__policy=OTHER.replace("args.limit >", "args.limit >>"))
    with pytest.raises(ConfigError, match=r"b/policy\.yaml:11:7: "):
        run()
